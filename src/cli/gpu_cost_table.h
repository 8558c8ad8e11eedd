// GpuCostTable: where the time of a step on a GPU goes: ops by name against the time that their
// products or bytes must take, and what the GPU waited for between them.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "base/ledger.h"
#include "mem/device.h"
#include "ops/ops.h"

namespace orthant {

struct GpuCosts {
  // What an H200 sustains: bf16 products under its power limit, and copies of device memory.
  static constexpr double kProductFlops = 690e12;
  static constexpr double kCopyBytes = 4.24e12;

  struct Row {
    std::int64_t calls = 0;
    double seconds = 0;
    double floor_seconds = 0;
  };
  std::map<std::string, Row> ops;
  // Of the calls and copies that the next op had to wait for, by group and kind: "tp all_gather".
  // The time is that between two ops, so that it has what hid behind nothing; and that before the
  // first.
  std::map<std::string, Row> waits;
};

class GpuCostTable final : public OpsObserver {
 public:
  // Of a step that begins now. `by_place`: names have the place in the model too, as "linear_fwd
  // h.*.mlp.up".
  GpuCostTable(QueueTimer& timer, const Ledger& ledger, bool by_place);

  void before(std::string_view op, const Cost& cost) override;
  void after() override;

  // Waits for the GPU. The table is empty after it.
  GpuCosts take();

 private:
  struct Span {
    GpuCosts::Row* row;
    int start;
    int end;
  };
  std::string name_of_op(std::string_view op) const;
  std::string last_wait();

  QueueTimer& timer_;
  const Ledger& ledger_;
  bool by_place_;
  int begin_;  // of the step
  GpuCosts costs_;
  std::vector<Span> ops_;
  std::vector<Span> waits_;
  std::size_t entries_seen_ = 0;
};

}  // namespace orthant
