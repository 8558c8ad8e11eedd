// The peak that a run is judged by: oneDNN's own product on all cores of this machine.
#pragma once

#include "mem/dtype.h"

namespace orthant {

// FLOP/s of the best of several 1024^3 products of type `compute`, over about a third of a second.
double measure_peak_flops(DType compute);

}  // namespace orthant
