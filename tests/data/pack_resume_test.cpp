// data pack: packings that were stopped go on, and give the bytes of one that was not; compressed
// inputs, folders, and lines that are left out.
#include <algorithm>
#include <atomic>
#include <filesystem>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "base/json.h"
#include "data/indexed_dataset.h"
#include "data/pack.h"
#include "tests/data/files.h"

namespace orthant {
namespace {

// Bytes, until it fails: what a kill does, as far as files can tell.
class FailingTokenizer final : public Tokenizer {
 public:
  explicit FailingTokenizer(int calls_left)
      : bytes_(make_tokenizer("bytes")),
        calls_left_(calls_left) {}

  void encode(std::string_view text, std::vector<std::int32_t>& out) const override {
    if (--calls_left_ < 0) fail_run("it was stopped");
    bytes_->encode(text, out);
  }
  std::string decode(std::span<const std::int32_t> ids) const override {
    return bytes_->decode(ids);
  }
  std::int64_t vocab_size() const override { return 256; }
  bool needs_utf8() const override { return true; }
  std::uint32_t fingerprint() const override { return 0; }
  std::optional<std::int32_t> end_of_document() const override { return 0; }
  std::size_t safe_cut(std::string_view text, std::size_t limit) const override {
    return std::min(text.size(), limit);
  }

 private:
  std::unique_ptr<Tokenizer> bytes_;
  mutable std::atomic<int> calls_left_;
};

std::string from_hex(std::string_view digits) {
  std::string bytes;
  for (std::size_t i = 0; i < digits.size(); i += 2) {
    bytes.push_back(static_cast<char>(std::stoi(std::string(digits.substr(i, 2)), nullptr, 16)));
  }
  return bytes;
}

// {"text": "one"} and {"text": "two"}, each compressed for itself and one behind the other.
const char* const kGzip =
    "1f8b0800000000000203ab562a49ad2851b25250cacf4b55aae502006d03d106100000001f8b0800000000000203ab"
    "56"
    "2a49ad2851b252502a29cf57aae50200a2e48d6d10000000";
const char* const kZstd =
    "28b52ffd20108100007b2274657874223a20226f6e65227d0a28b52ffd20108100007b2274657874223a202274776f"
    "22"
    "7d0a";

std::string text_of(const std::string& prefix) {
  const IndexedDataset dataset(prefix);
  std::vector<std::int32_t> tokens(static_cast<std::size_t>(dataset.num_tokens()));
  dataset.copy_tokens(0, tokens);
  return make_tokenizer("bytes")->decode(tokens);
}

class PackFiles : public testing::Test {
 protected:
  PackOptions options(const std::string& output) const {
    PackOptions options;
    options.inputs = inputs_;
    options.output = folder_.path(output);
    options.num_threads = 3;
    options.seconds_between_saves = 0;
    options.append_end_of_document = true;
    return options;
  }
  // The bytes of all files of a dataset.
  std::string content(const std::string& name) const {
    std::string all;
    for (const char* ending : {".idx", ".bin", "-valid.idx", "-valid.bin", ".bad-lines.txt"}) {
      const std::string path = folder_.path(name) + ending;
      all += std::filesystem::exists(path) ? read_text_file(path) : "none";
    }
    return all;
  }
  bool has_leftovers() const {
    for (const auto& entry : std::filesystem::directory_iterator(folder_.path(""))) {
      const std::string name = entry.path().filename().string();
      if (name.find(".partial") != std::string::npos || name.find(".progress") != std::string::npos)
        return true;
    }
    return false;
  }

