#include "infer/write_text.h"

#include <algorithm>

#include "base/check.h"

namespace orthant {
namespace {

// One text while it is written.
struct Writing {
  const TextRequest& request;
  std::int64_t written = 0;
  bool is_done = false;
  TextEnd end = TextEnd::kTokens;

  std::size_t prompt() const { return request.prompt.size(); }

  // The token at `position`, of the prompt or by the logits of what is before it.
  std::int32_t next(std::size_t position, Sampler& sampler, std::span<const float> logits,
                    const std::function<void(std::int32_t)>& on_token) {
    if (position < prompt()) return request.prompt[position];
    if (is_done) return request.prompt.back();  // its row is computed, and nobody reads it
    const std::int32_t token = sampler.pick(logits.first(static_cast<std::size_t>(request.num_ids)),
                                            request.sequence, static_cast<std::int64_t>(position));
    if (std::find(request.ends.begin(), request.ends.end(), token) != request.ends.end()) {
      is_done = true;
      end = TextEnd::kDocument;
      return token;
    }
    on_token(token);
    is_done = ++written == request.num_tokens;
    return token;
  }
};

}  // namespace

std::size_t shortest_prompt(std::span<const TextRequest> requests) {
  std::size_t shortest = requests.front().prompt.size();
  for (const TextRequest& request : requests) {
    shortest = std::min(shortest, request.prompt.size());
  }
  return shortest;
}

std::vector<TextEnd> write_texts(
    Generator& generator, Sampler& sampler, std::span<const TextRequest> requests,
    const std::function<void(std::size_t text, std::int32_t token)>& on_token) {
  std::vector<Writing> texts;
  for (const TextRequest& request : requests) {
    texts.push_back({.request = request});
  }
  const std::size_t shortest = shortest_prompt(requests);
  for (const Writing& text : texts) {
    ORTHANT_CHECK(text.request.num_tokens > 0, "a text of {} tokens", text.request.num_tokens);
  }
  std::vector<std::int32_t> tokens;
  for (const Writing& text : texts) {
    const auto begin = text.request.prompt.begin();
    tokens.insert(tokens.end(), begin, begin + static_cast<std::ptrdiff_t>(shortest));
  }
  for (std::size_t position = shortest;; ++position) {
    const std::span<const float> logits = generator.forward(tokens);
    const std::size_t V = logits.size() / texts.size();
    tokens.resize(texts.size());
    for (std::size_t i = 0; i < texts.size(); ++i) {
      tokens[i] = texts[i].next(position, sampler, logits.subspan(i * V, V),
                                [&](std::int32_t token) { on_token(i, token); });
    }
    if (std::all_of(texts.begin(), texts.end(), [](const Writing& text) { return text.is_done; })) {
      break;
    }
  }
  std::vector<TextEnd> ends(texts.size());
  std::transform(texts.begin(), texts.end(), ends.begin(),
                 [](const Writing& text) { return text.end; });
  return ends;
}

}  // namespace orthant
