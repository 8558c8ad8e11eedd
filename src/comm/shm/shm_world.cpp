#include "comm/shm/shm_world.h"

#include <algorithm>
#include <cerrno>
#include <climits>
#include <cstring>
#include <ctime>

#include <linux/futex.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "base/check.h"
#include "comm/transport.h"

namespace orthant {
namespace {

constexpr std::int64_t kPage = 4096;

std::int64_t pages(std::int64_t bytes) {
  return (bytes + kPage - 1) / kPage * kPage;
}

void futex(std::atomic<std::uint32_t>& word, int op, std::uint32_t value, const timespec* limit) {
  ::syscall(SYS_futex, reinterpret_cast<std::uint32_t*>(&word), op, value, limit, nullptr, 0);
}

// Pages that nobody touches take no memory, so the size is the most that could be used.
int make_memory(std::int64_t bytes) {
  const int fd = ::memfd_create("orthant", MFD_CLOEXEC);
  if (fd < 0) fail_run("memfd_create: {}; ranks cannot share memory here", std::strerror(errno));
  if (::ftruncate(fd, bytes) != 0) {
    const int error = errno;
    ::close(fd);
    fail_run("shared memory of {} bytes: {}", bytes, std::strerror(error));
  }
  return fd;
}

std::byte* map(int fd, std::int64_t bytes) {
  void* const memory = ::mmap(nullptr, static_cast<std::size_t>(bytes), PROT_READ | PROT_WRITE,
                              MAP_SHARED | MAP_NORESERVE, fd, 0);
  if (memory == MAP_FAILED) {
    fail_run("mapping {} bytes of shared memory: {}", bytes, std::strerror(errno));
  }
  return static_cast<std::byte*>(memory);
}

}  // namespace

std::int64_t ShmWorld::flag_bytes(int size) {
  constexpr std::int64_t kBytesAPair = 2048;
  const std::int64_t ranks = size;
  return size > kMostRanksWithFlags ? 0 : pages((ranks + ranks * ranks) * kBytesAPair);
}

std::int64_t ShmWorld::bytes(int size) {
  const std::int64_t ranks = size;
  return pages(Board::bytes(size)) + pages(ranks * static_cast<std::int64_t>(sizeof(Bell))) +
         flag_bytes(size) + ranks * ranks * kMostChannels * pages(kRingHeadBytes + kMostRingBytes);
}

std::span<std::byte> ShmWorld::flags() const {
  std::byte* const begin =
      memory_ + pages(Board::bytes(size_)) + pages(size_ * static_cast<std::int64_t>(sizeof(Bell)));
  return {begin, static_cast<std::size_t>(flag_bytes(size_))};
}

ShmWorld::ShmWorld(int size)
    : size_(size),
      fd_(make_memory(bytes(size))),
      memory_(map(fd_, bytes(size))),
      board_(memory_, size, Board::Use::kReset) {}

ShmWorld::ShmWorld(int fd, int size)
    : size_(size),
      fd_(-1),
      memory_(map(fd, bytes(size))),
      board_(memory_, size, Board::Use::kJoin) {
  ::close(fd);
}

ShmWorld::~ShmWorld() {
  ::munmap(memory_, static_cast<std::size_t>(bytes(size_)));
  if (fd_ >= 0) ::close(fd_);
}

ShmWorld::Bell& ShmWorld::bell(int rank) const {
  return *(reinterpret_cast<Bell*>(memory_ + pages(Board::bytes(size_))) + rank);
}

// Either the sleeper sees the new count, or this sees that it sleeps.
void ShmWorld::ring(int rank) {
  Bell& of_rank = bell(rank);
  of_rank.count.fetch_add(1);
  if (of_rank.is_asleep.load() != 0) futex(of_rank.count, FUTEX_WAKE, INT_MAX, nullptr);
}

void ShmWorld::ring_all() {
  for (int rank = 0; rank < size_; ++rank) {
    ring(rank);
  }
}

std::uint32_t ShmWorld::ticket(int rank) const {
  return bell(rank).count.load();
}

void ShmWorld::sleep(int rank, std::uint32_t ticket, Board::Clock::time_point until) {
  const auto left =
      std::chrono::duration_cast<std::chrono::nanoseconds>(until - Board::Clock::now());
  if (left.count() <= 0) return;
  constexpr std::int64_t kSecond = 1'000'000'000;
  const timespec limit = {.tv_sec = left.count() / kSecond, .tv_nsec = left.count() % kSecond};
  Bell& mine = bell(rank);
  mine.is_asleep.store(1);
  futex(mine.count, FUTEX_WAIT, ticket, &limit);
  mine.is_asleep.store(0);
}

std::byte* ShmWorld::ring_memory(int from, int to, int channel) const {
  ORTHANT_CHECK(channel >= 0 && channel < kMostChannels,
                "channel {} of shared memory; there are {}", channel, kMostChannels);
  const std::int64_t ranks = size_;
  const std::int64_t index = (channel * ranks + from) * ranks + to;
  return memory_ + pages(Board::bytes(size_)) +
         pages(ranks * static_cast<std::int64_t>(sizeof(Bell))) + flag_bytes(size_) +
         index * pages(kRingHeadBytes + kMostRingBytes);
}

}  // namespace orthant
