// The only file that sees toml++.
#include "base/toml.h"

#include <cmath>
#include <limits>
#include <optional>
#include <utility>

#include <toml++/toml.h>

#include "base/check.h"
#include "base/file.h"

namespace orthant {
namespace {

std::string describe(const toml::node& node) {
  switch (node.type()) {
    case toml::node_type::string: return fmt::format("the text '{}'", **node.as_string());
    case toml::node_type::integer: return fmt::format("the integer {}", **node.as_integer());
    case toml::node_type::floating_point:
      return fmt::format("the number {}", **node.as_floating_point());
    case toml::node_type::boolean: return **node.as_boolean() ? "true" : "false";
    case toml::node_type::array: return "a list";
    case toml::node_type::table: return "a table";
    default: return "a date or time";
  }
}

// One value of the file that is to become a field.
struct Assignment {
  FieldRef& field;
  std::string where;

  [[noreturn]] void fail_type(const std::string& found) const {
    fail_user("{} ({}) is {}, but must be {}, for example {} = {}", field.name(), where, found,
              type_text(field.value), field.key, example_text(field.value));
  }
};

std::int64_t read_int(const Assignment& to, const toml::node& node, const char* in_list) {
  if (!node.is_integer()) to.fail_type(in_list + describe(node));
  return **node.as_integer();
}

double read_double(const Assignment& to, const toml::node& node, const char* in_list) {
  const std::optional<double> value = node.is_integer() ? static_cast<double>(**node.as_integer())
                                      : node.is_floating_point()
                                          ? std::optional<double>(**node.as_floating_point())
                                          : std::nullopt;
  if (!value.has_value()) to.fail_type(in_list + describe(node));
  if (!std::isfinite(*value)) {
    fail_user("{} ({}) is {}{}, but must be finite; give a number such as {}", to.field.name(),
              to.where, in_list, *value, example_text(to.field.value));
  }
  return *value;
}

constexpr const char* kInList = "a list with ";

std::vector<std::int64_t> read_ints(const Assignment& to, const toml::array& array) {
  std::vector<std::int64_t> values;
  for (const toml::node& node : array) {
    values.push_back(read_int(to, node, kInList));
  }
  return values;
}

void assign(const Assignment& to, const toml::node& node, std::int64_t& value) {
  value = read_int(to, node, "");
}

void assign(const Assignment& to, const toml::node& node, int& value) {
  const std::int64_t wide = read_int(to, node, "");
  if (!std::in_range<int>(wide)) {
    fail_user("{} ({}) is {}, but must lie between {} and {}; give a smaller number",
              to.field.name(), to.where, wide, std::numeric_limits<int>::min(),
              std::numeric_limits<int>::max());
  }
  value = static_cast<int>(wide);
}

void assign(const Assignment& to, const toml::node& node, double& value) {
  value = read_double(to, node, "");
}

void assign(const Assignment& to, const toml::node& node, bool& value) {
  if (!node.is_boolean()) to.fail_type(describe(node));
  value = **node.as_boolean();
}

void assign(const Assignment& to, const toml::node& node, std::string& value) {
  if (!node.is_string()) to.fail_type(describe(node));
  value = **node.as_string();
}

void assign(const Assignment& to, const toml::node& node, std::vector<std::string>& value) {
  if (node.is_string()) {  // One text is a list of one.
    value = {**node.as_string()};
    return;
  }
  if (!node.is_array()) to.fail_type(describe(node));
  std::vector<std::string> values;
  for (const toml::node& element : *node.as_array()) {
    if (!element.is_string()) to.fail_type(kInList + describe(element));
    values.push_back(**element.as_string());
  }
  value = std::move(values);
}

void assign(const Assignment& to, const toml::node& node, std::vector<double>& value) {
  if (!node.is_array()) to.fail_type(describe(node));
  std::vector<double> values;
  for (const toml::node& element : *node.as_array()) {
    values.push_back(read_double(to, element, kInList));
  }
  value = std::move(values);
}

void assign(const Assignment& to, const toml::node& node,
            std::vector<std::vector<std::int64_t>>& value) {
  if (!node.is_array()) to.fail_type(describe(node));
  std::vector<std::vector<std::int64_t>> values;
  for (const toml::node& element : *node.as_array()) {
    if (!element.is_array()) to.fail_type(kInList + describe(element));
    values.push_back(read_ints(to, *element.as_array()));
  }
  value = std::move(values);
}

void assign(const Assignment& to, const toml::node& node, TextOrInts& value) {
  if (node.is_string()) {
    value = {.text = **node.as_string(), .ints = {}};
    return;
  }
  if (!node.is_array() || node.as_array()->empty()) {
    to.fail_type(node.is_array() ? "an empty list" : describe(node));
  }
  value = {.text = "", .ints = read_ints(to, *node.as_array())};
}

void assign_field(FieldRef& field, const toml::node& node, const std::string& where) {
  const Assignment to = {field, where};
  std::visit([&](auto* value) { assign(to, node, *value); }, field.value);
  field.given = where;
}

std::string place(const std::string& source, const toml::source_region& region) {
  return fmt::format("{} line {}", source, region.begin.line);
}

void read_section(FieldList& fields, const std::string& section, const toml::table& table,
                  const std::string& source) {
  for (auto&& [key, node] : table) {
    const std::string where = place(source, key.source());
    FieldRef* field = fields.find(section, key.str());
    if (field == nullptr) fail_unknown_key(fields, section, key.str(), where);
    assign_field(*field, node, where);
  }
}

bool is_section(const FieldList& fields, std::string_view name) {
  return !name.empty() && !fields.keys(name).empty();
}

// The value of "--a.b=value" as TOML, if it is that and nothing more.
std::optional<toml::table> parse_value(std::string_view text) {
  if (text.find_first_of("\r\n#") != std::string_view::npos) return std::nullopt;
  try {
    return toml::parse(fmt::format("value = {}", text));
  } catch (const toml::parse_error&) {
    return std::nullopt;
  }
}

void assign_override(FieldRef& field, std::string_view text, const std::string& where) {
  const bool is_text = std::holds_alternative<std::string*>(field.value);
  const bool is_list =
      std::holds_alternative<std::vector<double>*>(field.value) ||
      std::holds_alternative<std::vector<std::vector<std::int64_t>>*>(field.value) ||
      std::holds_alternative<TextOrInts*>(field.value);
  std::optional<toml::table> parsed = parse_value(text);
  if (!parsed.has_value() && is_list) parsed = parse_value(fmt::format("[{}]", text));
  const toml::node* node = parsed.has_value() ? parsed->get("value") : nullptr;
  const bool takes_raw = node == nullptr || (is_text && !node->is_string());
  const toml::value<std::string> raw{std::string(text)};
  assign_field(field, takes_raw ? static_cast<const toml::node&>(raw) : *node, where);
}

}  // namespace

void read_toml(FieldList& fields, std::string_view text, const std::string& source) {
  toml::table root;
  try {
    root = toml::parse(text, source);
  } catch (const toml::parse_error& error) {
    fail_user("{} is not TOML: {}; correct that line", place(source, error.source()),
              error.description());
  }
  for (auto&& [key, node] : root) {
    const std::string name(key.str());
    const std::string where = place(source, key.source());
    if (FieldRef* field = fields.find("", name); field != nullptr) {
      assign_field(*field, node, where);
    } else if (is_section(fields, name)) {
      if (!node.is_table()) {
        fail_user("{} ({}) is {}, but is a section; write [{}] and its keys below", name, where,
                  describe(node), name);
      }
      read_section(fields, name, *node.as_table(), source);
    } else if (node.is_table()) {
      fail_unknown_section(fields, name, where);
    } else {
      fail_unknown_key(fields, "", name, where);
    }
  }
}

void read_toml_file(FieldList& fields, const std::string& path) {
  read_toml(fields, read_text_file(path), path);
}

void apply_override(FieldList& fields, std::string_view argument) {
  const std::string where(argument);
  const std::string_view body = argument.substr(argument.starts_with("--") ? 2 : 0);
  const std::size_t equals = body.find('=');
  const std::string_view name = body.substr(0, equals);
  const std::size_t dot = name.find('.');
  const std::string_view section = dot == name.npos ? std::string_view() : name.substr(0, dot);
  const std::string_view key = dot == name.npos ? name : name.substr(dot + 1);
  FieldRef* field = fields.find(section, key);
  if (field == nullptr) {
    if (dot != name.npos && !is_section(fields, section)) {
      fail_unknown_section(fields, section, where);
    }
    fail_unknown_key(fields, section, key, where);
  }
  if (equals == body.npos) {
    fail_user("{} has no value; write --{}={}", where, name, example_text(field->value));
  }
  assign_override(*field, body.substr(equals + 1), where);
}

std::string to_toml(const FieldList& fields) {
  std::string text;
  for (const std::string& section : fields.sections()) {
    if (!text.empty()) text += "\n";
    if (!section.empty()) text += fmt::format("[{}]\n", section);
    for (const FieldRef& field : fields.all()) {
      if (field.section == section) {
        text += fmt::format("{} = {}\n", field.key, value_text(field.value));
      }
    }
  }
  return text;
}

}  // namespace orthant
