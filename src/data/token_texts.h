// The texts of a tokenizer's ids, and what a decoder makes of each of them.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

namespace orthant {

struct DecoderSpec;

inline constexpr std::string_view kMetaspace = "\xE2\x96\x81";

// The bytes that a text in GPT-2's byte alphabet stands for; false when it has other characters.
bool byte_level_bytes(std::string_view text, std::string& bytes);

// The other way round.
std::string byte_level_text(std::string_view bytes);

class TokenTexts {
 public:
  void add(const std::string& text, std::int32_t id);
  std::int32_t id_of(const std::string& text) const;  // -1: none
  std::int64_t max_id() const { return max_id_; }
  const std::unordered_map<std::string, std::int32_t>& ids() const { return ids_; }

  // Between start_decoding and finish_decoding, the steps of a decoder in their order.
  void start_decoding();
  void set(std::int32_t id, const std::string& text) {
    texts_[static_cast<std::size_t>(id)] = text;
  }
  void decode_byte_level();
  void replace(const std::string& from, const std::string& to);
  void decode_byte_names();  // <0x0A> and the like
  void decode_metaspace(const std::string& mark, bool drops_first);
  void finish_decoding(DecoderSpec& decoder);

 private:
  template <class Change>
  void change_all(Change&& change);

  std::unordered_map<std::string, std::int32_t> ids_;
  std::int64_t max_id_ = -1;
  std::size_t room_ = 0;                  // bytes that replacements may still add
  std::vector<std::string> texts_;        // by id
  std::vector<std::string> first_texts_;  // by id; empty: as texts_
};

}  // namespace orthant
