// data pack: documents, order, held-out parts and messages.
#include "data/pack.h"

#include <filesystem>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "base/json.h"
#include "data/indexed_dataset.h"
#include "tests/data/files.h"

namespace orthant {
namespace {

std::vector<std::int32_t> all_tokens(const std::string& prefix) {
  const IndexedDataset dataset(prefix);
  std::vector<std::int32_t> tokens(static_cast<std::size_t>(dataset.num_tokens()));
  dataset.copy_tokens(0, tokens);
  return tokens;
}

std::string text_of(const std::string& prefix) {
  return make_tokenizer("bytes")->decode(all_tokens(prefix));
}

std::string many_lines(int count) {
  std::string lines;
  for (int i = 0; i < count; ++i) {
    std::string text(static_cast<std::size_t>(i * 37 % 400), static_cast<char>('a' + i % 26));
    lines += Json{{"text", text}, {"n", i}}.dump() + "\n";
  }
  return lines;
}

TEST(Pack, TextFilesAndLinesAreDocuments) {
  const Folder folder;
  PackOptions options;
  options.inputs = {folder.write("a.txt", "hello "), folder.write("empty.txt", ""),
                    folder.write("b.jsonl", "{\"text\": \"wor\"}\n\n{\"text\": \"ld\", \"x\": 1}"),
                    folder.write("none.jsonl", "")};
  options.output = folder.path("out");
  const PackResult result = pack(*make_tokenizer("bytes"), options);
  EXPECT_EQ(result.all.num_documents, 4);
  EXPECT_EQ(result.all.num_tokens, 11);
  EXPECT_EQ(result.all.input_bytes, 6 + 0 + 15 + 2 + 22);
  EXPECT_EQ(text_of(options.output), "hello world");
  const IndexedDataset dataset(options.output);
  EXPECT_EQ(dataset.document_length(1), 0);
  EXPECT_EQ(dataset.document_length(2), 3);
  EXPECT_FALSE(std::filesystem::exists(folder.path("out.bin.partial")));
}

TEST(Pack, ThreadsChangeNothing) {
  const Folder folder;
  const std::string lines = folder.write("a.jsonl", many_lines(8000));
  const std::string text = folder.write("b.txt", std::string(3 << 20, 'x') + "end");
  std::string expected;
  for (const int num_threads : {1, 2, 5}) {
    PackOptions options;
    options.inputs = {lines, text, lines};
    options.output = folder.path("out");
    options.num_threads = num_threads;
    const PackResult result = pack(*make_tokenizer("bytes"), options);
    EXPECT_EQ(result.all.num_documents, 16001);
    const std::string bytes =
        read_text_file(options.output + ".idx") + read_text_file(options.output + ".bin");
    if (expected.empty()) expected = bytes;
    EXPECT_TRUE(bytes == expected);
  }
}

TEST(Pack, Gpt2OnTinyShakespeareIsTheTokensOfTheWhole) {
  SKIP_WITHOUT_SHARED("fixtures/tokenizers/gpt2");
  const Folder folder;
  const auto tokenizer = make_tokenizer(shared("fixtures/tokenizers/gpt2"));
  const std::string text = read_text_file(shared("data/tinyshakespeare.txt"));
  PackOptions options;
  options.inputs = {folder.write("three.txt", text + text + text)};  // more than one block
  options.output = folder.path("out");
  options.append_end_of_document = true;
  options.num_threads = 2;
  const PackResult result = pack(*tokenizer, options);
  std::vector<std::int32_t> expected;
  tokenizer->encode(text + text + text, expected);
  expected.push_back(50256);
  EXPECT_EQ(all_tokens(options.output), expected);
  EXPECT_EQ(result.all.num_documents, 1);
}

TEST(Pack, LastDocumentsOrTokensAreHeldOut) {
  const Folder folder;
  PackOptions options;
  options.output = folder.path("out");
  options.valid_fraction = 0.25;
  options.inputs = {folder.write("a.txt", "0123456789abcdef")};
  const PackResult single = pack(*make_tokenizer("bytes"), options);
  EXPECT_EQ(single.valid.num_tokens, 4);
  EXPECT_EQ(text_of(folder.path("out")), "0123456789ab");
  EXPECT_EQ(text_of(folder.path("out-valid")), "cdef");
  for (const char* name : {"b.txt", "c.txt", "d.txt"}) {
    options.inputs.push_back(folder.write(name, name));
  }
  const PackResult several = pack(*make_tokenizer("bytes"), options);
  EXPECT_EQ(several.valid.num_documents, 1);
  EXPECT_EQ(text_of(folder.path("out")), "0123456789abcdefb.txtc.txt");
  EXPECT_EQ(text_of(folder.path("out-valid")), "d.txt");
}

TEST(Pack, BadInputNamesFileAndLineAndLeavesNothing) {
  const Folder folder;
  const auto fails = [&](const std::string& input, const std::string& part) {
    PackOptions options;
    options.inputs = {input};
    options.output = folder.path("out");
    options.num_threads = 2;
    EXPECT_ERROR(pack(*make_tokenizer("bytes"), options), part);
    EXPECT_FALSE(std::filesystem::exists(folder.path("out.idx")));
    EXPECT_FALSE(std::filesystem::exists(folder.path("out.bin.partial")));
  };
  const std::string good = many_lines(9000);
  fails(folder.write("a.jsonl", good + "{\"text\": oops}\n"),
        "a.jsonl, line 9001: this is not JSON");
  fails(folder.write("b.jsonl", "{\"text\": \"x\"}\n{\"body\": \"x\"}\n"),
        "b.jsonl, line 2: there is no text under the key 'text'");
  fails(folder.write("c.jsonl", "[1]\n"), "c.jsonl, line 1");
  fails(folder.write("d.txt.gz", "xyz"), "d.txt.gz: the compressed data is damaged near byte 0");
  fails(folder.write("d.txt.xz", "x"), ".xz is not read; .gz and .zst are");
  fails(folder.path("absent.txt"), "absent.txt: No such file");
}

TEST(Pack, OptionsThatCannotBeAreRefused) {
  const Folder folder;
  const auto bytes = make_tokenizer("bytes");
  PackOptions options;
  EXPECT_ERROR(pack(*bytes, options), "no input is given");
  options.inputs = {folder.write("a.txt", "x")};
  EXPECT_ERROR(pack(*bytes, options), "no --output is given");
  options.output = folder.path("out");
  options.append_end_of_document = true;
  EXPECT_ERROR(pack(*bytes, options), "no end-of-document token");
  options.append_end_of_document = false;
  options.valid_fraction = 1;
  EXPECT_ERROR(pack(*bytes, options), "the fraction for validation is 1");
  options.valid_fraction = 0.5;
  EXPECT_ERROR(pack(*bytes, options), "leaves none for validation");
}

}  // namespace
}  // namespace orthant
