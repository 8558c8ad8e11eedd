#include "infer/generator.h"

#include <algorithm>
#include <numeric>

#include "base/check.h"
#include "comm/backends.h"

namespace orthant {
namespace {

// The keys and values of a text this long still fit the address space of a dry run.
constexpr std::int64_t kMaxTokens = std::int64_t{1} << 23;

}  // namespace

GeneratorConfig generator_config(const ModelConfig& model, DType compute,
                                 std::int64_t prompt_tokens, std::int64_t num_tokens) {
  if (prompt_tokens < 1) {
    fail_user("the prompt has no token; give one with at least one");
  }
  if (num_tokens < 1 || num_tokens > kMaxTokens) {
    fail_user("--tokens={}: 1 to {} can be asked for", num_tokens, kMaxTokens);
  }
  // The last token of a text is not read by the model.
  std::int64_t max_tokens = prompt_tokens + num_tokens - 1;
  if (model.position == "learned") {
    if (prompt_tokens > model.max_positions) {
      fail_user(
          "the prompt has {} tokens, model.max_positions={} learned positions are all that "
          "there is; shorten the prompt",
          prompt_tokens, model.max_positions);
    }
    max_tokens = std::min(max_tokens, model.max_positions);
  }
  return {
      .model = model, .compute = compute, .max_forward = prompt_tokens, .max_tokens = max_tokens};
}

std::int64_t tokens_that_fit(const GeneratorConfig& config) {
  return config.max_tokens - config.max_forward + 1;
}

Generator::Generator(const GeneratorConfig& config, const Backend& backend,
                     const std::optional<MemoryPlan>& capacities)
    : config_(config),
      backend_(backend) {
  world_ = backend_.join_world(
      {.ledger = ledger_, .in_flight = in_flight_, .queue = backend_.device.queue()});
  const LayoutConfig layout;  // one rank
  mesh_ = std::make_unique<Mesh>(mesh_shape(layout), *world_);
  for (const char* name : {"params", "work", "cache"}) {
    make_arena(name, kDryRunArenaBytes, capacities);
  }
  for (const char* name : {"slot0", "slot1"}) {
    make_arena(name, kDryRunArenaBytes, capacities);
  }
  Arena& params = *arenas_[0];
  ops_ = make_ops(backend_.ops, {.ledger = ledger_,
                                 .in_flight = in_flight_,
                                 .work = *arenas_[1],
                                 .num_threads = backend_.num_threads,
                                 .target = config_.target,
                                 .queue = backend_.device.queue()});
  chunk_ = std::make_unique<Chunk>(config_.model, layout, chunk_range({config_.model.layers}, 0),
                                   *mesh_);
  std::vector<UnitSpec> units;
  chunk_->move_units(units);
  store_ = std::make_unique<ParamStore>(
      std::move(units),
      StoreConfig{.sharding = {}, .compute = config_.compute, .purpose = Purpose::kInfer},
      ParamStore::Parts{.ops = *ops_,
                        .device = backend_.device,
                        .mesh = *mesh_,
                        .params = params,
                        .staging = params});
  constants_ = make_constants(config_.model, *mesh_, backend_.device, params);
  cache_ = std::make_unique<CacheMemory>(config_.model, 1, config_.max_tokens, config_.compute,
                                         *arenas_[2]);
  for (int i = 0; i < 2; ++i) {
    stashes_.emplace_back(*arenas_[3 + static_cast<std::size_t>(i)], chunk_->num_layers());
  }
  positions_.resize(static_cast<std::size_t>(config_.max_forward));
  logits_.resize(static_cast<std::size_t>(config_.model.vocab));
}

Generator::~Generator() = default;

void Generator::make_arena(const std::string& name, std::int64_t dry_run_bytes,
                           const std::optional<MemoryPlan>& capacities) {
  std::int64_t bytes = dry_run_bytes;
  if (capacities) {
    const ArenaPlan* plan = capacities->find(name);
    ORTHANT_CHECK(plan != nullptr, "arena '{}' is not in the plan", name);
    bytes = plan->bytes;
  }
  arenas_.push_back(std::make_unique<Arena>(backend_.device, in_flight_, name, bytes));
}

std::span<const float> Generator::forward(std::span<const std::int32_t> tokens) {
  const auto count = static_cast<std::int64_t>(tokens.size());
  ORTHANT_CHECK(count >= 1 && count <= config_.max_forward,
                "a forward of {} tokens; it is planned for 1 to {}", count, config_.max_forward);
  ORTHANT_CHECK(length() + count <= cache_->capacity(),
                "the cache holds {} of {} tokens; {} more do not fit", length(), cache_->capacity(),
                count);
  ledger_.restart();
  Frame frame(*arenas_[1]);
  Context ctx{.ops = *ops_,
              .mesh = *mesh_,
              .work = *arenas_[1],
              .constants = constants_,
              .step_state = no_state_,
              .mode = Mode::kGenerate,
              .micro = load_tokens(tokens, frame),
              .cache = &cache_->view()};
  read_logits(run_layers(ctx));
  cache_->advance(count);
  return logits_;
}

MicroBatch Generator::load_tokens(std::span<const std::int32_t> tokens, Frame& frame) {
  const auto count = static_cast<std::int64_t>(tokens.size());
  MicroBatch micro{.B = 1,
                   .S = count,
                   .tokens = frame.alloc({count}, DType::kI32),
                   .labels = {},
                   .positions = frame.alloc({count}, DType::kI32),
                   .sample_ids = {}};
  const auto positions = std::span(positions_).first(tokens.size());
  std::iota(positions.begin(), positions.end(), static_cast<std::int32_t>(length()));
  backend_.device.to_device(micro.tokens, std::as_bytes(tokens));
  backend_.device.to_device(micro.positions, std::as_bytes(positions));
  return micro;
}

// A layer reads what the one before it left in the other slot; older ones are never needed again.
Tensor Generator::run_layers(Context& ctx) {
  const Shape shape = {ctx.micro.T(), config_.model.hidden};
  Flow flow;
  for (int i = 0; i < chunk_->num_layers(); ++i) {
    const Layer& layer = chunk_->layer(i);
    const Where where(ledger_, layer.name());
    Stash& stash = stashes_[static_cast<std::size_t>(i % 2)];
    stash.clear();
    arenas_[static_cast<std::size_t>(3 + i % 2)]->rewind({});
    for (const int unit : chunk_->units_of(i)) {
      store_->use(unit);
    }
    Flow out;
    if (&layer != chunk_->head()) {
      out.x = stash.alloc(shape, config_.compute);
      out.pending = stash.alloc(shape, config_.compute);
    }
    layer.forward(ctx, flow, out, stash);
    for (const int unit : chunk_->units_of(i)) {
      store_->release(unit);
    }
    flow = out;
  }
  return chunk_->head()
      ->saved(stashes_[static_cast<std::size_t>((chunk_->num_layers() - 1) % 2)])
      .logits;
}

void Generator::read_logits(const Tensor& logits) {
  raw_logits_.resize(static_cast<std::size_t>(logits.bytes()));
  backend_.device.to_host(raw_logits_, logits);
  const auto value = [&](std::size_t i) {
    if (logits.dtype == DType::kF32) return reinterpret_cast<const float*>(raw_logits_.data())[i];
    if (logits.dtype == DType::kF16) {
      return static_cast<float>(reinterpret_cast<const Half*>(raw_logits_.data())[i]);
    }
    return static_cast<float>(reinterpret_cast<const BFloat16*>(raw_logits_.data())[i]);
  };
  for (std::size_t i = 0; i < logits_.size(); ++i) {  // the padding of the vocabulary stays behind
    logits_[i] = value(i);
  }
}

MemoryPlan Generator::memory() const {
  MemoryPlan plan;
  for (const auto& arena : arenas_) {
    plan.arenas.push_back(
        {.name = arena->name(), .bytes = arena->peak(), .by_class = arena->peak_by_class()});
  }
  return plan;
}

MemoryPlan plan_generation(const GeneratorConfig& config) {
  const std::unique_ptr<Device> device = make_meta_device();
  const Backend backend{
      .device = *device,
      .ops = "meta",
      .join_world = [](const CommParts& parts) { return make_meta_world(0, 1, parts); },
      .num_threads = 1};
  Generator meta(config, backend, std::nullopt);
  meta.forward(std::vector<std::int32_t>(static_cast<std::size_t>(config.max_forward)));
  return meta.memory();
}

TextEnd write_text(Generator& generator, Sampler& sampler, const TextRequest& request,
                   const std::function<void(std::int32_t)>& on_token) {
  std::span<const std::int32_t> next = request.prompt;
  std::int32_t token = 0;
  for (std::int64_t i = 0; i < request.num_tokens; ++i) {
    const std::span<const float> logits = generator.forward(next);
    token = sampler.pick(logits.first(static_cast<std::size_t>(request.num_ids)), request.sequence,
                         generator.length());
    if (std::find(request.ends.begin(), request.ends.end(), token) != request.ends.end()) {
      return TextEnd::kDocument;
    }
    on_token(token);
    next = std::span(&token, 1);
  }
  return TextEnd::kTokens;
}

}  // namespace orthant
