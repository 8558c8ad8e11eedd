// A SAX handler, so that memory stays a small multiple of the header and nesting has no depth.
#include "ckpt/safetensors_header.h"

#include <algorithm>
#include <array>
#include <limits>
#include <unordered_set>
#include <utility>

#include <fmt/ranges.h>

#include "base/check.h"
#include "base/json.h"
#include "base/text.h"

namespace orthant {
namespace {

// In the reference's order of types.
constexpr std::array<SafetensorsType, 22> kTypes = {{
    {"BOOL", 8},        {"F4", 4},      {"F6_E2M3", 6}, {"F6_E3M2", 6}, {"U8", 8},
    {"I8", 8},          {"F8_E5M2", 8}, {"F8_E4M3", 8}, {"F8_E8M0", 8}, {"F8_E4M3FNUZ", 8},
    {"F8_E5M2FNUZ", 8}, {"I16", 16},    {"U16", 16},    {"F16", 16},    {"BF16", 16},
    {"I32", 32},        {"U32", 32},    {"F32", 32},    {"C64", 64},    {"F64", 64},
    {"I64", 64},        {"U64", 64},
}};

// Where the parser stands. Arrays and objects elsewhere are refused, so no stack is needed.
enum class Place { kStart, kRoot, kMetadata, kEntry, kShape, kOffsets, kEnd };

class HeaderHandler final : public nlohmann::json_sax<Json> {
 public:
  HeaderHandler(const std::string& path, SafetensorsHeader& header)
      : path_(path),
        header_(header) {}

  bool key(string_t& name) override;
  bool string(string_t& text) override;
  bool number_unsigned(number_unsigned_t number) override;
  bool number_integer(number_integer_t number) override {
    refuse(fmt::format("the negative number {}", number));
  }
  bool number_float(number_float_t, const string_t& text) override { refuse("the number " + text); }
  bool boolean(bool value) override { refuse(value ? "true" : "false"); }
  bool null() override { refuse("null"); }
  bool binary(binary_t&) override { refuse("binary data"); }
  bool start_object(std::size_t) override;
  bool end_object() override;
  bool start_array(std::size_t) override;
  bool end_array() override;
  bool parse_error(std::size_t position, const std::string&, const Json::exception&) override {
    fail_user(
        "{}: the header is not JSON at its byte {}; the file is damaged or no safetensors "
        "file, fetch it again",
        path_, position);
  }

 private:
  // What the parser stands at, for messages.
  std::string what() const {
    if (place_ == Place::kStart) return path_;
    if (place_ == Place::kMetadata || (place_ == Place::kRoot && key_ == "__metadata__")) {
      return path_ + ": __metadata__";
    }
    return fmt::format("{}: tensor '{}'", path_, entry_.name);
  }
  std::string_view wanted() const;
  [[noreturn]] void refuse(const std::string& found) const {
    fail_user("{} has {} where {} must be; the file is damaged or no safetensors file", what(),
              found, wanted());
  }
  void finish_entry();

