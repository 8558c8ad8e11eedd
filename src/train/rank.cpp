#include "train/rank.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "base/check.h"

namespace orthant {

Rank::Rank(const RankConfig& config, const Backend& backend,
           const std::optional<MemoryPlan>& capacities)
    : config_(config),
      backend_(backend) {
  world_ = backend_.join_world(
      {.ledger = ledger_, .in_flight = in_flight_, .queue = backend_.device.queue()});
  mesh_ = std::make_unique<Mesh>(mesh_shape(config_.layout), *world_,
                                 kv_copies(config_.model, config_.layout));
  const Placement placement = straight(config_.layout.pp);
  const RankActions& actions =
      program(config_.max_micros, config_.purpose == Purpose::kTrain).actions;
  make_arenas(capacities, in_flight(actions, 0));
  Arena& params = *arenas_[0];
  Arena& work = *arenas_[1];
  ops_ = make_ops(backend_.ops, {.ledger = ledger_,
                                 .in_flight = in_flight_,
                                 .work = work,
                                 .num_threads = backend_.num_threads,
                                 .target = config_.target,
                                 .queue = backend_.device.queue()});
  chunk_ = std::make_unique<Chunk>(
      config_.model, chunk_range(config_.model, config_.layout, mesh_->coord(Axis::kPp)), *mesh_);
  store_ = std::make_unique<ParamStore>(
      chunk_->take_units(), zero(config_.layout.zero_stage), config_.compute, config_.purpose,
      ParamStore::Parts{.ops = *ops_, .device = backend_.device, .mesh = *mesh_, .params = params});
  constants_ = make_constants(config_.model, *mesh_, backend_.device, params);
  state_tensor_ = params.alloc(step_state_shape(), DType::kU8, MemClass::kOptimizer);
  norm_sum_ = params.alloc({kNormLimbs}, DType::kI64, MemClass::kOptimizer);
  totals_ = params.alloc({2}, DType::kF64, MemClass::kOptimizer);
  probe_counts_ = params.alloc({chunk_->num_layers()}, DType::kI64, MemClass::kOptimizer);
  std::vector<Arena*> slots;
  for (std::size_t i = 3; i < arenas_.size(); ++i) {
    slots.push_back(arenas_[i].get());
  }
  stage_ = std::make_unique<ModelStage>(config_.model, *chunk_, config_.layout.micro_batch,
                                        config_.seq_length, config_.compute,
                                        ModelStage::Parts{.mesh = *mesh_,
                                                          .ops = *ops_,
                                                          .ledger = ledger_,
                                                          .device = backend_.device,
                                                          .store = *store_,
                                                          .constants = constants_,
                                                          .step_state = state_tensor_,
                                                          .work = work,
                                                          .messages = *arenas_[2],
                                                          .slots = std::move(slots)});
  interpreter_ =
      std::make_unique<Interpreter>(mesh_->pp_acts(), mesh_->pp_grads(), *stage_, placement);
}

Rank::~Rank() = default;

// params, work, messages, then one arena a slot.
void Rank::make_arenas(const std::optional<MemoryPlan>& capacities, int num_slots) {
  const auto make = [&](const std::string& name, std::int64_t dry_run_bytes) {
    std::int64_t bytes = dry_run_bytes;
    if (capacities) {
      const ArenaPlan* plan = capacities->find(name);
      ORTHANT_CHECK(plan != nullptr, "arena '{}' is not in the plan", name);
      bytes = plan->bytes;
    }
    arenas_.push_back(std::make_unique<Arena>(backend_.device, in_flight_, name, bytes));
  };
  make("params", kDryRunArenaBytes);
  make("work", kDryRunArenaBytes);
  make("messages", kDryRunArenaBytes);
  for (int i = 0; i < num_slots; ++i) {
    make(fmt::format("slot{}", i), kDryRunArenaBytes);
  }
}

// The schedule is proven before the first of its actions runs.
const Rank::Program& Rank::program(int num_micros, bool trains) {
  const auto found = std::find_if(programs_.begin(), programs_.end(), [&](const Program& p) {
    return p.num_micros == num_micros && p.trains == trains;
  });
  if (found != programs_.end()) return *found;
  const int pp = config_.layout.pp;
  const Placement placement = straight(pp);
  const Schedule schedule = lower(trains ? make_schedule(config_.layout.schedule, pp, num_micros)
                                         : forward_only(pp, num_micros),
                                  placement);
  simulate(schedule, placement);
  programs_.push_back(
      {num_micros, trains, schedule[static_cast<std::size_t>(mesh_->coord(Axis::kPp))]});
  return programs_.back();
}

double Rank::inv_tokens(int num_micros) const {
  const double tokens = static_cast<double>(config_.layout.micro_batch) *
                        static_cast<double>(config_.seq_length) * num_micros *
                        mesh_->size(Axis::kDp);
  return 1.0 / tokens;
}

void Rank::write_state(double inverse_tokens) {
  state_.seed = config_.seed;
  state_.inv_tokens = inverse_tokens;
  state_.max_norm = config_.max_norm;
  state_.loss_sum = 0;
  backend_.device.to_device(state_tensor_, std::as_bytes(std::span(&state_, 1)));
}

void Rank::forward_backward(std::int64_t number, double lr, std::span<const HostMicro> micros,
                            int num_micros) {
  const Program& plan = program(num_micros, true);
  ledger_.restart();
  state_.step = number;
  state_.lr = lr;
  write_state(inv_tokens(num_micros));
  store_->begin_step();
  stage_->begin(Mode::kTrain, micros, num_micros);
  interpreter_->run(plan.actions);
  const Where where(ledger_, "update");
  store_->finish_grads();
  compute_clip_factor(*ops_, *store_, norm_sum_, state_tensor_);
}

// Loss of the whole global batch on every rank: the last stage's, each token once. Votes travel
// with it.
void Rank::sum_totals() {
  const double votes[2] = {0, votes_stop_ ? 1.0 : 0.0};
  backend_.device.to_device(totals_, std::as_bytes(std::span(votes)));
  if (mesh_->is_last_stage() && mesh_->coord(Axis::kTp) == 0) {
    constexpr auto kOffset = static_cast<std::int64_t>(offsetof(StepState, loss_sum));
    const Tensor mine{.data = state_tensor_.data + kOffset, .shape = {1}, .dtype = DType::kF64};
    ops_->run(Copy{.y = totals_.flat(0, 1), .x = mine});
  }
  world_->all_reduce(totals_, Reduce::kSum);
}

StepResult Rank::read_result() {
  const double inverse = state_.inv_tokens;
  double totals[2] = {0, 0};
  backend_.device.to_host(std::as_writable_bytes(std::span(&state_, 1)), state_tensor_);
  backend_.device.to_host(std::as_writable_bytes(std::span(totals)), totals_);
  return {.loss = totals[0] * inverse,
          .grad_norm = state_.grad_norm,
          .is_finite = state_.skip == 0,
          .stops = totals[1] > 0};
}

StepResult Rank::step(std::int64_t number, double lr, std::span<const HostMicro> micros,
                      int num_micros) {
  forward_backward(number, lr, micros, num_micros);
  {
    const Where where(ledger_, "update");
    update_parameters(*ops_, *store_, config_.optimizer, state_tensor_);
    store_->publish();
    sum_totals();
  }
  return read_result();
}

StepResult Rank::gradients(std::int64_t number, std::span<const HostMicro> micros, int num_micros) {
  const std::int64_t updates = state_.updates;
  forward_backward(number, 0.0, micros, num_micros);
  sum_totals();
  const StepResult result = read_result();
  state_.updates = updates;
  return result;
}

double Rank::evaluate(std::span<const HostMicro> micros, int num_micros,
                      ModelStage::HeadObserver observer) {
  const Program& plan = program(num_micros, false);
  ledger_.restart();
  const StepState before = state_;
  write_state(inv_tokens(num_micros));
  stage_->begin(Mode::kEvaluate, micros, num_micros);
  stage_->observe_head(std::move(observer));
  interpreter_->run(plan.actions);
  stage_->observe_head({});
  sum_totals();
  const double loss = read_result().loss;
  state_ = before;
  return loss;
}

std::string Rank::find_non_finite(std::span<const HostMicro> micros, int num_micros) {
  const Program& plan = program(num_micros, false);
  ledger_.restart();
  const std::string grad = store_->first_non_finite_grad();
  ops_->run(Zero{.y = probe_counts_});
  write_state(inv_tokens(num_micros));
  stage_->probe_into(probe_counts_);
  stage_->begin(Mode::kTrain, micros, num_micros);
  interpreter_->run(plan.actions);
  stage_->probe_into({});

  // Earlier is larger; a gradient comes after all layers.
  const double layers = static_cast<double>(config_.model.layers) + 2;
  std::vector<std::int64_t> counts(static_cast<std::size_t>(chunk_->num_layers()));
  backend_.device.to_host(std::as_writable_bytes(std::span(counts)), probe_counts_);
  double earliest = grad.empty() ? -2 * layers : -layers - static_cast<double>(chunk_->place_of(0));
  for (int i = chunk_->num_layers() - 1; i >= 0; --i) {
    if (counts[static_cast<std::size_t>(i)] > 0)
      earliest = -static_cast<double>(chunk_->place_of(i));
  }
  const Tensor shared = totals_.flat(0, 1);
  backend_.device.to_device(shared, std::as_bytes(std::span(&earliest, 1)));
  world_->all_reduce(shared, Reduce::kMax);
  backend_.device.to_host(std::as_writable_bytes(std::span(&earliest, 1)), shared);
  const auto place = static_cast<std::int64_t>(-earliest);
  if (place == 0) return "embed";
  if (place <= config_.model.layers) return fmt::format("h.{}", place - 1);
  if (place == config_.model.layers + 1) return "head";
  return place >= 2 * static_cast<std::int64_t>(layers)
             ? "the sum of the gradients' squares"
             : "a gradient" + (grad.empty() ? "" : ": that of " + grad);
}

MemoryPlan Rank::memory() const {
  MemoryPlan plan;
  for (const auto& arena : arenas_) {
    plan.arenas.push_back(
        {.name = arena->name(), .bytes = arena->peak(), .by_class = arena->peak_by_class()});
  }
  return plan;
}

}  // namespace orthant
