#include "ckpt/state_files.h"

#include <algorithm>
#include <array>
#include <cstring>
#include <filesystem>
#include <map>
#include <utility>

#include "base/check.h"
#include "ckpt/checksum.h"

namespace orthant {
namespace {

constexpr const char* kExpAvg = ".exp_avg";
constexpr const char* kExpAvgSq = ".exp_avg_sq";

std::string tensor_name(const std::string& param, StateKind state) {
  switch (state) {
    case StateKind::kWeight: return param;
    case StateKind::kExpAvg: return param + kExpAvg;
    case StateKind::kExpAvgSq: return param + kExpAvgSq;
  }
  return param;
}

std::vector<std::int64_t> dims_of(const Shape& shape) {
  std::vector<std::int64_t> dims;
  dims.reserve(static_cast<std::size_t>(shape.rank()));
  for (int i = 0; i < shape.rank(); ++i) {
    dims.push_back(shape[i]);
  }
  return dims;
}

// Tensors of a file may begin at any address.
std::uint64_t checksum_of(std::span<const std::byte> tensor) {
  std::array<float, 4096> values;
  const std::size_t count = tensor.size() / sizeof(float);
  std::uint64_t sum = 0;
  for (std::size_t done = 0; done < count; done += values.size()) {
    const std::span<float> some = std::span(values).first(std::min(values.size(), count - done));
    std::memcpy(some.data(), tensor.data() + done * sizeof(float), some.size_bytes());
    sum += checksum(some, static_cast<std::int64_t>(done));
  }
  return sum;
}

}  // namespace

std::string unit_of(const std::string& param) {
  const std::size_t dot = param.find('.');
  if (param.substr(0, dot) != "h") return param.substr(0, dot);
  return param.substr(0, param.find('.', dot + 1));
}

StateFiles::StateFiles(const std::vector<ParamSpec>& params, StateSet set) {
  std::vector<std::string> order;
  std::map<std::string, std::vector<TensorSpec>> by_unit;
  for (const ParamSpec& param : params) {
    const std::string unit = unit_of(param.name);
    if (!by_unit.contains(unit)) order.push_back(unit);
    for (const StateKind state : {StateKind::kWeight, StateKind::kExpAvg, StateKind::kExpAvgSq}) {
      if (set == StateSet::kWeights && state != StateKind::kWeight) continue;
      const std::string name = tensor_name(param.name, state);
      by_unit[unit].push_back({name, DType::kF32, dims_of(param.global)});
      places_[name] = tensors_.size();
      tensors_.push_back(name);
    }
  }
  for (const std::string& unit : order) {
    files_.push_back({unit + ".safetensors", SafetensorsLayout(std::move(by_unit[unit]))});
  }
}

void StateFiles::create(const std::string& folder) const {
  for (const OneFile& file : files_) {
    create_safetensors(folder + "/" + file.name, file.layout);
  }
}

std::vector<std::pair<std::string, std::int64_t>> StateFiles::files() const {
  std::vector<std::pair<std::string, std::int64_t>> all;
  for (const OneFile& file : files_) {
    all.emplace_back(file.name, file.layout.file_bytes());
  }
  return all;
}

const StateFiles::OneFile& StateFiles::file_of(const std::string& param) const {
  const std::string name = unit_of(param) + ".safetensors";
  const auto found = std::find_if(files_.begin(), files_.end(),
                                  [&name](const OneFile& f) { return f.name == name; });
  ORTHANT_CHECK(found != files_.end(), "no checkpoint file has parameter {}", param);
  return *found;
}

StateWriter::StateWriter(const StateFiles& files, std::string folder)
    : files_(files),
      folder_(std::move(folder)),
      checksums_(files.tensors().size()) {}

File& StateWriter::open(const std::string& name) {
  const auto found = std::find_if(open_.begin(), open_.end(),
                                  [&name](const auto& file) { return file.first == name; });
  if (found != open_.end()) return found->second;
  return open_.emplace_back(name, File(folder_ + "/" + name, File::Mode::kWrite)).second;
}

void StateWriter::write(const Piece& piece, StateKind state, std::span<const float> values) {
  ORTHANT_CHECK(static_cast<std::int64_t>(values.size()) == piece.count,
                "{} values for a piece of {}", values.size(), piece.count);
  const StateFiles::OneFile& file = files_.file_of(piece.name);
  const std::string name = tensor_name(piece.name, state);
  const std::int64_t offset = file.layout.offset(name);
  std::uint64_t& sum = checksums_[files_.places_.at(name)];
  File& out = open(file.name);
  for (const Run& run : runs_of(piece)) {
    const auto part =
        values.subspan(static_cast<std::size_t>(run.local), static_cast<std::size_t>(run.count));
    out.write(std::as_bytes(part), offset + run.global * static_cast<std::int64_t>(sizeof(float)));
    sum += checksum(part, run.global);
  }
}

void StateWriter::sync() {
  for (auto& [name, file] : open_) {
    file.sync();
  }
}

StateSource::StateSource(const std::string& folder, const std::vector<std::string>& names,
                         std::map<std::string, std::uint64_t> checksums)
    : folder_(folder),
      checksums_(std::move(checksums)) {
  for (const std::string& name : names) {
    files_.emplace_back(std::filesystem::path(folder) / name);
    for (const TensorEntry& entry : files_.back().entries()) {
      if (entry.dtype != "F32") {
        fail_user("{}: tensor {} is {}; F32 was expected", files_.back().path(), entry.name,
                  entry.dtype);
      }
      tensors_[entry.name] = files_.back().data(entry);
    }
  }
}

void StateSource::verify(const Verify& what) const {
  int number = 0;
  for (const auto& [name, expected] : checksums_) {
    if (number++ % what.parts != what.part) continue;
    if (!what.has_moments && (name.ends_with(kExpAvg) || name.ends_with(kExpAvgSq))) continue;
    const auto found = tensors_.find(name);
    if (found == tensors_.end()) {
      fail_user(
          "checkpoint {} has no tensor {}, of which its manifest has a checksum; restore its "
          "files or remove it",
          folder_, name);
    }
    const std::uint64_t sum = checksum_of(found->second);
    if (sum != expected) {
      fail_user(
          "checkpoint {}: tensor {} has changed since it was written (checksum {:016x}, the "
          "manifest has {:016x}); remove this checkpoint, so that the one before it is used, or "
          "restore "
          "{}.safetensors",
          folder_, name, sum, expected, unit_of(name));
    }
  }
}

void StateSource::read(const ParamSpec& param, StateKind state, std::int64_t first,
                       std::span<float> into) const {
  const auto found = tensors_.find(tensor_name(param.name, state));
  if (found == tensors_.end()) {
    if (state == StateKind::kWeight ||
        tensors_.contains(tensor_name("embed.tokens.weight", state))) {
      fail_user("checkpoint {} has no tensor {}; it is of another model", folder_,
                tensor_name(param.name, state));
    }
    std::fill(into.begin(), into.end(), 0.0f);
    return;
  }
  const auto bytes = static_cast<std::int64_t>(found->second.size());
  if (bytes != param.global.count() * static_cast<std::int64_t>(sizeof(float))) {
    fail_user("checkpoint {}: {} has {} bytes, the model needs {} f32; it is of another model",
              folder_, param.name, bytes, param.global.text());
  }
  std::memcpy(into.data(), found->second.data() + first * static_cast<std::int64_t>(sizeof(float)),
              into.size_bytes());
}

}  // namespace orthant
