// Weights out of Hugging Face folders.
#include "hf/hf_source.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <map>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "ckpt/safetensors.h"
#include "hf/hf_config.h"
#include "hf/hf_names.h"
#include "tests/hf/folders.h"

namespace orthant {
namespace {

TEST(HfNames, EveryElementIsMappedOnce) {
  for (const ModelConfig& model : small_models()) {
    std::map<std::string, std::vector<int>> canonical;
    for (const ParamSpec& param : canonical_params(model)) {
      canonical[param.name].resize(static_cast<std::size_t>(param.global.count()));
    }
    for (const HfTensor& tensor : hf_tensors(model)) {
      std::int64_t count = 1;
      for (const std::int64_t extent : tensor.shape) {
        count *= extent;
      }
      std::vector<int> hits(static_cast<std::size_t>(count));
      for (const HfPart& part : tensor.parts) {
        for (std::int64_t i = 0; i < part.count(); ++i) {
          const std::int64_t at =
              part.hf_first + i / part.cols * part.row_stride + i % part.cols * part.col_stride;
          ++hits.at(static_cast<std::size_t>(at));
          ++canonical.at(part.param).at(static_cast<std::size_t>(part.first + i));
        }
      }
      EXPECT_EQ(std::count(hits.begin(), hits.end(), 1), count) << tensor.name;
    }
    for (const auto& [name, hits] : canonical) {
      EXPECT_EQ(static_cast<std::size_t>(std::count(hits.begin(), hits.end(), 1)), hits.size())
          << name;
    }
  }
}

// Where elements of the fused tensors lie, said without the mapping's own numbers.
TEST(HfSource, FusedTensorsAreTakenApart) {
  ORTHANT_NEED_FIXTURES();
  const ModelConfig gpt = read_hf_config(kFixtures + "gpt2-tiny").model;
  const HfSource gpt_source(gpt, kFixtures + "gpt2-tiny");
  const SafetensorsFile gpt_file(kFixtures + "gpt2-tiny/model.safetensors");
  const ModelConfig bloom = read_hf_config(kFixtures + "bloom-tiny").model;
  const HfSource bloom_source(bloom, kFixtures + "bloom-tiny");
  const SafetensorsFile bloom_file(kFixtures + "bloom-tiny/model.safetensors");
  const auto stored = [](const SafetensorsFile& file, const char* name, std::int64_t at) {
    float value = 0;
    std::memcpy(&value, file.data(*file.find(name)).data() + 4 * at, 4);
    return value;
  };
  const std::vector<ParamSpec> block = block_params(gpt, 1);
  const auto kv = std::find_if(block.begin(), block.end(), [](const ParamSpec& param) {
    return param.name == "h.1.attn.kv.weight";
  });
  const std::vector<float> gpt_kv = read_all(gpt_source, *kv);
  const std::vector<float> bloom_kv = read_all(bloom_source, *kv);
  for (const std::int64_t head : {0, 5}) {
    for (const std::int64_t d : {0, 7}) {
      for (const std::int64_t c : {0, 63}) {
        const std::int64_t k = (head * 8 + d) * 64 + c;
        const std::int64_t v = k + 64 * 64;
        const char* c_attn = "transformer.h.1.attn.c_attn.weight";  // [in, q|k|v]
        EXPECT_EQ(gpt_kv[static_cast<std::size_t>(k)],
                  stored(gpt_file, c_attn, c * 192 + 64 + head * 8 + d));
        EXPECT_EQ(gpt_kv[static_cast<std::size_t>(v)],
                  stored(gpt_file, c_attn, c * 192 + 128 + head * 8 + d));
        const char* qkv = "transformer.h.1.self_attention.query_key_value.weight";  // [H,3,D,in]
        EXPECT_EQ(bloom_kv[static_cast<std::size_t>(k)],
                  stored(bloom_file, qkv, ((head * 3 + 1) * 8 + d) * 64 + c));
        EXPECT_EQ(bloom_kv[static_cast<std::size_t>(v)],
                  stored(bloom_file, qkv, ((head * 3 + 2) * 8 + d) * 64 + c));
      }
    }
  }
}

TEST(HfSource, AnyRangeIsThatPartOfTheWhole) {
  ORTHANT_NEED_FIXTURES();
  for (const char* name : {"gpt2-tiny", "bloom-tiny", "llama-tiny"}) {
    const ModelConfig model = read_hf_config(kFixtures + name).model;
    const HfSource source(model, kFixtures + name);
    for (const ParamSpec& param : block_params(model, 2)) {
      const std::vector<float> all = read_all(source, param);
      const auto count = static_cast<std::int64_t>(all.size());
      for (std::uint64_t i = 0; i < 20; ++i) {
        const auto words = philox(3, stream_of(param.name), i);
        const std::int64_t first = words[0] % count;
        const std::int64_t size = 1 + words[1] % (count - first);
        std::vector<float> some(static_cast<std::size_t>(size));
        source.read(param, StateKind::kWeight, first, some);
        EXPECT_TRUE(std::equal(some.begin(), some.end(), all.begin() + first))
            << param.name << " " << first << " " << size;
      }
    }
  }
}

TEST(HfSource, MomentsAreZero) {
  ORTHANT_NEED_FIXTURES();
  const ModelConfig model = read_hf_config(kFixtures + "gpt2-tiny").model;
  const HfSource source(model, kFixtures + "gpt2-tiny");
  std::vector<float> values(5, 1.0f);
  source.read(embedding_params(model)[0], StateKind::kExpAvgSq, 3, values);
  EXPECT_EQ(values, std::vector<float>(5, 0.0f));
}

// A folder's tensors in memory, so that tests can spoil them.
struct Weights {
  struct One {
    std::vector<std::byte> bytes;
    Shape shape;
    DType dtype = DType::kF32;
  };
  std::map<std::string, One> tensors;

