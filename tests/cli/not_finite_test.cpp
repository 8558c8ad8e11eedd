// A loss that is not finite ends the run with the name of the first layer, and changes nothing.
#include <cstring>
#include <limits>

#include "ckpt/safetensors.h"
#include "tests/cli/binary.h"

namespace orthant::test {
namespace {

class NotFinite : public Workplace {
 protected:
  static std::vector<std::string> options(const std::vector<std::string>& more) {
    std::vector<std::string> all = {"--checkpoint.interval=1", "--optimizer.decay=constant",
                                    "--optimizer.warmup_steps=0"};
    all.insert(all.end(), more.begin(), more.end());
    return all;
  }
};

TEST_F(NotFinite, WeightsNameTheirLayer) {
  expect_trains({"--train.steps=1", "--checkpoint.dir=first"});
  ASSERT_EQ(run({"convert", "first", "hf"}).status, 0);
  const std::string path = at("hf/model.safetensors");
  std::size_t place = 0;
  {
    const SafetensorsFile file(path);
    const TensorEntry* entry = file.find("transformer.h.2.mlp.c_fc.weight");
    ASSERT_NE(entry, nullptr);
    place = static_cast<std::size_t>(file.data_offset() + entry->begin) + 40;
  }
  std::string content = content_of(path);
  const float nan = std::numeric_limits<float>::quiet_NaN();
  std::memcpy(content.data() + place, &nan, sizeof nan);
  write_content(path, content);
  for (const std::vector<std::string>& layout :
       {std::vector<std::string>{}, {"--layout.ranks=8", "--layout.tp=2", "--layout.pp=2"}}) {
    std::vector<std::string> all = options({"--model.weights=hf"});
    all.insert(all.end(), layout.begin(), layout.end());
    const Finished done = train(all);
    expect_message(done, 1, {"step 1", "loss is nan", "first that is not finite is h.2", "lr"});
    EXPECT_TRUE(files_of("ckpt").empty());
    EXPECT_TRUE(losses("log").empty());
  }
}

TEST_F(NotFinite, StepsLeaveTheCheckpointBefore) {
  for (const std::vector<std::string>& layout :
       {std::vector<std::string>{}, {"--layout.ranks=4", "--layout.tp=2", "--layout.pp=2"}}) {
    std::filesystem::remove_all(at("ckpt"));
    std::filesystem::remove_all(at("before"));
    std::vector<std::string> all = options({"--optimizer.lr=1e30"});
    all.insert(all.end(), layout.begin(), layout.end());
    const Finished done = train(all);
    expect_message(done, 1, {"step 2", "not finite is h.0", "optimizer.lr=1e+30"});
    EXPECT_EQ(losses("log").size(), 1U);
    all.insert(all.end(), {"--train.steps=1", "--checkpoint.dir=before", "--log.dir=log-before"});
    expect_trains(all);
    EXPECT_TRUE(files_of("ckpt") == files_of("before"));
  }
}

}  // namespace
}  // namespace orthant::test
