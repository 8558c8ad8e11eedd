#include "mem/in_flight.h"

#include <algorithm>

#include "base/check.h"

namespace orthant {

void InFlight::own(Token token, const Tensor& tensor, std::string_view what, bool written) {
  if (tensor.present())
    owned_.push_back({tensor.data, tensor.data + tensor.bytes(), written, token, what});
}

void InFlight::release(Token token) {
  std::erase_if(owned_, [token](const Range& range) { return range.token == token; });
}

void InFlight::check_read(const Tensor& tensor, std::string_view who) const {
  if (tensor.present()) check(tensor.data, tensor.data + tensor.bytes(), false, who);
}

void InFlight::check_write(const Tensor& tensor, std::string_view who) const {
  if (tensor.present()) check(tensor.data, tensor.data + tensor.bytes(), true, who);
}

void InFlight::check_free(const std::byte* begin, const std::byte* end,
                          std::string_view who) const {
  check(begin, end, true, who);
}

void InFlight::check(const std::byte* begin, const std::byte* end, bool writes,
                     std::string_view who) const {
  for (const Range& range : owned_) {
    const bool overlaps = begin < range.end && range.begin < end;
    ORTHANT_CHECK(!overlaps || (!writes && !range.written),
                  "{} touches memory that a started {} still owns; wait for that call first", who,
                  range.what);
  }
}

}  // namespace orthant
