// How fast ranks of one host reach each other, and what of a GPU's memory that takes, for the file
// of orthant bench machine.
#pragma once

#include "base/json.h"
#include "train/library_memory.h"

namespace orthant {

struct LinkRates {
  double gb_s = 0;  // bus bandwidth of the largest all_reduce: 2 (n - 1) / n of its bytes a second
  double call_us = 0;  // the least time of a collective
};

// Of what `bench collectives --json` has said.
LinkRates link_rates(const OrderedJson& collectives);

// Between `ranks` threads of this process.
LinkRates measure_thread_links(int ranks, double seconds);
// Between processes with a GPU each, of which this one is none: they are started and waited for.
LinkRates measure_gpu_links(int ranks);

// What `bench libraries --json` has measured, into `memory`; the rest stays.
void read_link_memory(const OrderedJson& libraries, LibraryMemory& memory);
void measure_link_memory(int ranks, LibraryMemory& memory);

}  // namespace orthant
