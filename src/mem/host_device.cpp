// Host memory: anonymous mappings, zero-filled by the system. Copies and work beside the ops are
// done when they start.
#include <cerrno>
#include <cstring>

#include <sys/mman.h>

#include "base/check.h"
#include "base/text.h"
#include "mem/device.h"

namespace orthant {
namespace {

std::byte* map_or_fail(std::int64_t bytes) {
  if (bytes == 0) return nullptr;
  void* data = ::mmap(nullptr, static_cast<std::size_t>(bytes), PROT_READ | PROT_WRITE,
                      MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (data == MAP_FAILED) {
    fail_run("cannot reserve {} of memory: {}", format_bytes(bytes), std::strerror(errno));
  }
  return static_cast<std::byte*>(data);
}

class HostDevice final : public Device {
 public:
  std::byte* reserve(std::int64_t bytes) override { return map_or_fail(bytes); }
  void release(std::byte* data, std::int64_t bytes) noexcept override {
    if (data != nullptr) ::munmap(data, static_cast<std::size_t>(bytes));
  }
  void to_device(const Tensor& to, std::span<const std::byte> from) override {
    ORTHANT_CHECK(static_cast<std::int64_t>(from.size()) == to.bytes(),
                  "copy of {} bytes into a tensor of {}", from.size(), to.bytes());
    if (!from.empty()) std::memcpy(to.data, from.data(), from.size());
  }
  void to_host(std::span<std::byte> to, const Tensor& from) override {
    ORTHANT_CHECK(static_cast<std::int64_t>(to.size()) == from.bytes(),
                  "copy of a tensor of {} bytes into {}", from.bytes(), to.size());
    if (!to.empty()) std::memcpy(to.data(), from.data, to.size());
  }
  std::int64_t start_copy(Lane /*lane*/, const Tensor& to, const Tensor& from) override {
    std::memcpy(to.data, from.data, static_cast<std::size_t>(from.bytes()));
    return 0;
  }
  std::int64_t start_work(Lane /*lane*/, LaneWork& work) override {
    work.run();
    return 0;
  }
  void order(Lane /*later*/, Lane /*lane*/, std::int64_t /*number*/) override {}
  void drain() noexcept override {}
};

class MetaDevice final : public Device {
 public:
  std::byte* reserve(std::int64_t bytes) override {
    constexpr std::int64_t kPage = 4096;
    const std::int64_t address = next_;
    next_ += (bytes + kPage - 1) / kPage * kPage;
    return reinterpret_cast<std::byte*>(address);  // NOLINT(performance-no-int-to-ptr)
  }
  void release(std::byte* /*data*/, std::int64_t /*bytes*/) noexcept override {}
  void to_device(const Tensor& /*to*/, std::span<const std::byte> /*from*/) override {}
  void to_host(std::span<std::byte> /*to*/, const Tensor& /*from*/) override {}
  std::int64_t start_copy(Lane /*lane*/, const Tensor& /*to*/, const Tensor& /*from*/) override {
    return 0;
  }
  std::int64_t start_work(Lane /*lane*/, LaneWork& /*work*/) override { return 0; }
  void order(Lane /*later*/, Lane /*lane*/, std::int64_t /*number*/) override {}
  void drain() noexcept override {}

 private:
  // Above the lower half of a 57-bit address space and below the upper one.
  std::int64_t next_ = std::int64_t{1} << 58;
};

}  // namespace

std::unique_ptr<Device> make_host_device() {
  return std::make_unique<HostDevice>();
}
std::unique_ptr<Device> make_meta_device() {
  return std::make_unique<MetaDevice>();
}

}  // namespace orthant
