#include "plan/rates.h"

#include <algorithm>
#include <cmath>
#include <iterator>
#include <map>
#include <string_view>

#include "plan/traffic.h"

namespace orthant {
namespace {

// How far two sizes are apart.
double gap(double a, double b) {
  return std::log(a) - std::log(b);
}

// The rate of one kind of product. Measured ones count by how near they are in work and depth.
class ProductRate {
 public:
  ProductRate(const ProductRates& all, const std::vector<double>& depth,
              const std::vector<double>& rates)
      : depth_(depth),
        rates_(rates) {
    for (std::size_t i = 0; i < all.tokens.size(); ++i) {
      flops_.push_back(2 * all.tokens[i] * all.inputs[i] * all.outputs[i]);
    }
  }

  double tflops(const Cost& cost) const {
    double sum = 0;
    double weights = 0;
    for (std::size_t i = 0; i < flops_.size(); ++i) {
      const double far_squared =
          std::pow(gap(cost.flops, flops_[i]), 2) + std::pow(gap(cost.depth, depth_[i]), 2);
      const double weight = 1 / std::pow(far_squared + 1e-4, 2);
      sum += weight * rates_[i];
      weights += weight;
    }
    return sum / weights;
  }
  bool is_known() const { return !flops_.empty(); }

 private:
  std::vector<double> flops_;
  std::vector<double> depth_;
  std::vector<double> rates_;
};

// Of heads of the nearest size, between the sequences next to this one.
double attention_tflops(const AttentionRates& all, const std::vector<double>& rates, double head,
                        double sequence) {
  double nearest = all.head_size.front();
  for (const double size : all.head_size) {
    if (std::abs(gap(size, head)) < std::abs(gap(nearest, head))) nearest = size;
  }
  std::map<double, double> by_sequence;
  for (std::size_t i = 0; i < rates.size(); ++i) {
    if (all.head_size[i] == nearest) by_sequence[all.sequence[i]] = rates[i];
  }
  const auto above = by_sequence.lower_bound(sequence);
  if (above == by_sequence.end()) return by_sequence.rbegin()->second;
  if (above == by_sequence.begin()) return above->second;
  const auto below = std::prev(above);
  const double share = gap(sequence, below->first) / gap(above->first, below->first);
  return below->second + share * (above->second - below->second);
}

class OpTimes {
 public:
  OpTimes(Machine machine, const Work& work)
      : machine_(std::move(machine)),
        work_(work),
        forward_(machine_.products, machine_.products.inputs, machine_.products.forward),
        backward_input_(machine_.products, machine_.products.outputs,
                        machine_.products.backward_input),
        backward_weight_(machine_.products, machine_.products.tokens,
                         machine_.products.backward_weight) {
    machine_.ops.fields([this](const char* name, const double& gb_s, const char* /*help*/) {
      if (gb_s > 0) gb_s_.emplace(name, gb_s);
    });
  }

  double seconds(const Stretch::Op& op) const {
    const double tflops = arithmetic(op);
    const double flops_s = tflops > 0 ? op.cost.flops / (tflops * 1e12) : 0;
    const double bytes_s = moved_s(op.what, op.cost.bytes - op.cost.activation_bytes);
    const double work_s = std::max(flops_s, bytes_s) + activation_s(op);
    const double sharing = machine_.shares_host() ? work_.ranks : 1;
    return std::max(work_s * sharing, machine_.measured.op_us * 1e-6);
  }

 private:
  // By itself GELU reads and writes its tensors, and its gradient reads another one.
  double activation_s(const Stretch::Op& op) const {
    const bool is_forward = op.what == "linear_fwd";
    const double passes = work_.makes_gelu_inside ? 1 : is_forward ? 2 : 3;
    return moved_s(is_forward ? "gelu_fwd" : "gelu_bwd", passes * op.cost.activation_bytes);
  }
  // Bytes through memory at the speed of an op.
  double moved_s(std::string_view op, double bytes) const {
    const auto known = gb_s_.find(op);
    const double gb_s = known != gb_s_.end() ? known->second : machine_.measured.memory_gb_s;
    return bytes / (gb_s * 1e9);
  }
  // 0: its memory binds it.
  double arithmetic(const Stretch::Op& op) const {
    const MachineRates& rates = machine_.measured;
    const bool is_wide = work_.compute == DType::kF32;
    if (op.what.starts_with("linear")) {
      if (is_wide && rates.matmul_tflops_fp32 > 0) return rates.matmul_tflops_fp32;
      const ProductRate& kind = op.what == "linear_fwd"         ? forward_
                                : op.what == "linear_bwd_input" ? backward_input_
                                                                : backward_weight_;
      return kind.is_known() ? kind.tflops(op.cost) : rates.matmul_tflops;
    }
    if (!op.what.starts_with("attention")) return 0;
    const bool has_own_kernel = is_wide || work_.attends_exactly;
    if (has_own_kernel && rates.attention_tflops_fp32 > 0) return rates.attention_tflops_fp32;
    const AttentionRates& all = machine_.attention;
    if (all.head_size.empty()) return rates.attention_tflops;
    const bool drops = work_.drops_attention && !all.forward_dropout.empty();
    const std::vector<double>& forward = drops ? all.forward_dropout : all.forward;
    const std::vector<double>& backward = drops ? all.backward_dropout : all.backward;
    return attention_tflops(all, op.what == "attention_bwd" ? backward : forward, op.cost.depth,
                            static_cast<double>(work_.seq_length));
  }

