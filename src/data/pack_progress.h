// How far data pack has come, in a file beside its output, so that a packing that was killed goes
// on. What it names is on the disk before it.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "data/indexed_dataset_writer.h"
#include "data/pack_input.h"

namespace orthant {

struct PackProgress {
  std::string job;  // of which inputs, tokenizer and options: another job cannot go on from it
  InputPosition position;
  IndexedDatasetWriter::State written;
  std::int64_t num_bad_lines = 0;
  std::int64_t bad_lines_bytes = 0;  // of the list of them
};

std::string progress_path(const std::string& prefix);

void save_progress(const std::string& prefix, const PackProgress& progress);

// Nothing when there is no file of it. A file of another job is a user error.
std::optional<PackProgress> load_progress(const std::string& prefix, const std::string& job);

void remove_progress(const std::string& prefix);

}  // namespace orthant
