// The normalizer of a tokenizer.json: steps that each make a changed copy of a text, or none.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "data/normal_form.h"
#include "data/regex.h"

namespace orthant {

struct NormalizerStep {
  enum class Kind { kPrepend, kReplace, kReplaceRegex, kForm, kLowercase, kStrip };
  Kind kind = Kind::kPrepend;
  std::string pattern;             // kReplace: what is replaced, not empty
  std::string content;             // kPrepend, kReplace, kReplaceRegex
  std::optional<Regex> regex;      // kReplaceRegex
  std::optional<NormalForm> form;  // kForm
  bool strips_left = false;        // kStrip
  bool strips_right = false;
};

struct NormalizerScratch {
  std::string current;
  std::string next;
  RegexScratch regex;
};

// `text`, valid UTF-8, after all steps; it lives in `scratch` or is (a part of) `text` itself.
// Steps that make far more of a text than any alphabet asks for are a user error: their
// tokenizer.json could fill the memory.
std::string_view normalize(const std::vector<NormalizerStep>& steps, std::string_view text,
                           NormalizerScratch& scratch);

// Appends `text` with every `from`, which is not empty, replaced; false: `out` would pass `most`
// bytes.
bool append_replaced(std::string_view text, std::string_view from, std::string_view to,
                     std::size_t most, std::string& out);

}  // namespace orthant
