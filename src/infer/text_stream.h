// TextStream: token ids to text as they come, in whole UTF-8 characters.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "data/tokenizer.h"

namespace orthant {

class TextStream {
 public:
  // `before`: the ids that the text follows; theirs is not given again.
  TextStream(const Tokenizer& tokenizer, std::span<const std::int32_t> before);

  // What the next id adds. A character that is not complete yet comes with the id that completes
  // it; a byte that no id can make UTF-8 becomes U+FFFD.
  std::string push(std::int32_t id);
  std::string finish();  // U+FFFD when the last character is not complete

 private:
  std::string take_whole();

  const Tokenizer& tokenizer_;
  // The latest ids: a tokenizer may write an id at the beginning of a text in another way than
  // after others, so that the text of an id is what it adds to the text of those before it.
  std::vector<std::int32_t> window_;
  std::size_t known_ = 0;  // bytes of the window's text that were taken
  std::string rest_;       // taken, not given out
};

}  // namespace orthant
