// Two buffers in turn: the one that has the text of the step before, and the one that is written.
#include "data/normalizer.h"

#include "base/check.h"
#include "data/unicode.h"

namespace orthant {
namespace {

std::string_view without_spaces(const NormalizerStep& step, std::string_view text) {
  std::size_t begin = 0;
  std::size_t end = text.size();
  while (step.strips_left && begin < end) {
    const CodePoint point = decode_utf8(text.data() + begin);
    if (!is_space(point.value)) break;
    begin += static_cast<std::size_t>(point.length);
  }
  while (step.strips_right && end > begin) {
    const std::size_t last = previous_utf8(text, end);
    if (!is_space(decode_utf8(text.data() + last).value)) break;
    end = last;
  }
  return text.substr(begin, end - begin);
}

// What a step may make of a text: the longest decomposition of Unicode is 18 times its character.
constexpr std::size_t kMostGrowth = 64;
constexpr std::size_t kSlack = 1 << 16;

[[noreturn]] void refuse_growth(std::size_t most) {
  fail_user(
      "the tokenizer's normalizer makes more than {} bytes of a text, {} times what it has; give a "
      "tokenizer.json whose replacements are shorter",
      most, kMostGrowth);
}

bool append_matches(const NormalizerStep& step, std::string_view text, RegexScratch& regex,
                    std::size_t most, std::string& out) {
  std::size_t done = 0;
  bool fits = true;
  step.regex->for_each(text, regex, [&](TextRange match) {
    fits = fits && out.size() + match.begin - done + step.content.size() <= most;
    if (!fits) return;
    out.append(text.substr(done, match.begin - done)).append(step.content);
    done = match.end;
  });
  out.append(text.substr(done));
  return fits;
}

std::string_view apply(const NormalizerStep& step, std::string_view text, std::size_t most,
                       RegexScratch& regex, std::string& out) {
  out.clear();
  switch (step.kind) {
    case NormalizerStep::Kind::kPrepend:
      if (text.empty()) return text;
      out.append(step.content).append(text);
      return out;
    case NormalizerStep::Kind::kReplace:
      if (text.find(step.pattern) == std::string_view::npos) return text;
      if (!append_replaced(text, step.pattern, step.content, most, out)) refuse_growth(most);
      return out;
    case NormalizerStep::Kind::kReplaceRegex:
      if (text.empty()) return text;
      if (!append_matches(step, text, regex, most, out)) refuse_growth(most);
      return out;
    case NormalizerStep::Kind::kForm: return step.form->apply(text, out);
    case NormalizerStep::Kind::kLowercase: append_lower_case(text, out); return out;
    case NormalizerStep::Kind::kStrip: break;
  }
  return without_spaces(step, text);
}

}  // namespace

bool append_replaced(std::string_view text, std::string_view from, std::string_view to,
                     std::size_t most, std::string& out) {
  std::size_t done = 0;
  while (true) {
    const std::size_t at = text.find(from, done);
    if (at == std::string_view::npos) break;
    if (out.size() + at - done + to.size() > most) return false;
    out.append(text.substr(done, at - done));
    out.append(to);
    done = at + from.size();
  }
  out.append(text.substr(done));
  return out.size() <= most;
}

std::string_view normalize(const std::vector<NormalizerStep>& steps, std::string_view text,
                           NormalizerScratch& scratch) {
  const std::size_t most = kMostGrowth * text.size() + kSlack;
  for (const NormalizerStep& step : steps) {
    const std::string_view changed = apply(step, text, most, scratch.regex, scratch.next);
    if (changed.data() == scratch.next.data()) {
      scratch.current.swap(scratch.next);
      // A short string lies in the object itself: its characters have moved with the swap.
      text = std::string_view(scratch.current).substr(0, changed.size());
    } else {
      text = changed;
    }
  }
  return text;
}

}  // namespace orthant
