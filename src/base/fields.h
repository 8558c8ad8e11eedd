// A config struct names its fields once, in fields(); the run file, the command line, --help and
// the written run file follow from that. The part that depends on the type is only a visit.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

namespace orthant {

// A word or a list of integers, as in layout.stages = "even" or [3, 4, 4, 3].
struct TextOrInts {
  std::string text;                // empty when `ints` is meant
  std::vector<std::int64_t> ints;  // empty when `text` is meant

  bool is_text() const { return ints.empty(); }
  friend bool operator==(const TextOrInts&, const TextOrInts&) = default;
};

using FieldPointer =
    std::variant<int*, std::int64_t*, double*, bool*, std::string*, std::vector<std::string>*,
                 std::vector<double>*, std::vector<std::vector<std::int64_t>>*, TextOrInts*>;

struct FieldRef {
  std::string section;  // empty for keys above the first section
  std::string key;
  std::string help;    // one line; units included
  FieldPointer value;  // into the config, which must outlive this and stay where it is
  std::string given;   // where the user set it: "run.toml line 4", "--layout.tp=2"; or empty

  std::string name() const { return section.empty() ? key : section + "." + key; }
};

// The fields of a whole config, in the order in which they were named.
//
//   struct LayoutConfig {
//     int tp = 1;
//     template <class Visitor>
//     void fields(Visitor&& v) {
//       v("tp", tp, "tensor-parallel ranks");
//     }
//   };
class FieldList {
 public:
  template <class Section>
  void add(std::string_view section, Section& config) {
    config.fields([this, section](const char* key, auto& value, const char* help) {
      add_field(section, key, help, FieldPointer(&value));
    });
  }
  void add_field(std::string_view section, std::string_view key, std::string_view help,
                 FieldPointer value);

  const std::vector<FieldRef>& all() const { return fields_; }
  std::vector<FieldRef>& all() { return fields_; }
  std::vector<std::string> sections() const;  // in order, each once
  std::vector<std::string> keys(std::string_view section) const;
  FieldRef* find(std::string_view section, std::string_view key);  // null when there is none

  // Whether the user set "section.key": what was not set may be derived. Throws for a name that is
  // no field.
  bool is_given(std::string_view name) const;

  // Forgets what was set so far, for values that lie beneath the user's: a preset, then the run
  // file.
  void forget_given();

 private:
  std::vector<FieldRef> fields_;
};

// The fields of a config that names its sections:
//
//   template <class Visitor>
//   void sections(Visitor&& v) {
//     v("layout", layout);
//   }
template <class Config>
FieldList list_fields(Config& config) {
  FieldList fields;
  config.sections([&fields](const char* name, auto& section) { fields.add(name, section); });
  return fields;
}

// "an integer", "a list of numbers"; and a value of it as an example.
std::string_view type_text(const FieldPointer& field);
std::string_view example_text(const FieldPointer& field);

// The value as TOML; a double has the fewest digits that read back to the same bits.
std::string value_text(const FieldPointer& field);

// Throw the user error for a key or section that does not exist, with the nearest that does.
// `where` is "run.toml line 4" or the command-line argument.
[[noreturn]] void fail_unknown_key(const FieldList& fields, std::string_view section,
                                   std::string_view key, std::string_view where);
[[noreturn]] void fail_unknown_section(const FieldList& fields, std::string_view section,
                                       std::string_view where);

// Every option with its present value, which is the default in a fresh config, and its meaning.
std::string help_text(const FieldList& fields);

}  // namespace orthant
