// The steps that write a changed copy of the text.
#include "data/pre_tokenizer.h"

#include "data/normalizer.h"

namespace orthant {

std::string_view PreTokenizer::with_prefix_space(std::string_view text, std::string& buffer) {
  if (text.starts_with(' ')) return text;
  buffer.assign(1, ' ');
  buffer.append(text);
  return buffer;
}

std::string_view PreTokenizer::with_metaspace(const PieceStep& step, std::string_view text,
                                              bool is_first, std::string& buffer) {
  buffer.clear();
  const bool wanted =
      step.prepend == Prepend::kAlways || (step.prepend == Prepend::kFirst && is_first);
  if (wanted && !text.starts_with(' ') && !text.starts_with(step.space)) buffer += step.space;
  append_replaced(text, " ", step.space, buffer.max_size(), buffer);
  return buffer;
}

}  // namespace orthant
