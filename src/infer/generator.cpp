#include "infer/generator.h"

#include <algorithm>

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

void check_layout(const GeneratorConfig& config) {
  const ModelConfig& model = config.model;
  const int tp = config.tp;
  if (tp < 1 || !tp_fits(model, tp)) {
    fail_user(
        "--tp={}: it must divide heads={} and ffn={}, and divide kv_heads={} or be a multiple; "
        "give another",
        tp, model.heads, model.ffn, model.kv_heads);
  }
  if (config.pp < 1 || config.pp > model.layers) {
    fail_user("--pp={}: each stage needs a block, model.layers={}; give 1 to {}", config.pp,
              model.layers, model.layers);
  }
}

std::int64_t tokens_that_fit(const GeneratorConfig& config, std::int64_t prompt_tokens) {
  return config.max_tokens - prompt_tokens + 1;
}

Generator::Generator(const GeneratorConfig& config, const Backend& backend,
                     const std::optional<MemoryPlan>& capacities)
    : config_(config),
      backend_(backend) {
  world_ = backend_.join_world(
      {.ledger = ledger_, .in_flight = in_flight_, .queue = backend_.device.queue()});
  mesh_ = std::make_unique<Mesh>(mesh_shape(layout()), *world_, kv_copies(config_.model, layout()));
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
  const std::vector<std::int64_t> blocks =
      blocks_per_part(config_.model, layout().stages, straight(config_.pp), config_.max_tokens);
  chunk_ = std::make_unique<Chunk>(config_.model, layout(),
                                   chunk_range(blocks, mesh_->coord(Axis::kPp)), *mesh_);
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
  cache_ = std::make_unique<CacheMemory>(
      CacheMemory::Sizes{.blocks = chunk_->range().num_blocks,
                         .B = config_.batch,
                         .M = config_.max_tokens,
                         .G = std::max<std::int64_t>(1, config_.model.kv_heads / config_.tp),
                         .D = config_.model.head_dim},
      config_.compute, *arenas_[2]);
  for (int i = 0; i < 2; ++i) {
    stashes_.emplace_back(*arenas_[3 + static_cast<std::size_t>(i)], chunk_->num_layers());
  }
  positions_.resize(static_cast<std::size_t>(config_.batch * config_.max_forward));
  logits_.resize(static_cast<std::size_t>(config_.batch * config_.model.vocab));
}

Generator::~Generator() = default;

LayoutConfig Generator::layout() const {
  LayoutConfig layout;
  layout.ranks = config_.num_ranks();
  layout.tp = config_.tp;
  layout.pp = config_.pp;
  return layout;
}

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
  const std::int64_t count = static_cast<std::int64_t>(tokens.size()) / config_.batch;
  ORTHANT_CHECK(count >= 1 && count <= config_.max_forward &&
                    count * config_.batch == static_cast<std::int64_t>(tokens.size()),
                "a forward of {} tokens; it is planned for {} sequences of 1 to {}", tokens.size(),
                config_.batch, config_.max_forward);
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
  read_logits(ctx, run_layers(ctx));
  cache_->advance(count);
  return logits_;
}

MicroBatch Generator::load_tokens(std::span<const std::int32_t> tokens, Frame& frame) {
  const auto count = static_cast<std::int64_t>(tokens.size());
  MicroBatch micro{.B = config_.batch,
                   .S = count / config_.batch,
                   .tokens = frame.alloc({count}, DType::kI32),
                   .labels = {},
                   .positions = frame.alloc({count}, DType::kI32),
                   .sample_ids = {}};
  const auto positions = std::span(positions_).first(tokens.size());
  for (std::size_t i = 0; i < positions.size(); ++i) {
    positions[i] = static_cast<std::int32_t>(length() + static_cast<std::int64_t>(i) % micro.S);
  }
  backend_.device.to_device(micro.tokens, std::as_bytes(tokens));
  backend_.device.to_device(micro.positions, std::as_bytes(positions));
  return micro;
}

