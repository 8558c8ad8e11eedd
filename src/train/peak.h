// The peak that a run is judged by: of the cpu oneDNN's own product on all cores of this machine,
// of a GPU the vendor's figure for dense products.
#pragma once

#include <string_view>

#include "mem/dtype.h"

namespace orthant {

// FLOP/s of products of type `compute` on the devices of a kind that `ranks` ranks use; of the cpu
// the best of several 1024^3, over about a third of a second.
double peak_flops(std::string_view kind, DType compute, int ranks);

}  // namespace orthant
