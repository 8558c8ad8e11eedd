// Split: how matches of a pattern and what lies between them become pieces of a text, as
// Hugging Face's tokenizers do it.
#pragma once

#include <cstddef>
#include <string_view>

namespace orthant {

enum class SplitBehavior { kRemoved, kIsolated, kMergedWithPrevious, kMergedWithNext, kContiguous };

// Given the matches from left to right, calls on_piece for the pieces. No piece is empty, but a
// match may be: it still ends the piece before it.
template <class OnPiece>
class Splitter {
 public:
  // `inverts`: what lies between matches plays the part of the matches.
  Splitter(std::string_view text, SplitBehavior behavior, bool inverts, OnPiece& on_piece)
      : text_(text),
        behavior_(behavior),
        inverts_(inverts),
        on_piece_(on_piece) {}

  void match(std::size_t begin, std::size_t end) {
    if (done_ < begin) add(done_, begin, inverts_);
    add(begin, end, !inverts_);
    done_ = end;
  }

  void finish() {
    if (done_ < text_.size()) add(done_, text_.size(), inverts_);
    emit(begin_, end_);
  }

 private:
  void add(std::size_t begin, std::size_t end, bool is_match) {
    if (behavior_ == SplitBehavior::kRemoved || behavior_ == SplitBehavior::kIsolated) {
      if (behavior_ == SplitBehavior::kIsolated || !is_match) emit(begin, end);
      return;
    }
    const bool continues = behavior_ == SplitBehavior::kContiguous ? is_match == last_is_match_
                           : behavior_ == SplitBehavior::kMergedWithPrevious
                               ? is_match && !last_is_match_
                               : !is_match && last_is_match_;
    if (!continues || !has_open_) {
      emit(begin_, end_);
      begin_ = begin;
    }
    end_ = end;
    has_open_ = true;
    last_is_match_ = is_match;
  }

  void emit(std::size_t begin, std::size_t end) {
    if (begin < end) on_piece_(text_.substr(begin, end - begin));
  }

  std::string_view text_;
  SplitBehavior behavior_;
  bool inverts_;
  OnPiece& on_piece_;
  std::size_t done_ = 0;  // the end of the last match
  // The piece that may still grow.
  std::size_t begin_ = 0;
  std::size_t end_ = 0;
  bool has_open_ = false;
  bool last_is_match_ = false;
};

}  // namespace orthant
