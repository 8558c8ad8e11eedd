// TensorBoard's event file: records of Event messages. The few fields that scalars need are encoded
// here, without protobuf.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>

#include "base/file.h"

namespace orthant {

struct EventScalar {
  std::string_view tag;  // "train/loss"
  double value = 0;      // kept as a float
};

// Encoded Event messages; wall_s is seconds since 1970.
std::string version_event(double wall_s);
std::string restart_event(double wall_s, std::int64_t step);  // later steps before it do not count
std::string scalars_event(double wall_s, std::int64_t step, std::span<const EventScalar> scalars);

// A message as it stands in the file: length, masked CRC-32C of the length, message, masked CRC.
std::string framed_record(std::string_view message);

// One file per start of a run, as TensorBoard expects. The folder is made when it does not exist.
class EventFile {
 public:
  // `resumed_step` > 0 tells TensorBoard to forget what a lost run wrote after that step.
  EventFile(const std::string& folder, double wall_s, std::int64_t resumed_step);

  const std::string& path() const { return path_; }
  void write(double wall_s, std::int64_t step, std::span<const EventScalar> scalars);

 private:
  std::string path_;
  File file_;
};

}  // namespace orthant
