// Reading and writing one safetensors file.
#include "ckpt/safetensors.h"

#include <algorithm>
#include <cstring>
#include <filesystem>
#include <system_error>
#include <utility>

#include "base/check.h"
#include "base/json.h"
#include "ckpt/safetensors_header.h"

namespace orthant {
namespace {

constexpr std::int64_t kLengthBytes = 8;
constexpr std::int64_t kMaxHeaderBytes = 100'000'000;

struct TypeName {
  DType type;
  std::string_view name;
};
constexpr TypeName kTypeNames[] = {
    {DType::kF32, "F32"}, {DType::kBF16, "BF16"}, {DType::kF16, "F16"}, {DType::kF64, "F64"},
    {DType::kI32, "I32"}, {DType::kI64, "I64"},   {DType::kU8, "U8"},
};

// The header's length, checked against the limit and against the file.
std::int64_t header_bytes(const MappedFile& file) {
  const auto size = static_cast<std::int64_t>(file.bytes().size());
  if (size < kLengthBytes) {
    fail_user("{} has {} bytes, a safetensors file at least {}; it is truncated, fetch it again",
              file.path(), size, kLengthBytes);
  }
  std::uint64_t length = 0;  // little-endian, as this machine is
  std::memcpy(&length, file.bytes().data(), sizeof length);
  if (length > kMaxHeaderBytes) {
    fail_user(
        "{}: the header's length is given as {} bytes, at most {} are allowed; this is no "
        "safetensors file",
        file.path(), length, kMaxHeaderBytes);
  }
  if (static_cast<std::int64_t>(length) > size - kLengthBytes) {
    fail_user(
        "{}: the header's length is given as {} bytes, the file has {} after it; it is "
        "truncated, fetch it again",
        file.path(), length, size - kLengthBytes);
  }
  return static_cast<std::int64_t>(length);
}

// A name as JSON text; a name that is not UTF-8 cannot be written.
std::string quoted(const std::string& text) {
  try {
    return Json(text).dump();
  } catch (const Json::exception&) {
    fail_user("the name '{}' is not UTF-8 and cannot stand in a safetensors file; rename it", text);
  }
}

std::string header_text(const std::vector<TensorEntry>& entries,
                        const SafetensorsMetadata& metadata) {
  std::string text = "{";
  const auto begin_item = [&text] {
    if (text.back() != '{') text += ',';
  };
  if (!metadata.empty()) {
    text += "\"__metadata__\":{";
    for (const auto& [key, value] : metadata) {
      begin_item();
      text += quoted(key) + ":" + quoted(value);
    }
    text += "}";
  }
  for (const TensorEntry& entry : entries) {
    begin_item();
    text +=
        fmt::format(R"({}:{{"dtype":"{}","shape":{},"data_offsets":[{},{}]}})", quoted(entry.name),
                    entry.dtype, Json(entry.shape).dump(), entry.begin, entry.end);
  }
  text += "}";
  text.resize((text.size() + 7) / 8 * 8, ' ');
  return text;
}

}  // namespace

std::optional<DType> dtype_of(const TensorEntry& entry) {
  for (const TypeName& known : kTypeNames) {
    if (known.name == entry.dtype) return known.type;
  }
  return std::nullopt;
}

std::string_view safetensors_dtype(DType type) {
  for (const TypeName& known : kTypeNames) {
    if (known.type == type) return known.name;
  }
  ORTHANT_CHECK(false, "the type {} has no name in safetensors", name_of(type));
  return {};
}

SafetensorsFile::SafetensorsFile(const std::string& path) : file_(path) {
  const std::int64_t length = header_bytes(file_);
  data_offset_ = kLengthBytes + length;
  const auto* json = reinterpret_cast<const char*>(file_.bytes().data()) + kLengthBytes;
  const std::int64_t data_bytes = static_cast<std::int64_t>(file_.bytes().size()) - data_offset_;
  SafetensorsHeader header = parse_safetensors_header(
      std::string_view(json, static_cast<std::size_t>(length)), data_bytes, path);
  metadata_ = std::move(header.metadata);
  entries_ = std::move(header.entries);
  for (std::size_t i = 0; i < entries_.size(); ++i) {
    index_.emplace(entries_[i].name, i);
  }
}

const TensorEntry* SafetensorsFile::find(std::string_view name) const {
  const auto found = index_.find(name);
  return found == index_.end() ? nullptr : &entries_[found->second];
}

std::span<const std::byte> SafetensorsFile::data(const TensorEntry& entry) const {
  return file_.bytes().subspan(static_cast<std::size_t>(data_offset_ + entry.begin),
                               static_cast<std::size_t>(entry.bytes()));
}

SafetensorsLayout::SafetensorsLayout(std::vector<TensorSpec> tensors,
                                     const SafetensorsMetadata& metadata, TensorOrder order) {
  const auto place = [](const TensorSpec& spec) {
    return find_safetensors_type(safetensors_dtype(spec.dtype), spec.name);
  };
  if (order == TensorOrder::kReference) {
    std::sort(tensors.begin(), tensors.end(), [&](const TensorSpec& a, const TensorSpec& b) {
      const int place_a = place(a);
      const int place_b = place(b);
      return place_a != place_b ? place_a > place_b : a.name < b.name;
    });
  }
  std::int64_t end = 0;
  for (TensorSpec& spec : tensors) {
    ORTHANT_CHECK(spec.name != "__metadata__", "a tensor cannot be named __metadata__");
    const std::int64_t bytes =
        safetensors_bytes(safetensors_type(place(spec)), spec.shape, spec.name);
    ORTHANT_CHECK(!__builtin_add_overflow(end, bytes, &end),
                  "tensor '{}' ends at more bytes than can be counted", spec.name);
    entries_.push_back({.name = std::move(spec.name),
                        .dtype = std::string(safetensors_dtype(spec.dtype)),
                        .shape = std::move(spec.shape),
                        .begin = end - bytes,
                        .end = end});
  }
  const std::string text = header_text(entries_, metadata);
  ORTHANT_CHECK(static_cast<std::int64_t>(text.size()) <= kMaxHeaderBytes,
                "the header of {} tensors takes {} bytes, the format allows {}", entries_.size(),
                text.size(), kMaxHeaderBytes);
  const std::uint64_t length = text.size();
  header_.resize(kLengthBytes);
  std::memcpy(header_.data(), &length, kLengthBytes);
  header_ += text;
  const auto data_offset = static_cast<std::int64_t>(header_.size());
  file_bytes_ = data_offset + end;
  for (const TensorEntry& entry : entries_) {
    const bool is_new = offsets_.emplace(entry.name, data_offset + entry.begin).second;
    ORTHANT_CHECK(is_new, "the tensor '{}' is named twice", entry.name);
  }
}

std::int64_t SafetensorsLayout::offset(std::string_view name) const {
  const auto found = offsets_.find(std::string(name));
  ORTHANT_CHECK(found != offsets_.end(), "the layout has no tensor '{}'", name);
  return found->second;
}

File create_safetensors(const std::string& path, const SafetensorsLayout& layout) {
  File file(path, File::Mode::kCreate);
  file.resize(layout.file_bytes());
  file.write(std::as_bytes(std::span(layout.header())), 0);
  return file;
}

void write_safetensors(const std::string& path, std::span<const NamedTensor> tensors,
                       const SafetensorsMetadata& metadata) {
  std::vector<TensorSpec> specs;
  for (const NamedTensor& named : tensors) {
    TensorSpec spec = {.name = named.name, .dtype = named.tensor.dtype, .shape = {}};
    for (int dim = 0; dim < named.tensor.shape.rank(); ++dim) {
      spec.shape.push_back(named.tensor.shape[dim]);
    }
    specs.push_back(std::move(spec));
  }
  const SafetensorsLayout layout(std::move(specs), metadata);
  const std::string partial = path + ".partial";
  std::error_code error;
  try {
    File file = create_safetensors(partial, layout);
    for (const NamedTensor& named : tensors) {
      file.write({named.tensor.data, static_cast<std::size_t>(named.tensor.bytes())},
                 layout.offset(named.name));
    }
    file.sync();
  } catch (const Error&) {
    std::filesystem::remove(partial, error);
    throw;
  }
  std::filesystem::rename(partial, path, error);
  if (error) fail_run("cannot rename {} to {}: {}", partial, path, error.message());
  sync_folder(std::filesystem::path(path).parent_path().string());
}

}  // namespace orthant