  Folder folder_;
  std::vector<std::string> inputs_;
};

TEST_F(PackFiles, AStoppedPackingGoesOnToTheSameBytes) {
  std::string lines;
  for (int i = 0; i < 30000; ++i) {
    lines +=
        i % 5000 == 77
            ? "{broken\n"
            : Json{{"text", std::string(static_cast<std::size_t>(i % 211), 'x')}}.dump() + "\n";
  }
  const std::string long_text = std::string(5 << 20, 'y') + "\n\xFF bad\n" + std::string(9, 'z');
  inputs_ = {folder_.write("a.jsonl", lines), folder_.write("b.txt", long_text),
             folder_.write("c.txt", ""), folder_.write("d.jsonl", lines)};
  for (const double fraction : {0.0, 0.01}) {
    PackOptions whole = options("whole");
    whole.bad_lines = BadLines::kSkip;
    whole.valid_fraction = fraction;
    const PackResult expected = pack(FailingTokenizer(1 << 30), whole);
    EXPECT_EQ(expected.num_bad_lines, 13);
    int num_stops = 0;
    PackOptions parts = whole;
    parts.output = folder_.path("parts");
    for (int calls = 100;; calls += 4000) {
      parts.num_threads = 1 + calls % 4;
      try {
        const PackResult result = pack(FailingTokenizer(calls), parts);
        EXPECT_EQ(result.all.num_tokens, expected.all.num_tokens);
        EXPECT_EQ(result.all.num_documents, expected.all.num_documents);
        EXPECT_EQ(result.num_bad_lines, 13);
        break;
      } catch (const Error& error) {
        ++num_stops;
        EXPECT_NE(std::string_view(error.what()).find("it was stopped"), std::string_view::npos);
      }
    }
    EXPECT_GT(num_stops, 3);
    EXPECT_TRUE(content("parts") == content("whole")) << fraction;
    EXPECT_FALSE(has_leftovers());
  }
}

TEST_F(PackFiles, AnotherJobDoesNotGoOn) {
  inputs_ = {folder_.write("a.txt", std::string(4 << 20, 'x'))};
  PackOptions first = options("out");
  first.num_threads = 1;
  EXPECT_ERROR(pack(FailingTokenizer(3), first),
               "it was stopped; what was packed before is kept, and the same command goes on");
  PackOptions other = first;
  other.append_end_of_document = false;
  EXPECT_ERROR(pack(FailingTokenizer(1 << 30), other),
               "out.progress.json is of a packing with other");
  std::filesystem::rename(folder_.path("out.bin.partial"), folder_.path("elsewhere"));
  EXPECT_ERROR(pack(FailingTokenizer(1 << 30), first), "out.bin.partial is missing");
  std::filesystem::rename(folder_.path("elsewhere"), folder_.path("out.bin.partial"));
  const std::string path = folder_.path("out.progress.json");
  const std::string progress = read_text_file(path);
  for (const char* key : {"file", "offset", "line", "documents", "tokens", "bad_lines"}) {
    for (const char* number : {"92233372036854775808", "-1", "1.5"}) {
      std::string damaged = progress;
      const std::size_t at = damaged.find(':', damaged.find(fmt::format("\"{}\"", key))) + 2;
      damaged.replace(at, damaged.find(',', at) - at, number);
      write_file_atomically(path, damaged);
      EXPECT_ERROR(pack(FailingTokenizer(1 << 30), first),
                   fmt::format("out.progress.json is damaged ([json.exception.other_error.501] {} "
                               "is ",
                               key));
    }
  }
  write_file_atomically(path, progress);
  folder_.write("a.txt", std::string(5 << 20, 'x'));
  EXPECT_ERROR(pack(FailingTokenizer(1 << 30), first), "begin anew with --restart");
  first.restarts = true;
  EXPECT_EQ(pack(FailingTokenizer(1 << 30), first).all.num_tokens, (5 << 20) + 1);
  EXPECT_FALSE(has_leftovers());
}

TEST_F(PackFiles, CompressedFilesAreRead) {
  inputs_ = {folder_.write("a.jsonl.gz", from_hex(kGzip)),
             folder_.write("b.jsonl.zst", from_hex(kZstd)),
             folder_.write("c.txt.gz", from_hex(kGzip)), folder_.write("d.txt.gz", "")};
  PackOptions given = options("out");
  given.append_end_of_document = false;
  const PackResult result = pack(FailingTokenizer(1 << 30), given);
  EXPECT_EQ(result.all.num_documents, 6);
  EXPECT_EQ(text_of(given.output), "onetwoonetwo{\"text\": \"one\"}\n{\"text\": \"two\"}\n");
}

TEST_F(PackFiles, DamagedCompressedFilesAreRefused) {
  const auto fails = [this](const std::string& name, const std::string& bytes, const char* part) {
    inputs_ = {folder_.write(name, bytes)};
    EXPECT_ERROR(pack(FailingTokenizer(1 << 30), options("out")), part);
  };
  const std::string gzip = from_hex(kGzip);
  const std::string zstd = from_hex(kZstd);
  for (std::size_t size = 1; size + 1 < gzip.size(); ++size) {
    if (size != gzip.size() / 2) fails("a.jsonl.gz", gzip.substr(0, size), "ends at byte");
  }
  for (std::size_t size = 1; size + 1 < zstd.size(); ++size) {
    if (size != zstd.size() / 2) fails("a.jsonl.zst", zstd.substr(0, size), "ends at byte");
  }
  std::string damaged = gzip;
  damaged[20] = static_cast<char>(damaged[20] ^ 0x55);
  fails("a.jsonl.gz", damaged, "the compressed data is damaged");
  fails("a.jsonl.zst", "no zstd at all", "the compressed data is damaged");
}

TEST_F(PackFiles, FoldersAreSearchedInOrder) {
  std::filesystem::create_directories(folder_.path("in/sub"));
  folder_.write("in/b.txt", "B");
  folder_.write("in/a.jsonl", R"({"text": "A"})");
  folder_.write("in/sub/c.ndjson", R"({"text": "C"})");
  folder_.write("in/readme.md", "no");
  inputs_ = {folder_.path("in"), folder_.write("last", "L")};
  PackOptions given = options("out");
  given.append_end_of_document = false;
  const PackResult result = pack(FailingTokenizer(1 << 30), given);
  EXPECT_EQ(text_of(given.output), "ABCL");
  EXPECT_EQ(result.num_files_left_out, 1);
  std::filesystem::create_directories(folder_.path("empty"));
  inputs_ = {folder_.path("empty")};
  EXPECT_ERROR(pack(FailingTokenizer(1), options("out")), "the folder has no file that ends in");
}

TEST_F(PackFiles, BadLinesAreListedOrStop) {
  inputs_ = {folder_.write(
                 "a.jsonl",
                 "{\"text\": \"x\"}\n\n{oops\n[\"text\"]\n{\"text\": 1}\n{\"a\": {\"text\": "
                 "\"no\"}}\n{\"text\": \"y\", \"b\": [1, {\"text\": 2}]}\n{\"text\": \"\xFF\"}\n"),
             folder_.write("b.txt",
                           "good\nb\xFF"
                           "d\nalso good")};
  PackOptions given = options("out");
  given.append_end_of_document = false;
  EXPECT_ERROR(pack(FailingTokenizer(1 << 30), given), "a.jsonl, line 3: this is not JSON");
  given.restarts = true;
  given.bad_lines = BadLines::kSkip;
  const PackResult result = pack(FailingTokenizer(1 << 30), given);
  EXPECT_EQ(result.num_bad_lines, 6);
  EXPECT_EQ(text_of(given.output), "xygood\nalso good");
  const std::string list = read_text_file(folder_.path("out.bad-lines.txt"));
  for (const char* part :
       {"a.jsonl, line 3: this is not JSON", "a.jsonl, line 4: there is no text",
        "a.jsonl, line 5: ", "a.jsonl, line 6: ", "a.jsonl, line 8: this is not JSON",
        "b.txt, line 2: this is not UTF-8"}) {
    EXPECT_NE(list.find(part), std::string::npos) << part << " in " << list;
  }
  inputs_ = {inputs_[1]};
  EXPECT_ERROR(pack(FailingTokenizer(1 << 30), options("other")),
               "b.txt, line 2: this is not UTF-8");
}

}  // namespace
}  // namespace orthant