  explicit Weights(const std::string& folder) {
    const SafetensorsFile file(folder + "/model.safetensors");
    for (const TensorEntry& entry : file.entries()) {
      const auto data = file.data(entry);
      tensors[entry.name] = {.bytes = {data.begin(), data.end()},
                             .shape = Shape(std::span(entry.shape))};
    }
  }
  std::string write(const std::string& name) {
    const std::string folder = test_folder(name);
    std::vector<NamedTensor> named;
    for (auto& [tensor, one] : tensors) {
      named.push_back({tensor, {.data = one.bytes.data(), .shape = one.shape, .dtype = one.dtype}});
    }
    write_safetensors(folder + "/model.safetensors", named);
    return folder;
  }
};

TEST(HfSource, FilesOfTheBaseModelAndOldBuffersAreRead) {
  ORTHANT_NEED_FIXTURES();
  const std::string from = kFixtures + "gpt2-tiny";
  const ModelConfig model = read_hf_config(from).model;
  Weights weights(from);
  std::map<std::string, Weights::One> bare;
  for (auto& [name, one] : weights.tensors) {
    bare[name.substr(std::string("transformer.").size())] = one;
  }
  bare["h.0.attn.bias"] = {
      .bytes = std::vector<std::byte>(16), .shape = {1, 1, 4, 4}, .dtype = DType::kU8};
  bare["h.0.attn.masked_bias"] = {.bytes = std::vector<std::byte>(4), .shape = {}};
  bare["lm_head.weight"] = bare["wte.weight"];
  weights.tensors = bare;
  const std::string folder = weights.write("bare");
  expect_equal(HfSource(model, from), HfSource(model, folder), model);
}

TEST(HfSource, HalfPrecisionIsReadExactly) {
  ORTHANT_NEED_FIXTURES();
  const std::string from = kFixtures + "llama-tiny";
  const ModelConfig model = read_hf_config(from).model;
  Weights weights(from);
  Weights::One& norm = weights.tensors.at("model.norm.weight");
  const std::uint16_t halves[] = {0x3c00, 0xc000, 0x3555, 0x0001, 0x8000, 0x7bff, 0x0400, 0xfc00};
  const float values[] = {1.0f,  -2.0f,    0x1.554p-2f, 0x1p-24f,
                          -0.0f, 65504.0f, 0x1p-14f,    -std::numeric_limits<float>::infinity()};
  norm.dtype = DType::kF16;
  norm.bytes.assign(128, std::byte{0});
  std::memcpy(norm.bytes.data(), halves, sizeof halves);
  const HfSource source(model, weights.write("half"));
  std::vector<float> read(64);
  source.read(final_params(model)[0], StateKind::kWeight, 0, read);
  for (std::size_t i = 0; i < 8; ++i) {
    EXPECT_EQ(read[i], values[i]) << i;
  }
  EXPECT_TRUE(std::signbit(read[4]));
}

TEST(HfSource, MessagesNameTensorAndFile) {
  ORTHANT_NEED_FIXTURES();
  const std::string from = kFixtures + "gpt2-tiny";
  const ModelConfig model = read_hf_config(from).model;
  const auto error_of = [&](const std::string& folder) {
    const std::string message = user_error([&] { HfSource(model, folder); });
    return message.substr(0, folder.size()) == folder ? message.substr(folder.size()) : message;
  };
  Weights missing(from);
  missing.tensors.erase("transformer.h.1.ln_2.bias");
  EXPECT_EQ(error_of(missing.write("missing")),
            " has no tensor 'transformer.h.1.ln_2.bias'; the nearest of its 51 is "
            "'transformer.h.0.ln_2.bias'");
  Weights wrong(from);
  wrong.tensors.at("transformer.wpe.weight").shape = {32, 128};
  EXPECT_EQ(error_of(wrong.write("wrong")),
            "/model.safetensors: tensor 'transformer.wpe.weight' is [32,128], the model needs "
            "[64,64]; check config.json against the weights");
  Weights extra(from);
  extra.tensors["transformer.h.4.ln_1.bias"] = extra.tensors.at("transformer.h.3.ln_1.bias");
  EXPECT_EQ(error_of(extra.write("extra")),
            "/model.safetensors: tensor 'transformer.h.4.ln_1.bias' [64] is none of the model's; "
            "check config.json against the weights");
  Weights integers(from);
  integers.tensors.at("transformer.ln_f.bias").dtype = DType::kI32;
  EXPECT_EQ(error_of(integers.write("integers")),
            "/model.safetensors: tensor 'transformer.ln_f.bias' is I32, but weights are read from "
            "F32, BF16 or F16; convert it");
  Weights untied(from);
  untied.tensors["lm_head.weight"] = untied.tensors.at("transformer.wte.weight");
  untied.tensors["lm_head.weight"].bytes[5] ^= std::byte{1};
  EXPECT_EQ(error_of(untied.write("untied")),
            "/model.safetensors: lm_head.weight differs from the token embedding, though "
            "tie_word_embeddings is true; set it to false in config.json");
}

}  // namespace
}  // namespace orthant
