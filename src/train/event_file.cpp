// Field numbers are those of tensorflow/core/util/event.proto and framework/summary.proto.
#include "train/event_file.h"

#include <array>
#include <bit>
#include <filesystem>

#include <fmt/format.h>
#include <unistd.h>

#include "base/check.h"
#include "base/crc32c.h"

namespace orthant {
namespace {

enum class Wire : std::uint8_t { kVarint = 0, kFixed64 = 1, kBytes = 2, kFixed32 = 5 };

void add_varint(std::string& out, std::uint64_t value) {
  while (value >= 0x80) {
    out += static_cast<char>(value | 0x80);
    value >>= 7;
  }
  out += static_cast<char>(value);
}

template <class Word>
void add_fixed(std::string& out, Word word) {
  for (std::size_t i = 0; i < sizeof(Word); ++i) {
    out += static_cast<char>(word >> (8 * i));
  }
}

void add_tag(std::string& out, std::uint32_t field, Wire wire) {
  add_varint(out, field << 3 | static_cast<std::uint32_t>(wire));
}

void add_bytes(std::string& out, std::uint32_t field, std::string_view bytes) {
  add_tag(out, field, Wire::kBytes);
  add_varint(out, bytes.size());
  out += bytes;
}

// Event.wall_time = 1 and Event.step = 2; a step of 0 is not written, as proto3 has it.
std::string event_head(double wall_s, std::int64_t step) {
  std::string event;
  add_tag(event, 1, Wire::kFixed64);
  add_fixed(event, std::bit_cast<std::uint64_t>(wall_s));
  if (step != 0) {
    add_tag(event, 2, Wire::kVarint);
    add_varint(event, static_cast<std::uint64_t>(step));
  }
  return event;
}

std::uint32_t masked_crc(std::string_view bytes) {
  return std::rotr(crc32c(bytes), 15) + 0xa282ead8u;
}

std::string event_path(const std::string& folder, double wall_s) {
  std::error_code error;
  std::filesystem::create_directories(folder, error);
  std::array<char, 256> host{};
  if (::gethostname(host.data(), host.size() - 1) != 0) host[0] = '\0';
  const std::string_view host_name = host[0] == '\0' ? "localhost" : host.data();
  const std::string name = fmt::format("events.out.tfevents.{:010}.{}.{}",
                                       static_cast<std::int64_t>(wall_s), host_name, ::getpid());
  return (std::filesystem::path(folder) / name).string();
}

// A second start in the same second and process does not overwrite the first.
std::string unused_path(const std::string& path) {
  std::string unused = path + ".0";
  std::error_code error;
  for (int i = 1; std::filesystem::exists(unused, error); ++i) {
    unused = fmt::format("{}.{}", path, i);
  }
  return unused;
}

}  // namespace

std::string version_event(double wall_s) {
  std::string event = event_head(wall_s, 0);
  add_bytes(event, 3, "brain.Event:2");  // Event.file_version
  return event;
}

std::string restart_event(double wall_s, std::int64_t step) {
  std::string event = event_head(wall_s, step);
  std::string log;  // SessionLog.status = START
  add_tag(log, 1, Wire::kVarint);
  add_varint(log, 1);
  add_bytes(event, 7, log);  // Event.session_log
  return event;
}

std::string scalars_event(double wall_s, std::int64_t step, std::span<const EventScalar> scalars) {
  std::string summary;
  for (const EventScalar& scalar : scalars) {
    std::string value;
    add_bytes(value, 1, scalar.tag);    // Summary.Value.tag
    add_tag(value, 2, Wire::kFixed32);  // Summary.Value.simple_value
    add_fixed(value, std::bit_cast<std::uint32_t>(static_cast<float>(scalar.value)));
    add_bytes(summary, 1, value);  // Summary.value
  }
  std::string event = event_head(wall_s, step);
  add_bytes(event, 5, summary);  // Event.summary
  return event;
}

std::string framed_record(std::string_view message) {
  std::string record;
  add_fixed(record, static_cast<std::uint64_t>(message.size()));
  add_fixed(record, masked_crc(record));
  record += message;
  add_fixed(record, masked_crc(message));
  return record;
}

EventFile::EventFile(const std::string& folder, double wall_s, std::int64_t resumed_step)
    : path_(unused_path(event_path(folder, wall_s))),
      file_(path_, File::Mode::kCreate) {
  file_.append(framed_record(version_event(wall_s)));
  if (resumed_step > 0) file_.append(framed_record(restart_event(wall_s, resumed_step + 1)));
}

void EventFile::write(double wall_s, std::int64_t step, std::span<const EventScalar> scalars) {
  file_.append(framed_record(scalars_event(wall_s, step, scalars)));
}

}  // namespace orthant
