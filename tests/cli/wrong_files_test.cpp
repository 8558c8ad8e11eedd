// Datasets, Hugging Face folders and checkpoints that are damaged or of something else.
#include <cstring>

#include "tests/cli/binary.h"

namespace orthant::test {
namespace {

namespace fs = std::filesystem;

class WrongFiles : public Workplace {
 protected:
  // A folder "hf" with the weights of a short run.
  void make_hf() const {
    expect_trains({"--train.steps=1", "--log.dir=first", "--checkpoint.dir=first"});
    const Finished done = run({"convert", "first", "hf"});
    ASSERT_EQ(done.status, 0) << done.err;
  }
  // Trains from hf, whose config.json gives the model.
  void expect_hf_refused(const std::vector<std::string>& parts) const {
    expect_refused({"train", "hf.toml"}, 2, parts);
  }
  void SetUp() override {
    Workplace::SetUp();
    write_content(at("hf.toml"), R"([model]
weights = "hf"
[train]
steps = 1
global_batch = 1
seq_length = 16
[data]
train = "corpus"
)");
  }

  // The header of hf/model.safetensors, changed by `change`; the data is kept.
  void change_header(const std::function<void(OrderedJson&)>& change) const {
    const std::string path = at("hf/model.safetensors");
    const std::string whole = content_of(path);
    std::uint64_t length = 0;
    std::memcpy(&length, whole.data(), sizeof length);
    OrderedJson header = OrderedJson::parse(whole.substr(8, length));
    change(header);
    const std::string text = header.dump();
    length = text.size();
    const std::string head(reinterpret_cast<const char*>(&length), sizeof length);
    std::uint64_t old = 0;
    std::memcpy(&old, whole.data(), sizeof old);
    write_content(path, head + text + whole.substr(8 + old));
  }
  void change_config(const std::string& key, const Json& value) const {
    Json config = Json::parse(content_of(at("hf/config.json")));
    config[key] = value;
    write_content(at("hf/config.json"), config.dump());
  }
};

TEST_F(WrongFiles, DatasetsAreNamed) {
  expect_train_refused({"--data.train=nope"}, {"nope.idx", "No such file"});
  expect_train_refused({"--data.train=corpus.bin"}, {"without the ending: corpus"});
  expect_train_refused({"--data.train=[]"}, {"data.train is empty", "orthant data pack"});
  expect_train_refused({"--model.vocab=100"}, {"corpus has token id", "vocabulary is 100"});

  const std::string index = content_of(at("corpus.idx"));
  write_content(at("cut.idx"), index.substr(0, index.size() - 9));
  fs::copy_file(at("corpus.bin"), at("cut.bin"));
  expect_train_refused({"--data.train=cut"}, {"cut.idx", "truncated"});
  expect_refused({"data", "info", "cut"}, 2, {"cut.idx", "truncated"});
  write_content(at("head.idx"), index.substr(0, 20));
  fs::copy_file(at("corpus.bin"), at("head.bin"));
  expect_train_refused({"--data.train=head"}, {"head.idx", "truncated"});
  write_content(at("short.idx"), index);
  write_content(at("short.bin"), content_of(at("corpus.bin")).substr(0, 1000));
  expect_train_refused({"--data.train=short"}, {"short.bin has 1000 bytes", "truncated"});
  write_content(at("small.txt"), "too little");
  ASSERT_EQ(run({"data", "pack", "small.txt", "--tokenizer", "bytes", "--output", "small"}).status,
            0);
  expect_train_refused({"--data.train=small"}, {"no sample", "lower train.seq_length"});
}

TEST_F(WrongFiles, SafetensorsThatBreakTheFormatAreNamed) {
  make_hf();
  const std::string path = at("hf/model.safetensors");
  const std::string whole = content_of(path);
  const std::string name = "transformer.h.1.mlp.c_fc.weight";

  change_header([&](OrderedJson& header) { header.erase(name); });
  expect_hf_refused({"model.safetensors"});  // a hole
  write_content(path, whole);
  change_header([&](OrderedJson& header) {
    header[name]["data_offsets"] = header["transformer.h.0.mlp.c_fc.weight"]["data_offsets"];
  });
  expect_hf_refused({"model.safetensors", "c_fc"});  // an overlap
  write_content(path, whole);
  change_header([&](OrderedJson& header) { header[name]["shape"] = {128, 32}; });
  expect_hf_refused({name, "[128,32]", "[32,128]"});
  write_content(path, whole);
  change_header([&](OrderedJson& header) { header[name]["shape"] = {32, 64}; });
  expect_hf_refused({name});
  write_content(path, whole.substr(0, whole.size() - 5));
  expect_hf_refused({"model.safetensors"});
  std::string lying = whole;
  lying[6] = '\x7f';
  write_content(path, lying);
  expect_hf_refused({"header's length"});
  write_content(path, "");
  expect_hf_refused({"model.safetensors", "truncated"});
  fs::remove(path);
  expect_hf_refused({"has neither model.safetensors"});
}

TEST_F(WrongFiles, ConfigsThatAreNotComputedAreNamed) {
  make_hf();
  const std::string whole = content_of(at("hf/config.json"));
  const std::vector<std::pair<std::string, Json>> changes = {
      {"activation_function", "relu"},
      {"scale_attn_by_inverse_layer_idx", true},
      {"add_cross_attention", true},
      {"model_type", "mamba"},
      {"quantization_config", {{"a", 1}}},
      {"embd_pdrop", 0.5},
      {"n_head", 7},
      {"n_layer", "four"},
  };
  for (const auto& [key, value] : changes) {
    change_config(key, value);
    expect_hf_refused({"config.json"});
    write_content(at("hf/config.json"), whole);
  }
  change_config("n_layer", 5);
  expect_hf_refused({"transformer.h.4."});
  write_content(at("hf/config.json"), "{");
  expect_hf_refused({"config.json", "not a JSON object"});
}

TEST_F(WrongFiles, ACheckpointOfAnotherModelIsRefused) {
  expect_trains({"--train.steps=1"});
  expect_train_refused({"--model.hidden=64"}, {"another model", "hidden", "checkpoint.dir"});
  expect_train_refused({"--model.layers=2"}, {"another model", "layers"});
  expect_refused({"eval", "run.toml", "--checkpoint", "log"}, 2, {"log is not a checkpoint"});
  expect_refused({"convert", "log", "out"}, 2, {"log is neither"});
}

TEST_F(WrongFiles, ADamagedCheckpointFallsBackToTheOneBefore) {
  expect_trains({"--checkpoint.interval=2"});
  const auto newest = files_of("ckpt/step-00000004");
  const auto expected = losses("log");
  const auto resume = [&](const std::string& damage) {
    SCOPED_TRACE(damage);
    const Finished done = train({"--checkpoint.interval=2"});
    EXPECT_EQ(done.status, 0) << done.err;
    EXPECT_NE(done.err.find(damage), std::string::npos) << done.err;
    EXPECT_NE(done.err.find("checkpoint ckpt/step-00000002"), std::string::npos) << done.err;
    EXPECT_EQ(losses("log"), expected);
    EXPECT_TRUE(files_of("ckpt/step-00000004") == newest);
    EXPECT_EQ(names_of(files_of("ckpt")).size(), 2 * newest.size() + 2);
  };
  fs::remove(at("ckpt/step-00000004/h.1.safetensors"));
  resume("file h.1.safetensors is missing");
  fs::resize_file(at("ckpt/step-00000004/h.2.safetensors"), 100);
  resume("file h.2.safetensors has 100 bytes");
  fs::remove(at("ckpt/step-00000004/manifest.json"));
  resume("no manifest.json");
  write_content(at("ckpt/step-00000004/manifest.json"), "{\"format\":");
  resume("manifest.json is damaged");
  std::string file = content_of(at("ckpt/step-00000004/h.0.safetensors"));
  file[20] = '\0';
  write_content(at("ckpt/step-00000004/h.0.safetensors"), file);
  resume("h.0.safetensors");
}

TEST_F(WrongFiles, ABitThatHasFlippedIsNamed) {
  expect_trains({"--layout.ranks=4", "--layout.tp=2", "--layout.pp=2"});
  const std::string path = at("ckpt/step-00000004/h.1.safetensors");
  const std::string whole = content_of(path);
  for (const std::size_t from_end : {1, 20'000}) {
    std::string flipped = whole;
    flipped[flipped.size() - from_end] ^= 0x10;
    write_content(path, flipped);
    const std::vector<std::string> parts = {"ckpt/step-00000004: tensor h.1.",
                                            "has changed since it was written"};
    expect_train_refused({"--train.steps=5"}, parts);
    expect_train_refused({"--train.steps=5", "--layout.ranks=2"}, parts);
    expect_refused({"eval", "run.toml", "--train.eval_steps=1"}, 2, parts);
  }
  write_content(path, whole);
  expect_trains({"--train.steps=5"});
}

TEST_F(WrongFiles, NothingIsConvertedOverWhatIsThere) {
  make_hf();
  expect_refused({"convert", "hf", "first"}, 2, {"has a checkpoint already"});
  expect_refused({"convert", "first", "hf"}, 2, {"not an empty folder"});
  expect_refused({"convert", "hf", "run.toml"}, 2, {"run.toml is a file"});
  expect_refused({"convert", "nope", "out"}, 2, {"nope is neither"});
}

}  // namespace
}  // namespace orthant::test
