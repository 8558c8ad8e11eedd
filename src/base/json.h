// The JSON library. Included by .cpp files only: it is heavy.
#pragma once

#include <nlohmann/json.hpp>

namespace orthant {
using Json = nlohmann::json;
using OrderedJson = nlohmann::ordered_json;  // keeps the order in which keys were written
}  // namespace orthant
