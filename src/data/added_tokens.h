// Added tokens: contents that are cut out of a text before anything else looks at it, as Hugging
// Face does: leftmost, then longest.
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "data/unicode.h"

namespace orthant {

struct AddedToken {
  std::int32_t id = 0;
  std::string content;
  bool single_word = false;  // not next to a word character
  bool lstrip = false;       // takes the spaces on its left
  bool rstrip = false;       // takes the spaces on its right
  bool normalized = false;   // is looked for in the normalized text
  bool special = false;      // is taken before others that become equal to it
};

class AddedTokens {
 public:
  explicit AddedTokens(std::vector<AddedToken> tokens);

  bool empty() const { return tokens_.empty(); }

  // Calls on_text(piece) and on_token(id) for the parts of `text`, in order.
  template <class OnText, class OnToken>
  void split(const CharClasses& classes, std::string_view text, OnText&& on_text,
             OnToken&& on_token) const {
    std::size_t done = 0;
    for (std::size_t from = 0; !tokens_.empty() && from < text.size();) {
      Match match = find(text, from);
      if (match.token == nullptr) break;
      from = match.end;
      if (!trim(classes, text, done, match)) continue;
      if (done < match.begin) on_text(text.substr(done, match.begin - done));
      if (match.begin < match.end) on_token(match.token->id);
      done = match.end;
    }
    if (done < text.size()) on_text(text.substr(done));
  }

 private:
  struct Match {
    const AddedToken* token = nullptr;
    std::size_t begin = 0;
    std::size_t end = 0;
  };
  struct Edge {
    std::uint32_t key = 0;  // node * 256 + byte + 1; 0: free
    std::uint32_t node = 0;
  };

  Match find(std::string_view text, std::size_t from) const;
  // Applies the flags of the token; false when they forbid the match.
  static bool trim(const CharClasses& classes, std::string_view text, std::size_t done,
                   Match& match);
  std::uint32_t child(std::uint32_t node, unsigned char byte) const;  // 0: none
  std::uint32_t& slot(std::uint32_t key);
  void insert(int token);

  std::vector<AddedToken> tokens_;
  std::array<bool, 256> starts_{};  // bytes that begin a content
  int lone_start_ = -1;             // the only one of them
  std::vector<Edge> edges_;         // of a trie of the contents; a power of two
  std::vector<int> token_of_node_;  // -1: no content ends there
};

}  // namespace orthant
