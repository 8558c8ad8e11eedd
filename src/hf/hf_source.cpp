#include "hf/hf_source.h"

#include <algorithm>
#include <cstring>
#include <set>

#include "base/check.h"
#include "base/text.h"

namespace orthant {
namespace {

std::string shape_text(const std::vector<std::int64_t>& shape) {
  std::vector<std::string> parts;
  parts.reserve(shape.size());
  for (const std::int64_t extent : shape) {
    parts.push_back(fmt::format("{}", extent));
  }
  return "[" + join(parts, ",") + "]";
}

// A word of a file, which may lie at any address.
template <class Word>
Word load(const std::byte* data, std::int64_t index) {
  Word word;
  std::memcpy(&word, data + index * static_cast<std::int64_t>(sizeof(Word)), sizeof(Word));
  return word;
}

// Elements begin..begin+into.size()-1 of a part; `element` reads one of the whole tensor. Rows and
// columns are walked in tiles, so that a transposed tensor is read by cache lines.
template <class Element>
void read_part(const HfPart& part, std::int64_t begin, std::span<float> into,
               const Element& element) {
  const bool is_straight = part.col_stride == 1;
  const std::int64_t tile = is_straight ? part.cols : 64;
  const std::int64_t end = begin + static_cast<std::int64_t>(into.size());
  const std::int64_t last_row = (end - 1) / part.cols;
  for (std::int64_t row0 = begin / part.cols; row0 <= last_row; row0 += tile) {
    for (std::int64_t col0 = 0; col0 < part.cols; col0 += tile) {
      for (std::int64_t row = row0; row <= std::min(row0 + tile - 1, last_row); ++row) {
        const std::int64_t row_begin = row * part.cols;
        const std::int64_t from = std::max(row_begin + col0, begin);
        const std::int64_t to = std::min({row_begin + col0 + tile, row_begin + part.cols, end});
        const std::int64_t at =
            part.hf_first + row * part.row_stride + (from - row_begin) * part.col_stride;
        for (std::int64_t i = 0; i < to - from; ++i) {
          into[static_cast<std::size_t>(from - begin + i)] = element(at + i * part.col_stride);
        }
      }
    }
  }
}

void read_part(const HfPart& part, const std::byte* data, DType dtype, std::int64_t begin,
               std::span<float> into) {
  switch (dtype) {
    case DType::kF32:
      return read_part(part, begin, into, [=](std::int64_t i) { return load<float>(data, i); });
    case DType::kBF16:
      return read_part(part, begin, into,
                       [=](std::int64_t i) { return static_cast<float>(load<BFloat16>(data, i)); });
    default:
      return read_part(part, begin, into,
                       [=](std::int64_t i) { return static_cast<float>(load<Half>(data, i)); });
  }
}

}  // namespace

HfSource::HfSource(const ModelConfig& config, const std::string& folder) : folder_(folder) {
  const std::vector<HfTensor> tensors = hf_tensors(config);
  const std::string_view prefix = hf_prefix(config);
  // A file of the base model leaves the prefix out of all names.
  const std::string first_bare = tensors.front().name.substr(prefix.size());
  const std::string_view stripped =
      folder_.has(first_bare) && !folder_.has(tensors.front().name) ? prefix : std::string_view();
  for (const HfTensor& tensor : tensors) {
    const bool is_base = tensor.name.starts_with(prefix);
    const std::string name = is_base ? tensor.name.substr(stripped.size()) : tensor.name;
    add_tensor(tensor, folder_.find(name));
  }
  for (auto& [name, parts] : params_) {
    std::sort(parts.begin(), parts.end(),
              [](const Stored& a, const Stored& b) { return a.part.first < b.part.first; });
  }
  check_others(config, tensors, stripped);
}

void HfSource::add_tensor(const HfTensor& tensor, const SafetensorsFolder::Found& found) {
  const std::string& name = found.entry->name;
  if (found.entry->shape != tensor.shape) {
    fail_user("{}: tensor '{}' is {}, the model needs {}; check config.json against the weights",
              found.file->path(), name, shape_text(found.entry->shape), shape_text(tensor.shape));
  }
  const std::optional<DType> dtype = dtype_of(*found.entry);
  if (dtype != DType::kF32 && dtype != DType::kBF16 && dtype != DType::kF16) {
    fail_user("{}: tensor '{}' is {}, but weights are read from F32, BF16 or F16; convert it",
              found.file->path(), name, found.entry->dtype);
  }
  for (const HfPart& part : tensor.parts) {
    params_[part.param].push_back({.part = part, .data = found.data(), .dtype = *dtype});
  }
}

// Every tensor that the model did not ask for must be one that may be ignored.
void HfSource::check_others(const ModelConfig& config, const std::vector<HfTensor>& tensors,
                            std::string_view stripped) const {
  std::set<std::string, std::less<>> known;
  for (const HfTensor& tensor : tensors) {
    const bool is_base = tensor.name.starts_with(hf_prefix(config));
    known.insert(is_base ? tensor.name.substr(stripped.size()) : tensor.name);
  }
  for (const std::string& name : folder_.names()) {
    if (known.contains(name) || is_hf_buffer(name)) continue;
    const SafetensorsFolder::Found found = folder_.find(name);
    if (name != "lm_head.weight" || !config.tie_embeddings) {
      fail_user("{}: tensor '{}' {} is none of the model's; check config.json against the weights",
                found.file->path(), name, shape_text(found.entry->shape));
    }
    const Stored& table = params_.at("embed.tokens.weight").front();
    const std::span<const std::byte> head = found.data();
    const bool is_same = dtype_of(*found.entry) == table.dtype &&
                         std::equal(head.begin(), head.end(), table.data.begin(), table.data.end());
    if (!is_same) {
      fail_user(
          "{}: lm_head.weight differs from the token embedding, though tie_word_embeddings is "
          "true; set it to false in config.json",
          found.file->path());
    }
  }
}

void HfSource::read(const ParamSpec& param, StateKind state, std::int64_t first,
                    std::span<float> into) const {
  const auto found = params_.find(param.name);
  ORTHANT_CHECK(found != params_.end(), "the model of {} has no parameter '{}'", folder_.path(),
                param.name);
  std::int64_t count = 0;
  for (const Stored& stored : found->second) {
    count += stored.part.count();
  }
  const std::int64_t end = first + static_cast<std::int64_t>(into.size());
  ORTHANT_CHECK(count == param.global.count() && first >= 0 && end <= count,
                "elements {}..{} of '{}' {} are asked, {} has {}", first, end - 1, param.name,
                param.global.text(), folder_.path(), count);
  if (state != StateKind::kWeight) {
    std::fill(into.begin(), into.end(), 0.0f);
    return;
  }
  for (const Stored& stored : found->second) {
    const std::int64_t from = std::max(first, stored.part.first);
    const std::int64_t to = std::min(end, stored.part.first + stored.part.count());
    if (from >= to) continue;
    read_part(
        stored.part, stored.data.data(), stored.dtype, from - stored.part.first,
        into.subspan(static_cast<std::size_t>(from - first), static_cast<std::size_t>(to - from)));
  }
}

}  // namespace orthant
