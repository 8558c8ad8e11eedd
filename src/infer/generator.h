// Generator: one rank of a model that reads and writes tokens with a key-value cache. All ranks
// make the same calls and get the same logits. The same object runs dry on the meta backend: that
// is its memory plan.
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "infer/kv_cache.h"
#include "model/build.h"
#include "train/rank.h"

namespace orthant {

struct GeneratorConfig {
  ModelConfig model;  // complete
  DType compute = DType::kF32;
  std::int64_t max_forward = 0;   // tokens of a sequence in the largest forward: the prompt
  std::int64_t max_tokens = 0;    // tokens of a sequence that the cache holds
  Target target = Target::kHost;  // where the arithmetic is
  int tp = 1;
  int pp = 1;
  std::int64_t batch = 1;  // sequences

  int num_ranks() const { return tp * pp; }
};

// A user error when the model cannot be cut so.
void check_layout(const GeneratorConfig& config);

// The config that lets `num_tokens` tokens follow a prompt. Learned positions end: a prompt beyond
// them is a user error, and the text stops there (tokens_that_fit is then below num_tokens).
GeneratorConfig generator_config(const ModelConfig& model, DType compute,
                                 std::int64_t prompt_tokens, std::int64_t num_tokens);
// Of them, those that can follow a prompt of so many.
std::int64_t tokens_that_fit(const GeneratorConfig& config, std::int64_t prompt_tokens);

class Generator {
 public:
  // `capacities`: of each arena, from plan_generation; absent in the dry run itself.
  Generator(const GeneratorConfig& config, const Backend& backend,
            const std::optional<MemoryPlan>& capacities);
  ~Generator();
  Generator(const Generator&) = delete;
  Generator& operator=(const Generator&) = delete;

  ParamStore& store() { return *store_; }

  // Appends as many tokens to each sequence: [batch, count]. The result is the logits [batch, V] of
  // the token after the last; it stays until the next call.
  std::span<const float> forward(std::span<const std::int32_t> tokens);
  void restart() { cache_->clear(); }                           // the sequences are empty again
  void rewind(std::int64_t length) { cache_->rewind(length); }  // to their first `length` tokens
  std::int64_t length() const { return cache_->length(); }

  MemoryPlan memory() const;  // high-water marks so far

 private:
  void make_arena(const std::string& name, std::int64_t dry_run_bytes,
                  const std::optional<MemoryPlan>& capacities);
  MicroBatch load_tokens(std::span<const std::int32_t> tokens, Frame& frame);
  LayoutConfig layout() const;
  Tensor run_layers(Context& ctx);
  Flow receive(Context& ctx);
  void send(Context& ctx, const Flow& flow);
  void read_logits(Context& ctx, const Tensor& part);

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
  std::vector<float> logits_;  // [batch, V]
};

// The dry run of a rank's largest forward.
MemoryPlan plan_generation(const GeneratorConfig& config, int rank = 0);

}  // namespace orthant
