// CRC-32C (Castagnoli), the checksum of TensorBoard's record files. Polynomial 0x1EDC6F41,
// reflected.
#pragma once

#include <cstdint>
#include <string_view>

namespace orthant {

// `before` is the checksum of the bytes that precede `bytes`.
std::uint32_t crc32c(std::string_view bytes, std::uint32_t before = 0);

}  // namespace orthant
