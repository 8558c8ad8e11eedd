// Generator: one rank that runs a model token by token with a key-value cache. The same object runs
// dry on the meta backend: that is its memory plan.
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "infer/kv_cache.h"
#include "infer/sampler.h"
#include "model/build.h"
#include "train/rank.h"

namespace orthant {

struct GeneratorConfig {
  ModelConfig model;  // complete
  DType compute = DType::kF32;
  std::int64_t max_forward = 0;   // tokens of the largest forward: the prompt
  std::int64_t max_tokens = 0;    // tokens that the cache holds
  Target target = Target::kHost;  // where the arithmetic is
};

// The config that lets `num_tokens` tokens follow a prompt. Learned positions end: a prompt beyond
// them is a user error, and the text stops there (tokens_that_fit is then below num_tokens).
GeneratorConfig generator_config(const ModelConfig& model, DType compute,
                                 std::int64_t prompt_tokens, std::int64_t num_tokens);
std::int64_t tokens_that_fit(const GeneratorConfig& config);

class Generator {
 public:
  // `capacities`: of each arena, from plan_generation; absent in the dry run itself.
  Generator(const GeneratorConfig& config, const Backend& backend,
            const std::optional<MemoryPlan>& capacities);
  ~Generator();
  Generator(const Generator&) = delete;
  Generator& operator=(const Generator&) = delete;

  ParamStore& store() { return *store_; }

  // Appends tokens to the sequence. The result is the logits [V] of the token after the last; it
  // stays until the next call.
  std::span<const float> forward(std::span<const std::int32_t> tokens);
  void restart() { cache_->clear(); }  // the sequence is empty again
  std::int64_t length() const { return cache_->length(); }

  MemoryPlan memory() const;  // high-water marks so far

 private:
  void make_arena(const std::string& name, std::int64_t dry_run_bytes,
                  const std::optional<MemoryPlan>& capacities);
  MicroBatch load_tokens(std::span<const std::int32_t> tokens, Frame& frame);
  Tensor run_layers(Context& ctx);
  void read_logits(const Tensor& logits);

  GeneratorConfig config_;
  Backend backend_;
  Ledger ledger_;
  InFlight in_flight_;
  std::vector<std::unique_ptr<Arena>> arenas_;  // params, work, cache, and two slots
  std::unique_ptr<Ops> ops_;
  std::unique_ptr<Communicator> world_;
  std::unique_ptr<Mesh> mesh_;
  std::unique_ptr<Chunk> chunk_;
  std::unique_ptr<ParamStore> store_;
  Constants constants_;
  Tensor no_state_;  // absent: nothing here drops or trains
  std::unique_ptr<CacheMemory> cache_;
  std::vector<Stash> stashes_;  // layers take turns: nothing goes back
  std::vector<std::int32_t> positions_;
  std::vector<std::byte> raw_logits_;
  std::vector<float> logits_;  // [V]
};

// The dry run of the largest forward.
MemoryPlan plan_generation(const GeneratorConfig& config);

struct TextRequest {
  std::vector<std::int32_t> prompt;
  std::int64_t num_tokens = 0;     // that fit
  std::vector<std::int32_t> ends;  // any of them ends the text and is not part of it
  std::int32_t num_ids = 0;        // ids below it may be chosen
  std::uint64_t sequence = 0;      // numbers texts of one seed
};

enum class TextEnd : std::uint8_t { kTokens, kDocument };

// Calls on_token with each new token as it is chosen.
TextEnd write_text(Generator& generator, Sampler& sampler, const TextRequest& request,
                   const std::function<void(std::int32_t)>& on_token);

}  // namespace orthant
