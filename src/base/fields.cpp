// The type-erased half of config structs: lookup, errors for unknown names, values as text.
#include "base/fields.h"

#include <algorithm>
#include <array>

#include <fmt/core.h>

#include "base/check.h"
#include "base/text.h"

namespace orthant {
namespace {

struct KindText {
  std::string_view type;
  std::string_view example;
};

// In the order of FieldPointer.
constexpr std::array<KindText, std::variant_size_v<FieldPointer>> kKinds = {{
    {"an integer", "8"},
    {"an integer", "8"},
    {"a number", "0.1"},
    {"true or false", "true"},
    {"text", "\"word\""},
    {"a list of texts", "[\"one\", \"two\"]"},
    {"a list of numbers", "[0.7, 0.3]"},
    {"a list of lists of integers", "[[1, 16], [100, 32]]"},
    {"text or a list of integers", "[3, 4, 4, 3]"},
}};

std::string text_of(std::int64_t value) {
  return fmt::format("{}", value);
}
std::string text_of(int value) {
  return fmt::format("{}", value);
}
std::string text_of(bool value) {
  return value ? "true" : "false";
}

std::string text_of(double value) {
  std::string text = fmt::format("{}", value);
  // TOML's floats have a point or an exponent; inf and nan are written as they are.
  const bool is_whole = text.find_first_not_of("-0123456789") == std::string::npos;
  return is_whole ? text + ".0" : text;
}

std::string text_of(const std::string& value) {
  std::string text = "\"";
  for (const char c : value) {
    const auto byte = static_cast<unsigned char>(c);
    if (c == '"' || c == '\\') {
      text += '\\';
      text += c;
    } else if (c == '\n') {
      text += "\\n";
    } else if (c == '\t') {
      text += "\\t";
    } else if (byte < 0x20 || byte == 0x7f) {
      text += fmt::format("\\u{:04X}", byte);
    } else {
      text += c;
    }
  }
  return text + "\"";
}

template <class T>
std::string text_of(const std::vector<T>& values) {
  std::vector<std::string> parts;
  parts.reserve(values.size());
  for (const T& value : values) {
    parts.push_back(text_of(value));
  }
  return "[" + join(parts) + "]";
}

std::string text_of(const TextOrInts& value) {
  return value.is_text() ? text_of(value.text) : text_of(value.ints);
}

std::string heading(std::string_view section) {
  return section.empty() ? std::string("the top level") : fmt::format("[{}]", section);
}

}  // namespace

void FieldList::add_field(std::string_view section, std::string_view key, std::string_view help,
                          FieldPointer value) {
  FieldRef field = {std::string(section), std::string(key), std::string(help), value, ""};
  ORTHANT_CHECK(find(section, key) == nullptr, "the option {} is named twice", field.name());
  fields_.push_back(std::move(field));
}

std::vector<std::string> FieldList::sections() const {
  std::vector<std::string> names;
  for (const FieldRef& field : fields_) {
    if (std::find(names.begin(), names.end(), field.section) == names.end()) {
      names.push_back(field.section);
    }
  }
  return names;
}

std::vector<std::string> FieldList::keys(std::string_view section) const {
  std::vector<std::string> names;
  for (const FieldRef& field : fields_) {
    if (field.section == section) names.push_back(field.key);
  }
  return names;
}

FieldRef* FieldList::find(std::string_view section, std::string_view key) {
  const auto found = std::find_if(fields_.begin(), fields_.end(), [&](const FieldRef& field) {
    return field.section == section && field.key == key;
  });
  return found == fields_.end() ? nullptr : &*found;
}

bool FieldList::is_given(std::string_view name) const {
  const auto found = std::find_if(fields_.begin(), fields_.end(),
                                  [&](const FieldRef& field) { return field.name() == name; });
  ORTHANT_CHECK(found != fields_.end(), "there is no option {}", name);
  return !found->given.empty();
}

void FieldList::forget_given() {
  for (FieldRef& field : fields_) {
    field.given.clear();
  }
}

std::string_view type_text(const FieldPointer& field) {
  return kKinds[field.index()].type;
}

std::string_view example_text(const FieldPointer& field) {
  return kKinds[field.index()].example;
}

std::string value_text(const FieldPointer& field) {
  return std::visit([](const auto* value) { return text_of(*value); }, field);
}

void fail_unknown_key(const FieldList& fields, std::string_view section, std::string_view key,
                      std::string_view where) {
  const std::vector<std::string> sections = fields.sections();
  for (const std::string& other : sections) {
    const std::vector<std::string> keys = fields.keys(other);
    if (other != section && std::find(keys.begin(), keys.end(), key) != keys.end()) {
      fail_user("'{}' ({}) is not an option of {}; it belongs to {}", key, where, heading(section),
                heading(other));
    }
  }
  const std::vector<std::string> keys = fields.keys(section);
  if (keys.empty()) {
    fail_user("'{}' ({}) stands outside of every section; sections are {}", key, where,
              join(sections));
  }
  fail_user("'{}' ({}) is not an option of {}; did you mean '{}'?", key, where, heading(section),
            nearest(key, keys));
}

void fail_unknown_section(const FieldList& fields, std::string_view section,
                          std::string_view where) {
  const std::vector<std::string> sections = fields.sections();
  fail_user("[{}] ({}) is not a section; did you mean [{}]? Sections are {}", section, where,
            nearest(section, sections), join(sections));
}

std::string help_text(const FieldList& fields) {
  std::size_t option_width = 0;
  std::size_t value_width = 0;
  for (const FieldRef& field : fields.all()) {
    option_width = std::max(option_width, field.name().size());
    value_width = std::max(value_width, std::min<std::size_t>(value_text(field.value).size(), 16));
  }
  std::string text;
  for (const std::string& section : fields.sections()) {
    if (!text.empty()) text += "\n";
    if (!section.empty()) text += fmt::format("[{}]\n", section);
    for (const FieldRef& field : fields.all()) {
      if (field.section != section) continue;
      text += fmt::format("  --{:<{}}  {:<{}}  {}\n", field.name(), option_width,
                          value_text(field.value), value_width, field.help);
    }
  }
  return text;
}

}  // namespace orthant
