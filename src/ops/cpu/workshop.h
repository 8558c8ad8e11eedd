// Workshop: what the threads of the cpu backend need between calls, and how it refuses. Its code is
// compiled once, for every processor.
#pragma once

#include <cstdint>
#include <memory>
#include <string_view>
#include <vector>

#include "mem/dtype.h"
#include "ops/attention.h"
#include "ops/cpu/aligned_floats.h"
#include "ops/cpu/products.h"
#include "ops/processor.h"

namespace orthant::cpu {

// The first product of a shape may allocate, nothing else does after construction.
class Workshop {
 public:
  Workshop(CpuLevel level, int num_threads);
  ~Workshop();
  Workshop(const Workshop&) = delete;
  Workshop& operator=(const Workshop&) = delete;

  int num_threads() const;
  Products& products();
  // Of one thread: kScratchFloats.
  float* scratch(int thread);

 private:
  int num_threads_;
  std::unique_ptr<Products> products_;
  std::vector<AlignedFloats> scratch_;  // one for each thread
};

// Holds the packed blocks of one head, whose width is at most kMaxHeadWidth.
inline constexpr std::int64_t kScratchFloats = 5 << 18;
inline constexpr std::int64_t kMaxHeadWidth = 1536;

[[noreturn]] void refuse_type(std::string_view op, DType type);
void check_head_width(std::string_view op, const AttentionShape& n);

}  // namespace orthant::cpu
