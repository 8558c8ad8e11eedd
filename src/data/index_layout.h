// Where things lie in PREFIX.idx, Megatron's MMIDIDX index: header, lengths, pointers, boundaries.
#pragma once

#include <cstdint>
#include <string_view>

namespace orthant {

inline constexpr std::string_view kIndexMagic("MMIDIDX\0\0", 9);
inline constexpr std::int64_t kIndexHeaderBytes = 34;
inline constexpr std::int64_t kLengthBytes = 4;      // i32: tokens of a sequence
inline constexpr std::int64_t kPointerBytes = 8;     // i64: its first byte in the .bin
inline constexpr std::uint64_t kSequenceBytes = 12;  // both
inline constexpr std::uint64_t kBoundaryBytes = 8;   // i64: the first sequence of a document

inline std::int64_t length_offset(std::int64_t sequence) {
  return kIndexHeaderBytes + kLengthBytes * sequence;
}
inline std::int64_t pointer_offset(std::int64_t num_sequences, std::int64_t sequence) {
  return kIndexHeaderBytes + kLengthBytes * num_sequences + kPointerBytes * sequence;
}
inline std::int64_t boundary_offset(std::int64_t num_sequences, std::int64_t document) {
  return pointer_offset(num_sequences, num_sequences) +
         static_cast<std::int64_t>(kBoundaryBytes) * document;
}

}  // namespace orthant
