#include "cli/gpu_cost_table.h"

#include <algorithm>
#include <span>
#include <utility>

#include <fmt/format.h>

#include "cli/bench_random_step.h"
#include "dist/mesh.h"

namespace orthant {
namespace {

std::string text_of(const Entry& wait) {
  const std::string lane =
      wait.lane < Lane::kFirstComm ? "host" : std::string(Mesh::group_name(wait.lane));
  return fmt::format("waits: {} {}", lane, wait.what);
}

}  // namespace

GpuCostTable::GpuCostTable(QueueTimer& timer, const Ledger& ledger, bool by_place)
    : timer_(timer),
      ledger_(ledger),
      by_place_(by_place),
      begin_(timer.mark()) {}

std::string GpuCostTable::name_of_op(std::string_view op) const {
  std::string name(op);
  if (by_place_) name += " " + kind_of_place(ledger_.where());
  return name;
}

// Of the entries since the last op; empty: there is none.
std::string GpuCostTable::last_wait() {
  const std::span<const Entry> entries = ledger_.entries();
  if (entries.size() < entries_seen_) entries_seen_ = 0;  // the ledger has begun anew
  const std::span<const Entry> fresh = entries.subspan(entries_seen_);
  entries_seen_ = entries.size();
  const auto wait = std::find_if(fresh.rbegin(), fresh.rend(),
                                 [](const Entry& entry) { return !entry.waits_for.done(); });
  return wait == fresh.rend() ? std::string() : text_of(*wait);
}

void GpuCostTable::before(std::string_view op, const Cost& cost) {
  GpuCosts::Row& row = costs_.ops[name_of_op(op)];
  ++row.calls;
  row.floor_seconds +=
      std::max(cost.flops / GpuCosts::kProductFlops, cost.bytes / GpuCosts::kCopyBytes);
  const int start = timer_.mark();
  std::string wait = last_wait();
  if (ops_.empty()) wait = "before the first op";
  if (!wait.empty()) {
    if (by_place_) wait += " before " + name_of_op(op);
    GpuCosts::Row& waited = costs_.waits[wait];
    ++waited.calls;
    waits_.push_back({&waited, ops_.empty() ? begin_ : ops_.back().end, start});
  }
  ops_.push_back({&row, start, 0});
}

void GpuCostTable::after() {
  ops_.back().end = timer_.mark();
}

GpuCosts GpuCostTable::take() {
  for (std::vector<Span>* spans : {&ops_, &waits_}) {
    for (const Span& span : *spans) {
      span.row->seconds += timer_.seconds_between(span.start, span.end);
    }
    spans->clear();
  }
  timer_.forget();
  return std::exchange(costs_, {});
}

}  // namespace orthant
