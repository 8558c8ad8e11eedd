// data merge, split and verify, and training a tokenizer.
#include "data/dataset_files.h"

#include <algorithm>
#include <filesystem>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "base/crc32c.h"
#include "base/file.h"
#include "data/bpe_trainer.h"
#include "data/indexed_dataset_writer.h"
#include "data/tokenizer.h"
#include "data/word_patterns.h"
#include "tests/data/files.h"

namespace orthant {
namespace {

using Documents = std::vector<std::vector<std::int32_t>>;

class DatasetFiles : public testing::Test {
 protected:
  std::string write(const std::string& name, const Documents& documents, std::int64_t vocab = 256) {
    IndexedDatasetWriter writer(folder_.path(name), vocab);
    for (const auto& document : documents) {
      writer.append(document);
      writer.end_document();
    }
    writer.commit();
    return folder_.path(name);
  }
  std::string content(const std::string& prefix) const {
    return read_text_file(prefix + ".idx") + read_text_file(prefix + ".bin");
  }
  bool has_leftovers() const {
    const std::filesystem::directory_iterator files(folder_.path(""));
    return std::any_of(begin(files), end(files), [](const auto& entry) {
      return entry.path().string().find(".partial") != std::string::npos;
    });
  }

  Folder folder_;
};

TEST_F(DatasetFiles, MergedIsWhatOnePackingWouldHaveGiven) {
  const std::string a = write("a", {{1, 2, 3}, {}, {4}});
  const std::string b = write("b", {{}, {5, 6}});
  const DatasetCounts counts = merge_datasets({a, b, a}, folder_.path("all"));
  EXPECT_EQ(counts.num_documents, 8);
  EXPECT_EQ(counts.num_tokens, 10);
  const std::string expected =
      write("expected", {{1, 2, 3}, {}, {4}, {}, {5, 6}, {1, 2, 3}, {}, {4}});
  EXPECT_TRUE(content(folder_.path("all")) == content(expected));
}

TEST_F(DatasetFiles, WhatCannotBeMergedIsRefused) {
  const std::string a = write("a", {{1}});
  const std::string wide = write("wide", {{1}}, 70000);
  EXPECT_ERROR(merge_datasets({a, wide}, folder_.path("all")),
               "they come from different tokenizers");
  EXPECT_ERROR(merge_datasets({a, a}, a), "is an input and an output");
  const std::string bytes = read_text_file(a + ".bin");
  folder_.write("a.bin", bytes + "more");
  EXPECT_ERROR(merge_datasets({a}, folder_.path("all")), "a.bin has 6 bytes, its index says 2");
  EXPECT_FALSE(has_leftovers());
  EXPECT_FALSE(std::filesystem::exists(folder_.path("all.idx")));
}

TEST_F(DatasetFiles, SplitHasMegatronsBounds) {
  Documents documents;
  documents.reserve(10);
  for (int i = 0; i < 10; ++i) {
    documents.push_back({i, i});
  }
  const std::string all = write("all", documents);
  // 10 * 0.25 is 2.5, which goes to the even 2; 10 * 0.5 is 5.
  const std::vector<DatasetCounts> counts =
      split_dataset(all, {{folder_.path("x"), 1}, {folder_.path("y"), 1}, {folder_.path("z"), 2}});
  EXPECT_EQ(counts[0].num_documents, 2);
  EXPECT_EQ(counts[1].num_documents, 3);
  EXPECT_EQ(counts[2].num_documents, 5);
  merge_datasets({folder_.path("x"), folder_.path("y"), folder_.path("z")}, folder_.path("again"));
  EXPECT_TRUE(content(folder_.path("again")) == content(all));
  EXPECT_ERROR(split_dataset(all, {{folder_.path("p"), 1000}, {folder_.path("q"), 1}}), "of which");
  EXPECT_ERROR(split_dataset(all, {{folder_.path("p"), -1}}), "the share of");
  EXPECT_ERROR(split_dataset(all, {{all, 1}}), "is an input and an output");
  EXPECT_FALSE(has_leftovers());
  EXPECT_FALSE(std::filesystem::exists(folder_.path("p.idx")));
}

TEST_F(DatasetFiles, VerifyReadsEveryByte) {
  const std::string a = write("a", {{1, 200}, {}, {4, 5, 6}});
  const DatasetReport report = verify_dataset(a, 0);
  EXPECT_EQ(report.counts.num_tokens, 5);
  EXPECT_EQ(report.num_empty_documents, 1);
  EXPECT_EQ(report.longest_document, 3);
  EXPECT_EQ(report.range.min, 1);
  EXPECT_EQ(report.range.max, 200);
  EXPECT_EQ(report.checksum, crc32c(read_text_file(a + ".bin")));
  EXPECT_EQ(verify_dataset(a, 201).counts.num_documents, 3);
  EXPECT_ERROR(verify_dataset(a, 200), "document 0 has ids from 1 to 200, the vocabulary has 200");
  // Each byte of the index means something.
  const std::string index = read_text_file(a + ".idx");
  for (std::size_t at = 0; at < index.size(); ++at) {
    std::string damaged = index;
    damaged[at] = static_cast<char>(damaged[at] ^ 0x10);
    folder_.write("a.idx", damaged);
    try {
      const DatasetReport other = verify_dataset(a, 0);
      ADD_FAILURE() << "byte " << at << " was changed: " << other.counts.num_tokens << " tokens";
    } catch (const Error&) {
    }
  }
}

TEST(BpeTrainer, TakesTheMostFrequentPairAndOfEqualsTheLowest) {
  const PieceCounts pieces = {{"abab", 3}, {" b", 2}, {"ba", 1}};
  BpeTraining training;
  training.vocab_size = 300;
  training.special_tokens = {"<s>"};
  const TrainedBpe trained = train_bpe(pieces, training);
  ASSERT_EQ(trained.tokens[0], "<s>");
  EXPECT_EQ(trained.tokens[1], "!");
  ASSERT_EQ(trained.tokens.size(), 260u);
  EXPECT_EQ(trained.tokens[257], "ab");    // 6 times
  EXPECT_EQ(trained.tokens[258], "abab");  // 3 times
  EXPECT_EQ(trained.tokens[259],
            "\xC4\xA0"
            "b");
  const Folder folder;
  const std::string path =
      folder.write("tokenizer.json", tokenizer_json(trained, training, kLlama3Pattern));
  const auto tokenizer = make_tokenizer(path);
  std::vector<std::int32_t> ids;
  tokenizer->encode("abab b<s>", ids);
  EXPECT_EQ(ids, (std::vector<std::int32_t>{258, 259, 0}));
  training.vocab_size = 256;
  EXPECT_ERROR(train_bpe(pieces, training), "special tokens and bytes alone are 257");
}

}  // namespace
}  // namespace orthant
