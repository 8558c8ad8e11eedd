// A trie in one flat hash table; a scan for first bytes in front of it.
#include "data/added_tokens.h"

#include <algorithm>
#include <bit>
#include <cstring>
#include <utility>

namespace orthant {
namespace {

std::uint32_t mix(std::uint32_t key) {
  return static_cast<std::uint32_t>((key * 0x9E3779B97F4A7C15ull) >> 32);
}

}  // namespace

AddedTokens::AddedTokens(std::vector<AddedToken> tokens)
    : tokens_(std::move(tokens)),
      token_of_node_(1, -1) {
  std::size_t num_bytes = 1;
  for (const AddedToken& token : tokens_) {
    num_bytes += token.content.size();
  }
  edges_.resize(std::bit_ceil(2 * num_bytes));
  for (int i = 0; i < static_cast<int>(tokens_.size()); ++i) {
    insert(i);
  }
  const auto num_starts = std::count(starts_.begin(), starts_.end(), true);
  if (num_starts == 1) {
    lone_start_ =
        static_cast<int>(std::find(starts_.begin(), starts_.end(), true) - starts_.begin());
  }
}

void AddedTokens::insert(int token) {
  const std::string& content = tokens_[static_cast<std::size_t>(token)].content;
  starts_[static_cast<unsigned char>(content.front())] = true;
  std::uint32_t node = 0;
  for (const char c : content) {
    std::uint32_t& next = slot(node * 256 + static_cast<unsigned char>(c) + 1);
    if (next == 0) {
      next = static_cast<std::uint32_t>(token_of_node_.size());
      token_of_node_.push_back(-1);
    }
    node = next;
  }
  if (token_of_node_[node] < 0) token_of_node_[node] = token;
}

std::uint32_t& AddedTokens::slot(std::uint32_t key) {
  std::size_t at = mix(key) & (edges_.size() - 1);
  while (edges_[at].key != 0 && edges_[at].key != key) {
    at = (at + 1) & (edges_.size() - 1);
  }
  edges_[at].key = key;
  return edges_[at].node;
}

std::uint32_t AddedTokens::child(std::uint32_t node, unsigned char byte) const {
  const std::uint32_t key = node * 256 + byte + 1;
  std::size_t at = mix(key) & (edges_.size() - 1);
  while (edges_[at].key != 0) {
    if (edges_[at].key == key) return edges_[at].node;
    at = (at + 1) & (edges_.size() - 1);
  }
  return 0;
}

AddedTokens::Match AddedTokens::find(std::string_view text, std::size_t from) const {
  for (std::size_t begin = from; begin < text.size(); ++begin) {
    if (lone_start_ >= 0) {
      const void* next = std::memchr(text.data() + begin, lone_start_, text.size() - begin);
      if (next == nullptr) return {};
      begin = static_cast<std::size_t>(static_cast<const char*>(next) - text.data());
    } else if (!starts_[static_cast<unsigned char>(text[begin])]) {
      continue;
    }
    Match longest;
    std::uint32_t node = 0;
    for (std::size_t at = begin; at < text.size(); ++at) {
      node = child(node, static_cast<unsigned char>(text[at]));
      if (node == 0) break;
      const int token = token_of_node_[node];
      if (token >= 0) longest = {&tokens_[static_cast<std::size_t>(token)], begin, at + 1};
    }
    if (longest.token != nullptr) return longest;
  }
  return {};
}

bool AddedTokens::trim(const CharClasses& classes, std::string_view text, std::size_t done,
                       Match& match) {
  const AddedToken& token = *match.token;
  const auto before = [&](std::size_t end) {
    return previous_utf8(text, end);
  };
  const auto code = [&](std::size_t at) {
    return decode_utf8(text.data() + at);
  };
  if (token.single_word) {
    if (match.begin > 0 && classes.is_word(code(before(match.begin)).value)) return false;
    if (match.end < text.size() && classes.is_word(code(match.end).value)) return false;
  }
  if (token.lstrip) {
    match.begin = std::max(match.begin, done);  // the token before may have taken it by rstrip
    while (match.begin > done && is_space(code(before(match.begin)).value)) {
      match.begin = before(match.begin);
    }
  }
  if (token.rstrip) {
    while (match.end < text.size() && is_space(code(match.end).value)) {
      match.end += static_cast<std::size_t>(code(match.end).length);
    }
  }
  return true;
}

}  // namespace orthant