// A layer reads what the one before it left in the other slot; older ones are never needed again.
// The result is this rank's columns of the logits, of the last stage; absent on the others.
Tensor Generator::run_layers(Context& ctx) {
  const Shape shape = {ctx.micro.T(), config_.model.hidden};
  Flow flow = mesh_->is_first_stage() ? Flow{} : receive(ctx);
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
  if (chunk_->head() == nullptr) {
    send(ctx, flow);
    return {};
  }
  return chunk_->head()
      ->saved(stashes_[static_cast<std::size_t>((chunk_->num_layers() - 1) % 2)])
      .logits;
}

// Into the slot that the first layer does not use.
Flow Generator::receive(Context& ctx) {
  const Where where(ledger_, "activations");
  stashes_[1].clear();
  arenas_[4]->rewind({});
  Flow flow;
  flow.x = stashes_[1].alloc({ctx.micro.T(), config_.model.hidden}, config_.compute);
  Communicator& pp = mesh_->pp_acts();
  pp.wait(pp.start_recv(flow.x, mesh_->coord(Axis::kPp) - 1, cache_->length()));
  return flow;
}

void Generator::send(Context& ctx, const Flow& flow) {
  const Where where(ledger_, "activations");
  Frame frame(ctx.work);
  const Tensor sum = frame.alloc(flow.x.shape, config_.compute);
  complete(ctx, sum, flow);
  Communicator& pp = mesh_->pp_acts();
  pp.wait(pp.start_send(sum, mesh_->coord(Axis::kPp) + 1, cache_->length()));
}

// The columns of all tp ranks, from the last stage to all.
void Generator::read_logits(Context& ctx, const Tensor& part) {
  const Where where(ledger_, "logits");
  const std::int64_t tp = config_.tp;
  const std::int64_t width = vocab_part(config_.model.vocab, config_.tp);
  Frame frame(ctx.work);
  Tensor whole = part;
  if (config_.num_ranks() > 1) whole = frame.alloc({tp, config_.batch, width}, config_.compute);
  if (part.present() && tp > 1) mesh_->tp().all_gather(whole, part);
  if (part.present() && tp == 1 && config_.pp > 1)
    ctx.ops.run(Copy{.y = whole.as(part.shape), .x = part});
  if (config_.pp > 1) mesh_->pp_acts().broadcast(whole, config_.pp - 1);
  raw_logits_.resize(static_cast<std::size_t>(whole.bytes()));
  backend_.device.to_host(raw_logits_, whole);
  const auto value = [&](std::size_t i) {
    if (whole.dtype == DType::kF32) return reinterpret_cast<const float*>(raw_logits_.data())[i];
    if (whole.dtype == DType::kF16) {
      return static_cast<float>(reinterpret_cast<const Half*>(raw_logits_.data())[i]);
    }
    return static_cast<float>(reinterpret_cast<const BFloat16*>(raw_logits_.data())[i]);
  };
  const std::int64_t V = config_.model.vocab;
  for (std::int64_t b = 0; b < config_.batch; ++b) {
    for (std::int64_t v = 0; v < V; ++v) {  // the padding of the vocabulary stays behind
      logits_[static_cast<std::size_t>(b * V + v)] =
          value(static_cast<std::size_t>((v / width * config_.batch + b) * width + v % width));
    }
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

MemoryPlan plan_generation(const GeneratorConfig& config, int rank) {
  const std::unique_ptr<Device> device = make_meta_device();
  const int num_ranks = config.num_ranks();
  const Backend backend{
      .device = *device,
      .ops = "meta",
      .join_world = [=](const CommParts& p) { return make_meta_world(rank, num_ranks, p); },
      .num_threads = 1};
  Generator meta(config, backend, std::nullopt);
  meta.forward(
      std::vector<std::int32_t>(static_cast<std::size_t>(config.batch * config.max_forward)));
  return meta.memory();
}

}  // namespace orthant
