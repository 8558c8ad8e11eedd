// What of the data's documents a run refuses.
#include <gtest/gtest.h>

#include "data/indexed_dataset_writer.h"
#include "tests/data/files.h"
#include "train/plan_memory.h"
#include "train/run_data.h"

namespace orthant {
namespace {

// Sequences of 8 tokens: of 2, 1, 1, 4, 1, ... documents.
class RunDocuments : public testing::Test {
 protected:
  RunDocuments() {
    IndexedDatasetWriter writer(folder_.path("d"), 65536);
    for (const std::size_t length : {5, 20, 2, 3, 100}) {
      writer.append(std::vector<std::int32_t>(length, 1));
      writer.end_document();
    }
    writer.commit();
  }
  // Of the checks of the first `samples` samples.
  std::string message(const std::vector<std::string>& overrides, std::int64_t samples) const {
    const std::string text = fmt::format(
        "[model]\nfamily = 'gpt'\nlayers = 1\nhidden = 8\nheads = 2\nvocab = 9\n[train]\n"
        "seq_length = 8\n[data]\norder = 'sequential'\ntrain = ['{}']\n",
        folder_.path("d"));
    const RunConfig config = parse_run_config(text, "run.toml", overrides);
    const auto source = open_train_data(config, nullptr);
    try {
      check_documents(config, *source, samples);
    } catch (const Error& error) {
      return error.what();
    }
    return "no error";
  }
  Folder folder_;
};

TEST_F(RunDocuments, MoreThanTheLimitAreRefusedWhereTheyAreRead) {
  EXPECT_EQ(message({}, 100), "no error");
  EXPECT_EQ(message({"--data.max_documents=4"}, 100), "no error");
  EXPECT_EQ(message({"--data.max_documents=2"}, 3), "no error");
  EXPECT_EQ(message({"--data.max_documents=3"}, 100),
            "data.max_documents=3: sequence 3 of " + folder_.path("d") +
                " has 4 documents; raise it, or use 0 for any number");
  EXPECT_NE(message({"--data.max_documents=1"}, 1).find("sequence 0 of"), std::string::npos);
}

TEST_F(RunDocuments, ALimitOfDocumentsThatAreCrossedIsRefused) {
  EXPECT_ERROR(message({"--data.cross_documents=true", "--data.max_documents=2"}, 1),
               "data.max_documents=2 limits documents that data.cross_documents=true does not tell "
               "apart; leave one of them out");
}

// Attention is told of documents where a sequence may have several.
TEST_F(RunDocuments, OneDocumentNeedsNoOtherAttention) {
  const auto by_document = [](const std::vector<std::string>& overrides) {
    return rank_config(parse_run_config("[model]\nfamily = 'gpt'\nlayers = 1\nhidden = 8\n"
                                        "heads = 2\nvocab = 9\n[train]\nseq_length = 8\n",
                                        "run.toml", overrides))
        .by_document;
  };
  EXPECT_TRUE(by_document({}));
  EXPECT_TRUE(by_document({"--data.max_documents=2"}));
  EXPECT_FALSE(by_document({"--data.max_documents=1"}));
  EXPECT_FALSE(by_document({"--data.cross_documents=true"}));
  EXPECT_TRUE(by_document({"--device.kind=cuda", "--precision.compute=bf16"}));
}

}  // namespace
}  // namespace orthant
