// What happens to a text between its added tokens and the model: cutting it to pieces, in steps
// that each cut the pieces of the one before.
#pragma once

#include <algorithm>
#include <cstddef>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "data/regex.h"
#include "data/split.h"
#include "data/unicode.h"
#include "data/word_patterns.h"

namespace orthant {

enum class Prepend { kAlways, kFirst, kNever };

struct PieceStep {
  enum class Kind {
    kGpt2,
    kLlama3,
    kRegex,
    kLiteral,
    kNumbers,
    kPunctuation,
    kPrefixSpace,
    kMetaspace
  };
  Kind kind = Kind::kGpt2;
  int most_digits = 0;                                // kLlama3
  std::optional<Regex> regex;                         // kRegex
  std::string literal;                                // kLiteral, not empty
  SplitBehavior behavior = SplitBehavior::kIsolated;  // from kRegex to kPunctuation
  bool inverts = false;                               // kRegex, kLiteral
  std::string space;                                  // kMetaspace: stands for ' '
  Prepend prepend = Prepend::kNever;                  // kMetaspace: where `space` is put in front
  bool cuts = false;                                  // kMetaspace: every `space` begins a piece
};

struct PieceScratch {
  RegexScratch regex;
  std::vector<std::string> texts;  // one a step
};

class PreTokenizer {
 public:
  PreTokenizer(const CharClasses& classes, const std::vector<PieceStep>& steps)
      : classes_(classes),
        steps_(steps) {}

  // Calls on_piece for the pieces of `text`. `is_first`: the whole text begins here.
  template <class OnPiece>
  void run(std::string_view text, bool is_first, PieceScratch& scratch, OnPiece&& on_piece) const {
    scratch.texts.resize(steps_.size());
    run_from(0, text, is_first, scratch, on_piece);
  }

 private:
  template <class OnPiece>
  void run_from(std::size_t i, std::string_view text, bool is_first, PieceScratch& scratch,
                OnPiece&& on_piece) const {
    if (text.empty()) return;
    if (i == steps_.size()) {
      on_piece(text);
      return;
    }
    const PieceStep& step = steps_[i];
    const auto next = [&](std::string_view piece) {
      const bool begins = is_first && piece.data() == text.data();
      run_from(i + 1, piece, begins, scratch, on_piece);
    };
    switch (step.kind) {
      case PieceStep::Kind::kGpt2:
        for (std::size_t at = 0; at < text.size();) {
          const std::size_t end = gpt2_match_end(classes_, text, at);
          next(text.substr(at, end - at));
          at = end;
        }
        break;
      case PieceStep::Kind::kLlama3:
        for (std::size_t at = 0; at < text.size();) {
          const std::size_t end = llama3_match_end(classes_, text, at, step.most_digits);
          next(text.substr(at, end - at));
          at = end;
        }
        break;
      case PieceStep::Kind::kPrefixSpace:
        run_from(i + 1, with_prefix_space(text, scratch.texts[i]), is_first, scratch, on_piece);
        break;
      case PieceStep::Kind::kMetaspace: {
        const std::string_view spaced = with_metaspace(step, text, is_first, scratch.texts[i]);
        const auto after = [&](std::string_view piece) {
          const bool begins = is_first && piece.data() == spaced.data();
          run_from(i + 1, piece, begins, scratch, on_piece);
        };
        if (step.cuts) {
          split_at(spaced, step.space, SplitBehavior::kMergedWithNext, false, after);
        } else {
          after(spaced);
        }
        break;
      }
      case PieceStep::Kind::kLiteral:
        split_at(text, step.literal, step.behavior, step.inverts, next);
        break;
      case PieceStep::Kind::kRegex: {
        Splitter splitter(text, step.behavior, step.inverts, next);
        step.regex->for_each(text, scratch.regex,
                             [&](TextRange match) { splitter.match(match.begin, match.end); });
        splitter.finish();
        break;
      }
      case PieceStep::Kind::kNumbers:
        split_if(text, step.behavior, next,
                 [this](std::uint32_t code) { return classes_.is_numeric(code); });
        break;
      case PieceStep::Kind::kPunctuation:
        split_if(text, step.behavior, next,
                 [this](std::uint32_t code) { return classes_.is_punctuation(code); });
        break;
    }
  }

  template <class OnPiece>
  static void split_at(std::string_view text, std::string_view literal, SplitBehavior behavior,
                       bool inverts, OnPiece& on_piece) {
    Splitter splitter(text, behavior, inverts, on_piece);
    for (std::size_t at = text.find(literal); at != std::string_view::npos;
         at = text.find(literal, at + literal.size())) {
      splitter.match(at, at + literal.size());
    }
    splitter.finish();
  }

  // Every code point that `matches` is a match of its own.
  template <class OnPiece, class Matches>
  static void split_if(std::string_view text, SplitBehavior behavior, OnPiece& on_piece,
                       Matches&& matches) {
    Splitter splitter(text, behavior, false, on_piece);
    for (std::size_t at = 0; at < text.size();) {
      const CodePoint point = decode_utf8(text.data() + at);
      const std::size_t end = at + static_cast<std::size_t>(point.length);
      if (matches(point.value)) splitter.match(at, end);
      at = end;
    }
    splitter.finish();
  }

  static std::string_view with_prefix_space(std::string_view text, std::string& buffer);
  static std::string_view with_metaspace(const PieceStep& step, std::string_view text,
                                         bool is_first, std::string& buffer);

  const CharClasses& classes_;
  const std::vector<PieceStep>& steps_;
};

}  // namespace orthant
