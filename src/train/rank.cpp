#include "train/rank.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "base/check.h"
#include "train/run_schedule.h"

namespace orthant {
namespace {

bool offloads_optimizer(const RankConfig& config) {
  return config.purpose == Purpose::kTrain && config.layout.offload == "optimizer" &&
         config.layout.offload_fraction > 0;
}

StoreConfig store_config(const RankConfig& config) {
  return {.sharding = zero(config.layout.zero_stage),
          .gather = config.layout.zero_gather == "step" ? StoreConfig::Gather::kStep
                                                        : StoreConfig::Gather::kMicro,
          .compute = config.compute,
          .master = config.master,
          .moments = config.moments,
          .grads = config.grads,
          .offload_fraction = offloads_optimizer(config) ? config.layout.offload_fraction : 0,
          .purpose = config.purpose};
}

}  // namespace

Rank::Rank(const RankConfig& config, const Backend& backend,
           const std::optional<MemoryPlan>& capacities)
    : config_(config),
      backend_(backend),
      transfers_(backend_.device, ledger_, in_flight_),
      world_(backend_.join_world(comm_parts(capacities))),
      mesh_(std::make_unique<Mesh>(mesh_shape(config_.layout), *world_,
                                   kv_copies(config_.model, config_.layout))),
      programs_(backend.programs != nullptr
                    ? *backend.programs
                    : own_programs_.emplace(schedule_choice(config_.layout))) {
  Arena& params = make_arena("params", capacities);
  Arena& work = make_arena("work", capacities);
  ops_ = make_ops(backend_.ops, {.ledger = ledger_,
                                 .in_flight = in_flight_,
                                 .work = work,
                                 .num_threads = backend_.num_threads,
                                 .target = config_.target,
                                 .queue = backend_.device.queue(),
                                 .algorithms = backend_.algorithms});
  build_chunks();
  std::vector<UnitSpec> units;
  int num_layers = 0;
  for (const auto& chunk : chunks_) {
    chunk->move_units(units);
    num_layers += chunk->num_layers();
  }
  build_store(std::move(units), params, capacities);
  constants_ = make_constants(config_.model, *mesh_, backend_.device, params);
  state_tensor_ = params.alloc(step_state_shape(), DType::kU8, MemClass::kOptimizer);
  norm_sum_ = params.alloc({kNormLimbs}, DType::kI64, MemClass::kOptimizer);
  totals_ = params.alloc({3}, DType::kF64, MemClass::kOptimizer);
  probe_counts_ = params.alloc({num_layers}, DType::kI64, MemClass::kOptimizer);
  if (config_.compute == DType::kF16) {
    state_.loss_scale = kFirstLossScale;
    state_.scale_window = kScaleWindow;
  }
  stage_ = build_stage(work, capacities);
  interpreter_ = std::make_unique<Interpreter>(mesh_->pp_acts(), mesh_->pp_grads(), *stage_,
                                               programs_.placement());
}

// What runs beside the rank ends before its memory does.
Rank::~Rank() {
  backend_.device.drain();
}

// As large as planned; in a dry run, without an end.
Arena& Rank::make_arena(const std::string& name, const std::optional<MemoryPlan>& capacities,
                        Arena::Place place) {
  std::int64_t bytes = kDryRunArenaBytes;
  if (capacities) {
    const ArenaPlan* plan = capacities->find(name);
    ORTHANT_CHECK(plan != nullptr, "arena '{}' is not in the plan", name);
    bytes = plan->bytes;
  }
  arenas_.push_back(std::make_unique<Arena>(backend_.device, in_flight_, name, bytes, place));
  return *arenas_.back();
}

CommParts Rank::comm_parts(const std::optional<MemoryPlan>& capacities) {
  const bool on_gpu = config_.target != Target::kHost;
  return {
      .ledger = ledger_,
      .in_flight = in_flight_,
      .queue = backend_.device.queue(),
      .scratch = on_gpu && config_.layout.ranks > 1 ? &make_arena("calls", capacities) : nullptr,
      .rank_order = config_.target != Target::kCuda};
}

void Rank::build_store(std::vector<UnitSpec> units, Arena& params,
                       const std::optional<MemoryPlan>& capacities) {
  Arena& staging = make_arena("staging", capacities);
  ParamStore::Parts parts{.ops = *ops_,
                          .device = backend_.device,
                          .mesh = *mesh_,
                          .params = params,
                          .staging = staging};
  if (offloads_optimizer(config_)) {
    parts.host.emplace(host_parts(make_arena("host", capacities, Arena::Place::kHost), staging));
  }
  store_ = std::make_unique<ParamStore>(std::move(units), store_config(config_), parts);
  store_->set_host_update([this](const Segment& segment, const Tensor& state) {
    return update_of(segment, config_.optimizer, state);
  });
}

// What runs beside the rank has a ledger and memory of its own; the host leaves a core to the
// thread that drives a GPU, which never rests.
HostUpdates::Parts Rank::host_parts(Arena& arena, Arena& staging) {
  host_ = std::make_unique<Beside>(backend_.device.host());
  const int spared = backend_.ops == "cuda" ? 1 : 0;
  host_->ops = make_ops(backend_.ops == "cuda" ? "cpu" : backend_.ops,
                        {.ledger = host_->ledger,
                         .in_flight = host_->in_flight,
                         .work = host_->work,
                         .num_threads = std::max(1, backend_.num_threads - spared)});
  HostUpdates::Parts parts{.host = {.ops = host_->ops.get(), .ledger = &host_->ledger},
                           .device = {},
                           .transfers = transfers_,
                           .arena = arena,
                           .staging = staging};
  if (config_.target == Target::kHost) return parts;
  device_beside_ = std::make_unique<Beside>(backend_.device);
  device_beside_->ops = make_ops(backend_.ops, {.ledger = device_beside_->ledger,
                                                .in_flight = device_beside_->in_flight,
                                                .work = device_beside_->work,
                                                .num_threads = backend_.num_threads,
                                                .target = config_.target,
                                                .queue = backend_.device.queue_beside()});
  parts.device = {.ops = device_beside_->ops.get(), .ledger = &device_beside_->ledger};
  return parts;
}

void Rank::build_chunks() {
  const Placement& placement = programs_.placement();
  const std::vector<std::int64_t> blocks =
      blocks_per_part(config_.model, config_.layout.stages, placement, config_.seq_length);
  const int rank = mesh_->coord(Axis::kPp);
  std::int64_t blocks_before = 0;
  for (int chunk = 0; chunk < placement.num_chunks(rank); ++chunk) {
    ChunkRange range = chunk_range(blocks, placement.part_at(rank, chunk));
    range.blocks_before = blocks_before;
    blocks_before += range.num_blocks;
    chunks_.push_back(std::make_unique<Chunk>(config_.model, config_.layout, range, *mesh_));
  }
}

std::unique_ptr<ModelStage> Rank::build_stage(Arena& work,
                                              const std::optional<MemoryPlan>& capacities) {
  Arena& messages = make_arena("messages", capacities);
  // An evaluation takes one slot.
  const bool trains = config_.purpose == Purpose::kTrain;
  const int num_slots = trains ? most_of([](const auto& list) { return in_flight(list); }) : 1;
  const int num_lates = trains ? most_of(between_halves) : 0;
  const auto several = [&](const char* name, int count) {
    std::vector<Arena*> arenas;
    arenas.reserve(static_cast<std::size_t>(count));
    for (int i = 0; i < count; ++i) {
      arenas.push_back(&make_arena(fmt::format("{}{}", name, i), capacities));
    }
    return arenas;
  };
  std::vector<Arena*> slots = several("slot", num_slots);
  std::vector<Arena*> lates = several("late", num_lates);
  std::vector<Arena*> works = {&work};
  std::vector<Arena*> agains = {&make_arena("again", capacities)};
  if (trains && config_.layout.takes_turns()) {  // both halves of a micro-batch at a time
    works.push_back(&make_arena("work of halves", capacities));
    agains.push_back(&make_arena("again of halves", capacities));
  }
  std::vector<Arena*> hosts;
  if (config_.layout.offload == "stash") hosts = make_offload(slots.size(), capacities);
  return std::make_unique<ModelStage>(chunks_, programs_.placement(),
                                      ModelStage::Sizes{.B = config_.layout.micro_batch,
                                                        .S = config_.seq_length,
                                                        .C = config_.model.hidden,
                                                        .compute = config_.compute,
                                                        .by_document = config_.by_document},
                                      ModelStage::Parts{.mesh = *mesh_,
                                                        .ops = *ops_,
                                                        .ledger = ledger_,
                                                        .device = backend_.device,
                                                        .store = *store_,
                                                        .constants = constants_,
                                                        .step_state = state_tensor_,
                                                        .works = std::move(works),
                                                        .messages = messages,
                                                        .agains = std::move(agains),
                                                        .slots = std::move(slots),
                                                        .lates = std::move(lates),
                                                        .offload = offload_.get(),
                                                        .hosts = std::move(hosts)});
}

// Returns the host's arena of each slot.
std::vector<Arena*> Rank::make_offload(std::size_t num_slots,
                                       const std::optional<MemoryPlan>& capacities) {
  std::vector<Arena*> windows;
  windows.reserve(StashOffload::kWindows);
  for (int i = 0; i < StashOffload::kWindows; ++i) {
    windows.push_back(&make_arena(fmt::format("window{}", i), capacities));
  }
  offload_ = std::make_unique<StashOffload>(transfers_, std::move(windows));
  std::vector<Arena*> hosts;
  hosts.reserve(num_slots);
  for (std::size_t i = 0; i < num_slots; ++i) {
    hosts.push_back(&make_arena(fmt::format("away{}", i), capacities, Arena::Place::kHost));
  }
  return hosts;
}

int Rank::most_of(const std::function<int(const RankActions&)>& count) {
  const auto rank = static_cast<std::size_t>(mesh_->coord(Axis::kPp));
  int most = count(programs_.training(config_.max_micros)[rank]);
  for (const int micros : config_.other_micros) {
    most = std::max(most, count(programs_.training(micros)[rank]));
  }
  return most;
}

const LmHead* Rank::head() const {
  return chunks_.back()->head();
}

// The units that a list of actions uses, found once.
std::span<const int> Rank::uses_of(const ModelStage::Run& run, const RankActions& actions) {
  const auto known = std::find_if(uses_.begin(), uses_.end(), [&run](const Uses& uses) {
    return uses.list == run.list && uses.num_micros == run.num_micros;
  });
  if (known != uses_.end()) return known->units;
  uses_.push_back({run.list, run.num_micros, stage_->uses(actions)});
  return uses_.back().units;
}

void Rank::run(const ModelStage::Run& run) {
  const Schedule& schedule = run.list == Slots::List::kTraining
                                 ? programs_.training(run.num_micros)
                                 : programs_.evaluation(run.num_micros);
  const RankActions& actions = schedule[static_cast<std::size_t>(mesh_->coord(Axis::kPp))];
  store_->expect_uses(uses_of(run, actions));
  stage_->begin(run);
  interpreter_->run(actions);
}

std::int64_t Rank::count_targets(std::span<const HostMicro> micros, int num_micros) const {
  const std::int64_t all = config_.layout.micro_batch * config_.seq_length * mesh_->size(Axis::kDp);
  if (micros.empty()) return all * num_micros;
  std::int64_t sum = 0;
  for (const HostMicro& micro : micros) {
    sum += micro.places.empty() ? all : micro.num_targets;
  }
  return sum;
}

// The mean of no target is 0.
void Rank::write_state(std::span<const HostMicro> micros, int num_micros) {
  num_targets_ = count_targets(micros, num_micros);
  state_.seed = config_.seed;
  state_.inv_tokens = 1.0 / static_cast<double>(std::max<std::int64_t>(1, num_targets_));
  state_.max_norm = config_.max_norm;
  state_.loss_sum = 0;
  backend_.device.to_device(state_tensor_, std::as_bytes(std::span(&state_, 1)));
}

void Rank::forward_backward(std::int64_t number, double lr, std::span<const HostMicro> micros,
                            int num_micros) {
  ledger_.restart();
  state_.step = number;
  state_.lr = lr;
  write_state(micros, num_micros);
  store_->begin_step();
  run({Mode::kTrain, Slots::List::kTraining, micros, num_micros});
  ledger_.begin_action({});
  const Where where(ledger_, "update");
  store_->finish_grads();
  compute_clip_factor(*ops_, *store_, norm_sum_, state_tensor_);
}

// Loss of the whole global batch on every rank: the last part's, each token once. Votes travel
// with it.
void Rank::sum_totals() {
  const double votes[3] = {0, votes_stop_ ? 1.0 : 0.0, is_ready_ ? 1.0 : 0.0};
  backend_.device.to_device(totals_, std::as_bytes(std::span(votes)));
  if (head() != nullptr && mesh_->coord(Axis::kTp) == 0) {
    constexpr auto kOffset = static_cast<std::int64_t>(offsetof(StepState, loss_sum));
    const Tensor mine{.data = state_tensor_.data + kOffset, .shape = {1}, .dtype = DType::kF64};
    ops_->run(Copy{.y = totals_.flat(0, 1), .x = mine});
  }
  world_->all_reduce(totals_, Reduce::kSum);
}

StepResult Rank::read_result() {
  const double inverse = state_.inv_tokens;
  const double loss_scale = state_.loss_scale;
  double totals[3] = {0, 0, 0};
  const auto queued = std::chrono::steady_clock::now();
  backend_.device.to_host(std::as_writable_bytes(std::span(&state_, 1)), state_tensor_);
  backend_.device.to_host(std::as_writable_bytes(std::span(totals)), totals_);
  world_->throw_if_failed();
  return {.loss = totals[0] * inverse,
          .targets = num_targets_,
          .grad_norm = state_.grad_norm,
          .is_finite = state_.skip == 0,
          .can_go_on = state_.skip == 0 || loss_scale > state_.loss_scale,
          .loss_scale = loss_scale,
          .skipped = state_.skipped,
          .stops = totals[1] > 0,
          .num_ready = static_cast<int>(totals[2]),
          .queued = queued};
}

StepResult Rank::step(std::int64_t number, double lr, std::span<const HostMicro> micros,
                      int num_micros) {
  forward_backward(number, lr, micros, num_micros);
  {
    const Where where(ledger_, "update");
    before_updates_();
    store_->begin_host_updates(state_tensor_);
    update_parameters(*ops_, *store_, config_.optimizer, state_tensor_);
    store_->publish();
    sum_totals();
  }
  return read_result();
}

StepResult Rank::gradients(std::int64_t number, std::span<const HostMicro> micros, int num_micros) {
  const StepState before = state_;
  forward_backward(number, 0.0, micros, num_micros);
  sum_totals();
  const StepResult result = read_result();
  state_ = before;
  return result;
}

MeanLoss Rank::evaluate(std::span<const HostMicro> micros, int num_micros,
                        ModelStage::HeadObserver observer) {
  ledger_.restart();
  const StepState before = state_;
  write_state(micros, num_micros);
  stage_->observe_head(std::move(observer));
  run({Mode::kEvaluate, Slots::List::kForwardOnly, micros, num_micros});
  stage_->observe_head({});
  sum_totals();
  const StepResult result = read_result();
  state_ = before;
  return {.loss = result.loss, .targets = result.targets};
}

// Piece by piece, through memory that every step fills anew.
void Rank::sum_over_ranks(std::span<std::int64_t> numbers) {
  ledger_.restart();
  const Where where(ledger_, "numbers");
  for (std::size_t first = 0; first < numbers.size(); first += kNormLimbs) {
    const auto piece =
        numbers.subspan(first, std::min<std::size_t>(kNormLimbs, numbers.size() - first));
    const Tensor shared = norm_sum_.flat(0, static_cast<std::int64_t>(piece.size()));
    backend_.device.to_device(shared, std::as_bytes(piece));
    world_->all_reduce(shared, Reduce::kSum);
    backend_.device.to_host(std::as_writable_bytes(piece), shared);
  }
  world_->throw_if_failed();
}

MemoryPlan Rank::memory() const {
  MemoryPlan plan;
  for (const auto& arena : arenas_) {
    plan.arenas.push_back({.name = arena->name(),
                           .bytes = arena->peak(),
                           .by_class = arena->peak_by_class(),
                           .on_host = arena->place() == Arena::Place::kHost});
  }
  return plan;
}

void Rank::trace_memory(std::vector<ClassBytes>& marks) {
  ledger_.observe([this, &marks] {
    marks.push_back(memory().by_class());
    begin_phase();
  });
}

void Rank::begin_phase() {
  for (const auto& arena : arenas_) {
    arena->restart_peak();
  }
}

}  // namespace orthant
