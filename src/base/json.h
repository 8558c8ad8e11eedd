// The JSON library. Included by .cpp files only: it is heavy.
#pragma once

#include <cstdint>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

namespace orthant {
using Json = nlohmann::json;
using OrderedJson = nlohmann::ordered_json;  // keeps the order in which keys were written

// The largest count that a file may have: sums of a few do not overflow.
inline constexpr std::int64_t kMostCount = 1'000'000'000'000'000'000;

// What `object` has under `key`: an integer from 0 to `most`. The library itself turns other
// numbers into integers, where they do not fit without a defined result; here they throw as what
// is absent does.
template <class AnyJson>
std::int64_t count_at(const AnyJson& object, const char* key, std::int64_t most = kMostCount) {
  const AnyJson& value = object.at(key);
  const bool is_count = value.is_number_unsigned() &&
                        value.template get<std::uint64_t>() <= static_cast<std::uint64_t>(most);
  if (is_count) return value.template get<std::int64_t>();
  throw AnyJson::other_error::create(
      501, fmt::format("{} is {}, an integer from 0 to {} was expected", key, value.dump(), most),
      &value);
}
}  // namespace orthant
