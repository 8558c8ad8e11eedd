// Indexed datasets: the golden bytes of the format, round trips, and one message per kind of
// damage.
#include "data/indexed_dataset.h"

#include <cstring>
#include <filesystem>
#include <numeric>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "data/indexed_dataset_writer.h"
#include "tests/data/files.h"

namespace orthant {
namespace {

std::string from_hex(std::string_view digits) {
  std::string bytes;
  std::string pair;
  for (const char c : digits) {
    if (c == ' ') continue;
    pair += c;
    if (pair.size() < 2) continue;
    bytes.push_back(static_cast<char>(std::stoi(pair, nullptr, 16)));
    pair.clear();
  }
  return bytes;
}

// Documents [1,2,3] and [4,5] in u16.
const char* const kGoldenIndex =
    "4d4d49444944580000 0100000000000000 08 0200000000000000 0300000000000000 03000000 02000000 "
    "0000000000000000 0600000000000000 0000000000000000 0100000000000000 0200000000000000";
const char* const kGoldenTokens = "0100 0200 0300 0400 0500";

// The golden dataset with some bytes of its index replaced.
std::string damaged(const Folder& folder, std::size_t offset, std::string_view bytes) {
  std::string index = from_hex(kGoldenIndex);
  index.replace(offset, bytes.size(), bytes);
  folder.write("d.idx", index);
  folder.write("d.bin", from_hex(kGoldenTokens));
  return folder.path("d");
}

void write(IndexedDatasetWriter& writer, const std::vector<std::vector<std::int32_t>>& documents) {
  for (const auto& document : documents) {
    writer.append(document);
    writer.end_document();
  }
}

std::vector<std::int32_t> all_tokens(const IndexedDataset& dataset) {
  std::vector<std::int32_t> tokens(static_cast<std::size_t>(dataset.num_tokens()));
  dataset.copy_tokens(0, tokens);
  return tokens;
}

TEST(IndexedDataset, WriterGivesTheGoldenBytes) {
  const Folder folder;
  IndexedDatasetWriter writer(folder.path("d"), 50257);
  write(writer, {{1, 2, 3}, {4, 5}});
  EXPECT_FALSE(std::filesystem::exists(folder.path("d.idx")));
  writer.commit();
  EXPECT_EQ(read_text_file(folder.path("d.idx")), from_hex(kGoldenIndex));
  EXPECT_EQ(read_text_file(folder.path("d.bin")), from_hex(kGoldenTokens));
}

TEST(IndexedDataset, ReaderUnderstandsTheGoldenBytes) {
  const Folder folder;
  const IndexedDataset dataset(damaged(folder, 0, "M"));
  EXPECT_EQ(dataset.num_sequences(), 2);
  EXPECT_EQ(dataset.num_documents(), 2);
  EXPECT_EQ(dataset.num_tokens(), 5);
  EXPECT_EQ(name_of(dataset.token_type()), "u16");
  EXPECT_EQ(dataset.document_length(0), 3);
  EXPECT_EQ(dataset.document_length(1), 2);
  EXPECT_EQ(all_tokens(dataset), (std::vector<std::int32_t>{1, 2, 3, 4, 5}));
  std::vector<std::int32_t> middle(2);
  dataset.copy_tokens(2, middle);
  EXPECT_EQ(middle, (std::vector<std::int32_t>{3, 4}));
  EXPECT_EQ(dataset.max_token(), 5);
  EXPECT_EQ(dataset.token_range().min, 1);
  EXPECT_ERROR(dataset.copy_tokens(4, middle), "tokens 4 to 5 of 5 were asked");
}

TEST(IndexedDataset, EveryKindOfDamageHasItsMessage) {
  const Folder folder;
  const auto open = [](const std::string& prefix) {
    return IndexedDataset(prefix).num_tokens();
  };
  EXPECT_ERROR(open(folder.path("absent")), "absent.idx: No such file");
  EXPECT_ERROR(open(folder.path("d.idx")), "give the prefix without the ending");
  EXPECT_ERROR(open(damaged(folder, 0, "X")), "does not begin with MMIDIDX");
  EXPECT_ERROR(open(damaged(folder, 0, std::string_view("TNTIDX\0\0", 8))), "legacy TNTIDX");
  EXPECT_ERROR(open(damaged(folder, 9, "\x02")), "version 2");
  EXPECT_ERROR(open(damaged(folder, 17, "\x07")), "dtype code 7");
  EXPECT_ERROR(open(damaged(folder, 17, "\x09")), "dtype code 9");
  EXPECT_ERROR(open(damaged(folder, 18, "\x03")), "does not fit 3 sequences and 3");
  EXPECT_ERROR(open(damaged(folder, 18, std::string(8, '\xff'))),
               "does not fit 18446744073709551615");
  EXPECT_ERROR(open(damaged(folder, 26, std::string(7, '\x7f'))), "document boundaries");
  EXPECT_ERROR(open(damaged(folder, 34, std::string(4, '\xff'))), "sequence 0 has length -1");
  EXPECT_ERROR(open(damaged(folder, 50, "\x08")), "sequence 1 begins at byte 8");
  EXPECT_ERROR(open(damaged(folder, 50, std::string(8, '\xff'))), "sequence 1 begins at byte -1");
  EXPECT_ERROR(open(damaged(folder, 58, "\x01")), "document boundary 0 is 1");
  EXPECT_ERROR(open(damaged(folder, 66, "\x03")), "document boundary 1 is 3");
  EXPECT_ERROR(open(damaged(folder, 74, "\x01")), "last document ends at sequence 1 of 2");
}

TEST(IndexedDataset, TruncatedFilesAreRefused) {
  const Folder folder;
  const std::string prefix = damaged(folder, 0, "M");
  const auto open = [&] {
    return IndexedDataset(prefix).num_tokens();
  };
  folder.write("d.bin", from_hex(kGoldenTokens).substr(0, 9));
  EXPECT_ERROR(open(), "d.bin has 9 bytes, its index needs 10");
  folder.write("d.bin", from_hex(kGoldenTokens));
  for (const std::size_t size : {10, 33, 34, 40, 81}) {
    folder.write("d.idx", from_hex(kGoldenIndex).substr(0, size));
    EXPECT_ERROR(open(), "truncated");
  }
  folder.write("d.idx", from_hex(kGoldenIndex) + std::string(2, '\0'));
  EXPECT_EQ(open(), 5);  // two bytes more: the modes of a multimodal file
  folder.write("d.idx", from_hex(kGoldenIndex) + std::string(3, '\0'));
  EXPECT_ERROR(open(), "does not fit");
}

TEST(IndexedDataset, LargeVocabulariesAreI32AndEmptyDocumentsAreKept) {
  const Folder folder;
  {
    IndexedDatasetWriter writer(folder.path("d"), 65500);
    write(writer, {{}, {70000 - 4501}, {}, {}, {1, 2}});
    writer.commit();
  }
  const IndexedDataset dataset(folder.path("d"));
  EXPECT_EQ(dataset.token_type(), TokenType::kI32);
  EXPECT_EQ(dataset.num_documents(), 5);
  EXPECT_EQ(dataset.num_sequences(), 2);
  EXPECT_EQ(dataset.document_length(0), 0);
  EXPECT_EQ(dataset.document_length(4), 2);
  EXPECT_EQ(all_tokens(dataset), (std::vector<std::int32_t>{65499, 1, 2}));
}

TEST(IndexedDataset, AllTokenTypesAreRead) {
  const Folder folder;
  for (const int code : {1, 2, 3, 4, 5, 8}) {
    const auto type = static_cast<TokenType>(code);
    std::string index = from_hex(kGoldenIndex);
    index[17] = static_cast<char>(code);
    index[50] = static_cast<char>(3 * size_of(type));
    std::string tokens;
    for (const char value : {1, 2, 3, 4, 5}) {
      tokens += value + std::string(static_cast<std::size_t>(size_of(type)) - 1, '\0');
    }
    folder.write("d.idx", index);
    folder.write("d.bin", tokens);
    const IndexedDataset dataset(folder.path("d"));
    EXPECT_EQ(all_tokens(dataset), (std::vector<std::int32_t>{1, 2, 3, 4, 5}));
    EXPECT_EQ(dataset.max_token(), 5);
  }
}

TEST(IndexedDataset, WriterWithoutCommitLeavesNothing) {
  const Folder folder;
  {
    IndexedDatasetWriter writer(folder.path("d"), 256);
    write(writer, {{1, 2, 3}});
  }
  EXPECT_TRUE(std::filesystem::is_empty(folder.path("")));
}

TEST(IndexedDataset, TailsAreCopiedToAnotherDataset) {
  const Folder folder;
  {
    IndexedDatasetWriter writer(folder.path("a"), 256);
    IndexedDatasetWriter tail(folder.path("b"), 256);
    write(writer, {{1, 2, 3}, {}, {4}, {5, 6}});
    writer.copy_documents_to(2, tail);
    tail.commit();
    writer.keep_documents(2);
    writer.commit();
    IndexedDatasetWriter one(folder.path("c"), 256);
    IndexedDatasetWriter rest(folder.path("d"), 256);
    write(one, {{1, 2, 3, 4, 5}});
    one.copy_tokens_to(3, rest);
    rest.commit();
    one.keep_tokens(3);
    one.commit();
  }
  const IndexedDataset a(folder.path("a"));
  EXPECT_EQ(all_tokens(a), (std::vector<std::int32_t>{1, 2, 3}));
  EXPECT_EQ(a.num_documents(), 2);
  const IndexedDataset b(folder.path("b"));
  EXPECT_EQ(all_tokens(b), (std::vector<std::int32_t>{4, 5, 6}));
  EXPECT_EQ(b.num_documents(), 2);
  EXPECT_EQ(all_tokens(IndexedDataset(folder.path("c"))), (std::vector<std::int32_t>{1, 2, 3}));
  EXPECT_EQ(all_tokens(IndexedDataset(folder.path("d"))), (std::vector<std::int32_t>{4, 5}));
}

TEST(IndexedDataset, AnotherWriterGoesOnFromWhatWasSynced) {
  const Folder folder;
  IndexedDatasetWriter::State state;
  {
    IndexedDatasetWriter writer(folder.path("a"), 256);
    write(writer, {{1, 2}, {}});
    writer.append(std::vector<std::int32_t>{3});
    state = writer.sync();
    writer.append(std::vector<std::int32_t>{9, 9});
    writer.end_document();
  }
  {
    IndexedDatasetWriter writer(folder.path("a"), TokenType::kU16, state);
    write(writer, {{4}, {5}});
    state = writer.finish();
  }
  IndexedDatasetWriter::publish(folder.path("a"), TokenType::kU16, state);
  IndexedDatasetWriter::publish(folder.path("a"), TokenType::kU16, state);  // nothing is left to do
  IndexedDatasetWriter whole(folder.path("b"), 256);
  write(whole, {{1, 2}, {}, {3, 4}, {5}});
  whole.commit();
  for (const char* ending : {".idx", ".bin"}) {
    EXPECT_EQ(read_text_file(folder.path("a") + ending), read_text_file(folder.path("b") + ending));
  }
  state.num_tokens = 100;
  EXPECT_ERROR(IndexedDatasetWriter(folder.path("a"), TokenType::kU16, state), "a.bin.partial");
}

TEST(IndexedDataset, FixtureCorporaAreRead) {
  SKIP_WITHOUT_SHARED("fixtures/gpt2-tiny/corpus.idx");
  for (const char* name : {"gpt2-tiny", "bloom-tiny", "llama-tiny"}) {
    const IndexedDataset dataset(shared(std::string("fixtures/") + name + "/corpus"));
    EXPECT_EQ(dataset.num_tokens(), 5121);
    EXPECT_EQ(dataset.num_documents(), 1);
  }
}

}  // namespace
}  // namespace orthant
