#include "plan/rates.h"

#include <algorithm>
#include <map>

#include "plan/traffic.h"

namespace orthant {
namespace {

double op_seconds(const MachineRates& rates, const Stretch::Op& op) {
  const double arithmetic = op.what.starts_with("linear")      ? rates.matmul_tflops
                            : op.what.starts_with("attention") ? rates.attention_tflops
                                                               : 0;
  const double flops_s = arithmetic > 0 ? op.cost.flops / (arithmetic * 1e12) : 0;
  const double bytes_s = op.cost.bytes / (rates.memory_gb_s * 1e9);
  return std::max({flops_s, bytes_s, rates.op_us * 1e-6});
}

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

int most_on_one_host(const Group& group, int devices_per_host) {
  if (devices_per_host == 0) return static_cast<int>(group.members.size());
  std::map<int, int> counts;
  int most = 0;
  for (const int member : group.members) {
    most = std::max(most, ++counts[member / devices_per_host]);
  }
  return most;
}

Durations durations_on(const Machine& machine, const ProgramTables& tables) {
  const MachineRates rates = machine.measured;
  const int per_host = machine.facts.devices_per_host;
  Durations durations;
  durations.stretches =
      stretch_seconds(tables, [&rates](const Stretch::Op& op) { return op_seconds(rates, op); });
  durations.copy = [rates](const Instruction& copy) {
    return copy.cost.bytes / (rates.host_copy_gb_s * 1e9);
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

Durations flop_durations(const ProgramTables& tables) {
  return {.stretches =
              stretch_seconds(tables, [](const Stretch::Op& op) { return op.cost.flops * 1e-12; }),
          .call = {},
          .copy = {}};
}

}  // namespace orthant
