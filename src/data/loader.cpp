// Two buffers that the thread and next() hand to each other.
#include "data/loader.h"

#include "base/check.h"

namespace orthant {
namespace {

std::size_t num_rows(const BatchGeometry& geometry) {
  return static_cast<std::size_t>(geometry.num_micros() * geometry.micro_batch);
}

std::size_t num_tokens(const BatchGeometry& geometry) {
  return num_rows(geometry) * static_cast<std::size_t>(geometry.seq_length + 1);
}

}  // namespace

std::int64_t num_targets(const TokenSource& source, BatchGeometry geometry, std::int64_t step,
                         std::int64_t micro) {
  std::int64_t sum = 0;
  for (std::int64_t rank = 0; rank < geometry.dp; ++rank) {
    geometry.dp_rank = rank;
    for (std::int64_t row = 0; row < geometry.micro_batch; ++row) {
      sum += source.num_targets(sample_position(geometry, step, micro, row));
    }
  }
  return sum;
}

Loader::Loader(const TokenSource& source, const BatchGeometry& geometry, std::int64_t first_step)
    : source_(source),
      geometry_(geometry),
      filled_(first_step),
      released_(first_step),
      next_(first_step) {
  check_geometry(geometry);
  ORTHANT_CHECK(geometry.seq_length == source.seq_length(),
                "loader: seq_length is {}, the samples have {}", geometry.seq_length,
                source.seq_length());
  for (Buffer& buffer : buffers_) {
    buffer.tokens.resize(num_tokens(geometry));
    buffer.positions.resize(num_rows(geometry));
    if (!geometry.by_document) continue;
    buffer.places.resize(num_tokens(geometry));
    buffer.targets.resize(static_cast<std::size_t>(geometry.num_micros()));
  }
  thread_ = std::thread([this] { run(); });
}

Loader::~Loader() {
  {
    const std::lock_guard lock(mutex_);
    is_stopping_ = true;
  }
  changed_.notify_all();
  thread_.join();
}

Batch Loader::next() {
  std::unique_lock lock(mutex_);
  released_ = next_;
  changed_.notify_all();
  changed_.wait(lock, [this] { return filled_ > next_ || failure_ != nullptr; });
  if (filled_ <= next_) std::rethrow_exception(failure_);
  const Buffer& buffer = buffer_of(next_);
  return {.step = next_++,
          .num_micros = geometry_.num_micros(),
          .tokens = buffer.tokens,
          .positions = buffer.positions,
          .places = buffer.places,
          .targets = buffer.targets};
}

void Loader::run() {
  std::unique_lock lock(mutex_);
  while (true) {
    changed_.wait(lock, [this] { return is_stopping_ || filled_ < released_ + kNumBuffers; });
    if (is_stopping_) return;
    const std::int64_t step = filled_;
    lock.unlock();
    std::exception_ptr failure;
    try {
      fill(step, buffer_of(step));
    } catch (...) {
      failure = std::current_exception();
    }
    lock.lock();
    failure_ = failure;
    if (failure == nullptr) ++filled_;
    changed_.notify_all();
    if (failure != nullptr) return;
  }
}

void Loader::fill(std::int64_t step, Buffer& buffer) const {
  const std::span<std::int32_t> tokens(buffer.tokens);
  const std::span<std::int32_t> places(buffer.places);
  const auto sample_tokens = static_cast<std::size_t>(geometry_.seq_length + 1);
  std::size_t row = 0;
  for (std::int64_t micro = 0; micro < geometry_.num_micros(); ++micro) {
    for (std::int64_t j = 0; j < geometry_.micro_batch; ++j, ++row) {
      const std::int64_t position = sample_position(geometry_, step, micro, j);
      buffer.positions[row] = position;
      source_.copy_sample(position, tokens.subspan(row * sample_tokens, sample_tokens));
      if (!geometry_.by_document) continue;
      source_.copy_places(position, places.subspan(row * sample_tokens, sample_tokens));
    }
    if (!geometry_.by_document) continue;
    buffer.targets[static_cast<std::size_t>(micro)] = num_targets(source_, geometry_, step, micro);
  }
}

std::int64_t Loader::buffer_bytes(const BatchGeometry& geometry) {
  const std::size_t of_tokens = num_tokens(geometry) * sizeof(std::int32_t);
  const std::size_t of_rows = num_rows(geometry) * sizeof(std::int64_t);
  const std::size_t of_documents =
      of_tokens + static_cast<std::size_t>(geometry.num_micros()) * sizeof(std::int64_t);
  return kNumBuffers *
         static_cast<std::int64_t>(of_tokens + of_rows + (geometry.by_document ? of_documents : 0));
}

}  // namespace orthant