  Machine machine_;
  Work work_;
  ProductRate forward_;
  ProductRate backward_input_;
  ProductRate backward_weight_;
  std::map<std::string, double, std::less<>> gb_s_;
};

template <class Seconds>
std::vector<double> stretch_seconds(const ProgramTables& tables, Seconds seconds) {
  std::vector<double> all;
  for (std::int32_t i = 0; i < tables.num_stretches(); ++i) {
    double sum = 0;
    for (const Stretch::Op& op : tables.at(i).ops) {
      sum += seconds(op);
    }
    all.push_back(sum);
  }
  return all;
}

}  // namespace

Work work_of(const RunConfig& config) {
  const bool is_cuda = config.device.kind == "cuda";
  const bool drops = config.model.dropout > 0;
  return {.compute = config.compute_type(),
          .seq_length = config.train.seq_length,
          .ranks = config.layout.ranks,
          .makes_gelu_inside =
              is_cuda && !config.train.deterministic && config.compute_type() != DType::kF32,
          .drops_attention = drops,
          .attends_exactly = is_cuda && config.train.deterministic && drops};
}

int most_on_one_host(const Group& group, int devices_per_host) {
  if (devices_per_host == 0) return static_cast<int>(group.members.size());
  std::map<int, int> counts;
  int most = 0;
  for (const int member : group.members) {
    most = std::max(most, ++counts[member / devices_per_host]);
  }
  return most;
}

Durations durations_on(const Machine& machine, const Work& work, const ProgramTables& tables) {
  const MachineRates rates = machine.measured;
  const OpTimes ops(machine, work);
  const int per_host = machine.facts.devices_per_host;
  Durations durations;
  durations.stretches =
      stretch_seconds(tables, [&ops](const Stretch::Op& op) { return ops.seconds(op); });
  durations.copy = [rates](const Instruction& copy) {
    const double gb_s = copy.lane == Lane::kHost     ? rates.host_memory_gb_s
                        : copy.lane == Lane::kBeside ? rates.memory_gb_s
                                                     : rates.host_copy_gb_s;
    return copy.cost.bytes / (gb_s * 1e9);
  };
  // Every device has its own way out of its host.
  durations.call = [rates, per_host, known = std::map<const Group*, double>()](
                       const Instruction& call, const Group& group, int rank) mutable {
    double gb_s = rates.link_gb_s;
    if (is_message(call)) {
      const int peer = group.members[static_cast<std::size_t>(call.peer)];
      if (per_host > 0 && peer / per_host != rank / per_host) gb_s = rates.network_gb_s;
    } else {
      const auto [found, is_new] = known.try_emplace(&group, rates.link_gb_s);
      const int together = is_new ? most_on_one_host(group, per_host) : 0;
      if (is_new && together < static_cast<int>(group.members.size())) {
        found->second = std::min(rates.link_gb_s, rates.network_gb_s * together);
      }
      gb_s = found->second;
    }
    const auto bytes = static_cast<double>(call.what == "recv" ? call.bytes : sent_bytes(call));
    return rates.call_us * 1e-6 + bytes / (gb_s * 1e9);
  };
  return durations;
}

std::string missing_rate(const Machine& machine, const World& world) {
  const MachineRates& rates = machine.measured;
  if (!machine.is_measured()) return "matmul_tflops";
  const int per_host = machine.facts.devices_per_host;
  bool needs_network = false;
  for (const Group& group : world.groups.all) {
    const int size = static_cast<int>(group.members.size());
    needs_network = needs_network || most_on_one_host(group, per_host) < size;
  }
  if (needs_network && rates.network_gb_s <= 0) return "network_gb_s";
  for (const Program& program : world.kinds) {
    for (const Instruction& one : program.list) {
      if (one.kind != Instruction::Kind::kStart) continue;
      if (is_call(one) && one.group_size > 1 && rates.link_gb_s <= 0) return "link_gb_s";
      if (is_call(one)) continue;
      if (one.lane == Lane::kHost && rates.host_memory_gb_s <= 0) return "host_memory_gb_s";
      if (one.lane == Lane::kBeside && rates.memory_gb_s <= 0) return "memory_gb_s";
      if (one.lane < Lane::kHost && rates.host_copy_gb_s <= 0) return "host_copy_gb_s";
    }
  }
  return {};
}

Durations flop_durations(const ProgramTables& tables) {
  return {.stretches =
              stretch_seconds(tables, [](const Stretch::Op& op) { return op.cost.flops * 1e-12; }),
          .call = {},
          .copy = {}};
}

}  // namespace orthant
