// Texts, token by token, several at once.
#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <vector>

#include "infer/generator.h"
#include "infer/sampler.h"

namespace orthant {

struct TextRequest {
  std::vector<std::int32_t> prompt;
  std::int64_t num_tokens = 0;     // that fit
  std::vector<std::int32_t> ends;  // any of them ends the text and is not part of it
  std::int32_t num_ids = 0;        // ids below it may be chosen
  std::uint64_t sequence = 0;      // numbers texts of one seed
};

enum class TextEnd : std::uint8_t { kTokens, kDocument };

// Tokens of each sequence in the first forward of write_texts, its largest.
std::size_t shortest_prompt(std::span<const TextRequest> requests);

// One text for each sequence of the generator's batch. Prompts may differ in length: while one is
// read, others are written. Calls on_token with the text's place and each new token as it is
// chosen. A text is the same whatever the batch that it is written in, up to the rounding of
// products of other sizes.
std::vector<TextEnd> write_texts(
    Generator& generator, Sampler& sampler, std::span<const TextRequest> requests,
    const std::function<void(std::size_t text, std::int32_t token)>& on_token);

}  // namespace orthant
