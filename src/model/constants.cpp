// Rotary frequencies (Su et al., arXiv:2104.09864; LLaMA-3's scaling as in its released config) and
// ALiBi slopes (Press et al., arXiv:2108.12409).
#include <cmath>
#include <vector>

#include "model/build.h"

namespace orthant {
namespace {

// In f32 where Hugging Face's models compute in f32, so that the tables agree to the bit.
std::vector<float> rotary_frequencies(const ModelConfig& config) {
  constexpr double kTwoPi = 6.283185307179586;
  std::vector<float> frequencies;
  for (std::int64_t i = 0; i < config.head_dim; i += 2) {
    const double exponent = static_cast<double>(i) / static_cast<double>(config.head_dim);
    const float plain = 1.0f / static_cast<float>(std::pow(config.rope_base, exponent));
    if (config.rope_scaling != "llama3") {
      frequencies.push_back(plain);
      continue;
    }
    const double original = static_cast<double>(config.rope_original_positions);
    const double wavelength = kTwoPi / plain;
    const double low = config.rope_low_freq_factor;
    const double high = config.rope_high_freq_factor;
    if (wavelength < original / high) {
      frequencies.push_back(plain);
    } else if (wavelength > original / low) {
      frequencies.push_back(static_cast<float>(plain / config.rope_factor));
    } else {
      const double blend = (original / wavelength - low) / (high - low);
      frequencies.push_back(
          static_cast<float>((1 - blend) * plain / config.rope_factor + blend * plain));
    }
  }
  return frequencies;
}

// The largest power of two of heads gets a geometric series; the rest every other term of the next
// finer one.
std::vector<float> alibi_slopes(std::int64_t heads) {
  std::int64_t power = 1;
  while (power * 2 <= heads) {
    power *= 2;
  }
  const auto base_for = [](std::int64_t count) {
    return std::exp2(-8.0 / static_cast<double>(count));
  };
  std::vector<float> slopes;
  for (std::int64_t i = 1; i <= power; ++i) {
    slopes.push_back(static_cast<float>(std::pow(base_for(power), static_cast<double>(i))));
  }
  for (std::int64_t i = 1; static_cast<std::int64_t>(slopes.size()) < heads; i += 2) {
    slopes.push_back(static_cast<float>(std::pow(base_for(2 * power), static_cast<double>(i))));
  }
  return slopes;
}

Tensor fill(Device& device, Arena& arena, std::span<const float> values) {
  const Tensor table =
      arena.alloc({static_cast<std::int64_t>(values.size())}, DType::kF32, MemClass::kParameters);
  device.to_device(table, std::as_bytes(values));
  return table;
}

}  // namespace

Constants make_constants(const ModelConfig& config, const Mesh& mesh, Device& device,
                         Arena& arena) {
  Constants constants;
  if (config.position == "rope")
    constants.inv_freq = fill(device, arena, rotary_frequencies(config));
  if (config.position == "alibi") {
    const std::vector<float> slopes = alibi_slopes(config.heads);
    const std::size_t here = slopes.size() / static_cast<std::size_t>(mesh.size(Axis::kTp));
    constants.slopes = fill(
        device, arena,
        std::span(slopes).subspan(here * static_cast<std::size_t>(mesh.coord(Axis::kTp)), here));
  }
  return constants;
}

}  // namespace orthant
