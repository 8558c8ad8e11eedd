// Schedule: text form, and how many micro-batches a rank holds at once.
#include "pipeline/schedule.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <iterator>

#include <fmt/core.h>

#include "base/check.h"
#include "pipeline/boundary.h"

namespace orthant {
namespace {

struct Word {
  Action::Kind kind;
  std::string_view text;
};

constexpr std::array<Word, 8> kWords = {{
    {Action::Kind::kForward, "F"},
    {Action::Kind::kBackward, "B"},
    {Action::Kind::kBackwardInput, "I"},
    {Action::Kind::kBackwardWeight, "W"},
    {Action::Kind::kSendAct, "sendF"},
    {Action::Kind::kRecvAct, "recvF"},
    {Action::Kind::kSendGrad, "sendB"},
    {Action::Kind::kRecvGrad, "recvB"},
}};

// Reads a number at the front of `text` and takes it away; false when there is none.
bool take_number(std::string_view& text, int& number) {
  const char* end = text.data() + text.size();
  const auto result = std::from_chars(text.data(), end, number);
  if (result.ec != std::errc() || number < 0) return false;
  text.remove_prefix(static_cast<std::size_t>(result.ptr - text.data()));
  return true;
}

Action read_action(std::string_view token) {
  Action action{};
  const std::size_t digits = std::min(token.find_first_of("0123456789"), token.size());
  const auto* word = std::find_if(kWords.begin(), kWords.end(), [&](const Word& candidate) {
    return candidate.text == token.substr(0, digits);
  });
  std::string_view rest = token.substr(digits);
  bool good = word != kWords.end() && take_number(rest, action.micro);
  if (good && !rest.empty()) {
    good = rest.front() == '.';
    rest.remove_prefix(1);
    good = good && take_number(rest, action.chunk) && rest.empty();
  }
  if (!good) {
    fail_user(
        "schedule text: '{}' is no action; write one of F, B, I, W, sendF, recvF, sendB, recvB and "
        "the micro-batch, then .chunk above chunk 0, as in F3 or B3.1",
        token);
  }
  action.kind = word->kind;
  return action;
}

}  // namespace

int in_flight(const RankActions& actions, int chunk) {
  RankActions own;
  std::copy_if(actions.begin(), actions.end(), std::back_inserter(own),
               [chunk](const Action& action) { return action.chunk == chunk; });
  return in_flight(own);
}

int in_flight(const RankActions& actions) {
  const bool trains = has_backward(actions);
  int now = 0;
  int most = 0;
  for (const Action& action : actions) {
    if (action.kind == Action::Kind::kForward) most = std::max(most, ++now);
    if (trains ? is_last_backward(action.kind) : action.kind == Action::Kind::kForward) --now;
  }
  return most;
}

int between_halves(const RankActions& actions) {
  int now = 0;
  int most = 0;
  for (const Action& action : actions) {
    if (action.kind == Action::Kind::kBackwardInput) most = std::max(most, ++now);
    if (action.kind == Action::Kind::kBackwardWeight) --now;
  }
  return most;
}

std::string to_text(const RankActions& actions) {
  std::string text;
  for (const Action& action : actions) {
    const auto* word = std::find_if(kWords.begin(), kWords.end(),
                                    [&](const Word& known) { return known.kind == action.kind; });
    if (!text.empty()) text += ' ';
    text += fmt::format("{}{}", word->text, action.micro);
    if (action.chunk != 0) text += fmt::format(".{}", action.chunk);
  }
  return text;
}

RankActions from_text(std::string_view text) {
  constexpr std::string_view kSpace = " \t\r\n";
  RankActions actions;
  std::size_t begin = text.find_first_not_of(kSpace);
  while (begin != std::string_view::npos) {
    const std::size_t end = std::min(text.find_first_of(kSpace, begin), text.size());
    actions.push_back(read_action(text.substr(begin, end - begin)));
    begin = text.find_first_not_of(kSpace, end);
  }
  return actions;
}

}  // namespace orthant
