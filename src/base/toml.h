// Run files and command-line overrides into a config, and a config back into TOML.
#pragma once

#include <string>
#include <string_view>

#include "base/fields.h"

namespace orthant {

// Sets the fields that the text names. A key or section that is not known, a value of another type
// and bad syntax are user errors with `source` and the line.
void read_toml(FieldList& fields, std::string_view text, const std::string& source);
void read_toml_file(FieldList& fields, const std::string& path);

// Sets one field from "--section.key=value". The value is TOML; what is not TOML is text, so that
// words need no quotes, and the brackets of a list of numbers may be left out. A field that is text
// takes everything behind the '='.
void apply_override(FieldList& fields, std::string_view argument);

// Every field with its value; reading it back gives the same config.
std::string to_toml(const FieldList& fields);

}  // namespace orthant
