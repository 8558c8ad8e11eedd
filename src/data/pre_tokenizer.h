// What happens to a text between its added tokens and the model: normalizing and cutting to pieces.
#pragma once

#include <algorithm>
#include <cstddef>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "data/gpt2_pattern.h"
#include "data/regex.h"
#include "data/unicode.h"

namespace orthant {

struct NormalizerStep {
  enum class Kind { kPrepend, kReplace };
  Kind kind = Kind::kPrepend;
  std::string pattern;  // kReplace: what is replaced
  std::string content;
};

// Returns `text` after all steps; the result lives in `buffer` unless there are none.
std::string_view normalize(const std::vector<NormalizerStep>& steps, std::string_view text,
                           std::string& buffer);

enum class Prepend { kAlways, kFirst, kNever };

struct PieceStep {
  enum class Kind { kGpt2, kRegex, kPrefixSpace, kMetaspace };
  Kind kind = Kind::kGpt2;
  std::optional<Regex> regex;         // kRegex: matches and what lies between them are pieces
  std::string space;                  // kMetaspace: stands for ' '
  Prepend prepend = Prepend::kNever;  // kMetaspace: where `space` is put in front
  bool cuts = false;                  // kMetaspace: every `space` begins a piece
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
      run_from(i + 1, piece, is_first, scratch, on_piece);
    };
    switch (step.kind) {
      case PieceStep::Kind::kGpt2:
        for (std::size_t at = 0; at < text.size();) {
          const std::size_t end = gpt2_match_end(classes_, text, at);
          next(text.substr(at, end - at));
          at = end;
        }
        break;
      case PieceStep::Kind::kRegex: cut_by_regex(*step.regex, text, scratch.regex, next); break;
      case PieceStep::Kind::kPrefixSpace: next(with_prefix_space(text, scratch.texts[i])); break;
      case PieceStep::Kind::kMetaspace: {
        const std::string_view spaced = with_metaspace(step, text, is_first, scratch.texts[i]);
        if (step.cuts) {
          cut_before(step.space, spaced, next);
        } else {
          next(spaced);
        }
        break;
      }
    }
  }

  template <class OnPiece>
  static void cut_by_regex(const Regex& regex, std::string_view text, RegexScratch& scratch,
                           OnPiece&& on_piece) {
    std::size_t done = 0;
    while (done < text.size()) {
      const TextRange match = regex.find(text, done, scratch);
      if (match.empty()) break;
      on_piece(text.substr(done, match.begin - done));
      on_piece(text.substr(match.begin, match.end - match.begin));
      done = match.end;
    }
    on_piece(text.substr(done));
  }

  template <class OnPiece>
  static void cut_before(std::string_view mark, std::string_view text, OnPiece&& on_piece) {
    std::size_t begin = 0;
    while (begin < text.size()) {
      const std::size_t from = text.substr(begin).starts_with(mark) ? begin + mark.size() : begin;
      const std::size_t end = std::min(text.find(mark, from), text.size());
      on_piece(text.substr(begin, end - begin));
      begin = end;
    }
  }

  static std::string_view with_prefix_space(std::string_view text, std::string& buffer);
  static std::string_view with_metaspace(const PieceStep& step, std::string_view text,
                                         bool is_first, std::string& buffer);

  const CharClasses& classes_;
  const std::vector<PieceStep>& steps_;
};

}  // namespace orthant