  const std::string& path_;
  SafetensorsHeader& header_;
  Place place_ = Place::kStart;
  std::string key_;
  std::unordered_set<std::string> names_;
  bool has_metadata_ = false;
  TensorEntry entry_;
  bool has_dtype_ = false;
  bool has_shape_ = false;
  bool has_offsets_ = false;
  std::vector<std::int64_t> offsets_;
};

std::string_view HeaderHandler::wanted() const {
  switch (place_) {
    case Place::kMetadata: return "text";
    case Place::kShape: return "a dimension";
    case Place::kOffsets: return "an offset";
    case Place::kEntry:
      return key_ == "dtype"   ? "the name of a type"
             : key_ == "shape" ? "a list of dimensions"
                               : "a pair of offsets";
    default: return "an object";
  }
}

bool HeaderHandler::key(string_t& name) {
  key_ = name;
  if (place_ == Place::kRoot) {
    if (name == "__metadata__") {
      if (has_metadata_) fail_user("{} has __metadata__ twice; write the file again", path_);
      has_metadata_ = true;
      return true;
    }
    if (!names_.insert(name).second) {
      fail_user("{} has the tensor '{}' twice; write the file again", path_, name);
    }
    entry_ = {.name = name, .dtype = "", .shape = {}, .begin = 0, .end = 0};
    has_dtype_ = has_shape_ = has_offsets_ = false;
  } else if (place_ == Place::kMetadata) {
    if (header_.metadata.contains(name)) {
      fail_user("{} has the key '{}' twice; write the file again", what(), name);
    }
  } else {
    bool* seen = name == "dtype"          ? &has_dtype_
                 : name == "shape"        ? &has_shape_
                 : name == "data_offsets" ? &has_offsets_
                                          : nullptr;
    if (seen == nullptr) {
      fail_user("{} has the key '{}'; only dtype, shape and data_offsets are known", what(), name);
    }
    if (*seen) fail_user("{} has {} twice; write the file again", what(), name);
    *seen = true;
  }
  return true;
}

bool HeaderHandler::string(string_t& text) {
  if (place_ == Place::kMetadata) {
    header_.metadata.emplace(key_, text);
  } else if (place_ == Place::kEntry && key_ == "dtype") {
    entry_.dtype = text;
  } else {
    refuse("text");
  }
  return true;
}

bool HeaderHandler::number_unsigned(number_unsigned_t number) {
  if (place_ != Place::kShape && place_ != Place::kOffsets) {
    refuse(fmt::format("the number {}", number));
  }
  if (!std::in_range<std::int64_t>(number)) {
    fail_user("{} has the number {} in {}; the largest is {}", what(), number, key_,
              std::numeric_limits<std::int64_t>::max());
  }
  (place_ == Place::kShape ? entry_.shape : offsets_).push_back(static_cast<std::int64_t>(number));
  return true;
}

bool HeaderHandler::start_object(std::size_t) {
  if (place_ == Place::kStart) {
    place_ = Place::kRoot;
  } else if (place_ == Place::kRoot) {
    place_ = key_ == "__metadata__" ? Place::kMetadata : Place::kEntry;
    // Before its first key an entry stands at no key of its own.
    key_ = place_ == Place::kEntry ? std::string() : key_;
  } else {
    refuse("an object");
  }
  return true;
}

bool HeaderHandler::end_object() {
  if (place_ == Place::kEntry) finish_entry();
  place_ = place_ == Place::kRoot ? Place::kEnd : Place::kRoot;
  return true;
}

bool HeaderHandler::start_array(std::size_t) {
  if (place_ != Place::kEntry || key_ == "dtype") refuse("a list");
  place_ = key_ == "shape" ? Place::kShape : Place::kOffsets;
  offsets_.clear();
  return true;
}

bool HeaderHandler::end_array() {
  if (place_ == Place::kOffsets) {
    if (offsets_.size() != 2) {
      fail_user("{} has {} data_offsets; a begin and an end must be there", what(),
                offsets_.size());
    }
    entry_.begin = offsets_[0];
    entry_.end = offsets_[1];
  }
  place_ = Place::kEntry;
  return true;
}

void HeaderHandler::finish_entry() {
  for (const auto& [has, name] : {std::pair(has_dtype_, "dtype"), std::pair(has_shape_, "shape"),
                                  std::pair(has_offsets_, "data_offsets")}) {
    if (!has) fail_user("{} has no {}; write the file again", what(), name);
  }
  const SafetensorsType type = safetensors_type(find_safetensors_type(entry_.dtype, what()));
  const std::int64_t bytes = safetensors_bytes(type, entry_.shape, what());
  if (entry_.begin > entry_.end) {
    fail_user("{} has data_offsets [{}, {}]; the end must not lie before the begin", what(),
              entry_.begin, entry_.end);
  }
  if (entry_.bytes() != bytes) {
    fail_user(
        "{} {} [{}] takes {} bytes, but its data_offsets [{}, {}] give {}; write the file "
        "again",
        what(), entry_.dtype, fmt::join(entry_.shape, ","), bytes, entry_.begin, entry_.end,
        entry_.bytes());
  }
  header_.entries.push_back(std::move(entry_));
}

void check_coverage(const std::vector<TensorEntry>& entries, std::int64_t data_bytes,
                    const std::string& path) {
  std::int64_t covered = 0;
  const std::string* before = nullptr;
  for (const TensorEntry& entry : entries) {
    if (entry.begin < covered) {
      fail_user(
          "{}: tensor '{}' begins at byte {} of the data, inside tensor '{}'; write the file "
          "again",
          path, entry.name, entry.begin, *before);
    }
    if (entry.begin > covered) {
      fail_user(
          "{}: no tensor covers bytes {} to {} of the data, before tensor '{}'; write the "
          "file again",
          path, covered, entry.begin - 1, entry.name);
    }
    if (entry.end > data_bytes) {
      fail_user(
          "{}: tensor '{}' ends at byte {} of the data, but the file holds {}; it is "
          "truncated, fetch it again",
          path, entry.name, entry.end, data_bytes);
    }
    covered = entry.end;
    before = &entry.name;
  }
  if (covered != data_bytes) {
    fail_user(
        "{}: no tensor covers the last {} bytes; they do not belong to the file, fetch it "
        "again",
        path, data_bytes - covered);
  }
}

}  // namespace

int find_safetensors_type(std::string_view name, const std::string& what) {
  for (std::size_t i = 0; i < kTypes.size(); ++i) {
    if (kTypes[i].name == name) return static_cast<int>(i);
  }
  std::vector<std::string> known;
  known.reserve(kTypes.size());
  for (const SafetensorsType& type : kTypes) {
    known.emplace_back(type.name);
  }
  fail_user("{} has the type '{}', which the format does not know; known are {}", what, name,
            join(known));
}

SafetensorsType safetensors_type(int place) {
  return kTypes[static_cast<std::size_t>(place)];
}

std::int64_t safetensors_bytes(const SafetensorsType& type, const std::vector<std::int64_t>& shape,
                               const std::string& what) {
  std::int64_t bits = type.bits;
  for (const std::int64_t dim : shape) {
    ORTHANT_CHECK(dim >= 0, "{} has the dimension {}", what, dim);
    if (__builtin_mul_overflow(bits, dim, &bits)) {
      fail_user("{} {} [{}] has more bytes than can be counted; write the file again", what,
                type.name, fmt::join(shape, ","));
    }
  }
  if (bits % 8 != 0) {
    fail_user("{} {} [{}] ends inside a byte; its elements must fill whole bytes", what, type.name,
              fmt::join(shape, ","));
  }
  return bits / 8;
}

SafetensorsHeader parse_safetensors_header(std::string_view json, std::int64_t data_bytes,
                                           const std::string& path) {
  if (json.empty() || json[0] != '{') {
    fail_user("{}: the header does not begin with '{{'; this is no safetensors file", path);
  }
  // The JSON library takes a zero byte for the end of its input.
  if (const std::size_t zero = json.find('\0'); zero != json.npos) {
    fail_user("{}: the header is not JSON at its byte {}; the file is damaged, fetch it again",
              path, zero + 1);
  }
  SafetensorsHeader header;
  HeaderHandler handler(path, header);
  const bool parsed = Json::sax_parse(json, &handler);
  ORTHANT_CHECK(parsed, "{}: the header was left half-read", path);
  std::sort(header.entries.begin(), header.entries.end(),
            [](const TensorEntry& a, const TensorEntry& b) {
              return std::pair(a.begin, a.end) < std::pair(b.begin, b.end);
            });
  check_coverage(header.entries, data_bytes, path);
  return header;
}

}  // namespace orthant
