// The JSON header of a safetensors file into entries. Every rule of the format is checked here.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "ckpt/safetensors.h"

namespace orthant {

// A type of the format. Types narrower than a byte are packed.
struct SafetensorsType {
  std::string_view name;
  std::int64_t bits;
};

// The type and its place in the reference writer's order (higher comes first); throws for a name
// that is none. `what` names file and tensor.
int find_safetensors_type(std::string_view name, const std::string& what);
SafetensorsType safetensors_type(int place);

// Bytes of a tensor; throws a user error when they overflow or end inside a byte.
std::int64_t safetensors_bytes(const SafetensorsType& type, const std::vector<std::int64_t>& shape,
                               const std::string& what);

struct SafetensorsHeader {
  SafetensorsMetadata metadata;
  std::vector<TensorEntry> entries;  // by offset, covering 0 .. data_bytes without hole or overlap
};

// `json` is the header without its length; `data_bytes` what follows it in the file.
SafetensorsHeader parse_safetensors_header(std::string_view json, std::int64_t data_bytes,
                                           const std::string& path);

}  // namespace orthant
