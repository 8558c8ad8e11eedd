// Normalizing and the steps that write a changed copy of the text.
#include "data/pre_tokenizer.h"

namespace orthant {
namespace {

void append_replaced(std::string_view text, std::string_view from, std::string_view to,
                     std::string& out) {
  std::size_t done = 0;
  while (true) {
    const std::size_t at = text.find(from, done);
    if (at == std::string_view::npos) break;
    out.append(text.substr(done, at - done));
    out.append(to);
    done = at + from.size();
  }
  out.append(text.substr(done));
}

}  // namespace

std::string_view normalize(const std::vector<NormalizerStep>& steps, std::string_view text,
                           std::string& buffer) {
  if (steps.empty() || text.empty()) return text;
  std::string current(text);
  for (const NormalizerStep& step : steps) {
    buffer.clear();
    if (step.kind == NormalizerStep::Kind::kPrepend) {
      if (!current.empty()) buffer += step.content;
      buffer += current;
    } else {
      append_replaced(current, step.pattern, step.content, buffer);
    }
    current.swap(buffer);
  }
  buffer.swap(current);
  return buffer;
}

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
  append_replaced(text, " ", step.space, buffer);
  return buffer;
}

}  // namespace orthant
