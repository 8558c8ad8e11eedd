#include "params/state_reader.h"

#include <bit>
#include <cstring>

#include "base/check.h"
#include "ops/split_master.h"

namespace orthant {
namespace {

// In their place, from the last on: so none is written over before it is read.
template <class T>
void get_widened(Device& device, std::span<float> into, const Tensor& from) {
  const std::span<std::byte> narrow = std::as_writable_bytes(into).first(into.size() * sizeof(T));
  device.to_host(narrow, from);
  for (std::size_t i = into.size(); i-- > 0;) {
    T value;
    std::memcpy(&value, narrow.data() + i * sizeof(T), sizeof(T));
    into[i] = static_cast<float>(value);
  }
}

}  // namespace

StateReader::StateReader(Device& device, std::int64_t most)
    : device_(device),
      values_(static_cast<std::size_t>(most)),
      remainders_(static_cast<std::size_t>(most)) {}

// f32 in memory of the host is read where it lies.
std::span<const float> StateReader::values(Device& home, const Tensor& tensor) {
  const auto count = static_cast<std::size_t>(tensor.count());
  if (tensor.dtype == DType::kF32 && &home == &home.host()) {
    return {tensor.ptr<const float>(), count};
  }
  ORTHANT_CHECK(count <= values_.size(), "{} elements are read at once, of at most {}", count,
                values_.size());
  const std::span<float> values(values_.data(), count);
  read_back(home, values, tensor);
  return values;
}

std::span<const float> StateReader::weights(const ParamStore::Owned& owned, std::int64_t first,
                                            std::int64_t count) {
  const Tensor master = owned.master.flat(first, count);
  if (owned.value.absent()) return values(*owned.home, master);
  values(device_, owned.value.flat(first, count));
  const std::span<std::int16_t> remainders(remainders_.data(), static_cast<std::size_t>(count));
  owned.home->to_host(std::as_writable_bytes(remainders), master);
  for (std::size_t i = 0; i < remainders.size(); ++i) {
    const std::uint32_t remainder = static_cast<std::uint16_t>(remainders[i]);
    const auto upper = std::bit_cast<std::uint32_t>(values_[i]);
    values_[i] = std::bit_cast<float>(joined_master(upper, remainder));
  }
  return {values_.data(), remainders.size()};
}

void read_back(Device& device, std::span<float> into, const Tensor& from) {
  switch (from.dtype) {
    case DType::kF32: return device.to_host(std::as_writable_bytes(into), from);
    case DType::kBF16: return get_widened<BFloat16>(device, into, from);
    case DType::kF16: return get_widened<Half>(device, into, from);
    default: break;
  }
  ORTHANT_CHECK(false, "a tensor of type {} cannot be read back", name_of(from.dtype));
}

}  // namespace orthant
