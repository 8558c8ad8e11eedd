#include "model/batch_loader.h"

namespace orthant {

BatchLoader::BatchLoader(Device& device, std::int64_t B, std::int64_t S, bool by_document)
    : device_(device),
      B_(B),
      S_(S),
      by_document_(by_document),
      staging_(static_cast<std::size_t>(B * S)) {}

MicroBatch BatchLoader::load(Stash& stash, const HostMicro* host) {
  const std::int64_t T = B_ * S_;
  const MicroBatch batch{.B = B_,
                         .S = S_,
                         .tokens = stash.alloc({T}, DType::kI32),
                         .labels = stash.alloc({T}, DType::kI32),
                         .positions = stash.alloc({T}, DType::kI32),
                         .sample_ids = stash.alloc({B_}, DType::kI64),
                         .by_document = by_document_};
  if (host == nullptr) return batch;
  const auto send = [&](const Tensor& to, auto value_at) {
    for (std::int64_t b = 0; b < B_; ++b) {
      for (std::int64_t s = 0; s < S_; ++s) {
        staging_[static_cast<std::size_t>(b * S_ + s)] = value_at(b, s);
      }
    }
    device_.to_device(to, std::as_bytes(std::span(staging_)));
  };
  const auto token = [&](std::int64_t b, std::int64_t s) {
    return host->tokens[static_cast<std::size_t>(b * (S_ + 1) + s)];
  };
  const auto place = [&](std::int64_t b, std::int64_t s) {
    return host->places.empty() ? static_cast<std::int32_t>(s)
                                : host->places[static_cast<std::size_t>(b * (S_ + 1) + s)];
  };
  constexpr std::int32_t kMasked = -1;
  send(batch.tokens, token);
  send(batch.labels, [&](std::int64_t b, std::int64_t s) {
    return place(b, s + 1) == 0 ? kMasked : token(b, s + 1);
  });
  send(batch.positions, place);
  device_.to_device(batch.sample_ids, std::as_bytes(host->sample_ids));
  return batch;
}

}  // namespace orthant
