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

void InFlight::check_read(const Tensor& tensor, std::string_view who, const IsOver& is_over) const {
  if (tensor.present()) check({tensor.data, tensor.data + tensor.bytes(), false}, who, is_over);
}

void InFlight::check_write(const Tensor& tensor, std::string_view who,
                           const IsOver& is_over) const {
  if (tensor.present()) check({tensor.data, tensor.data + tensor.bytes(), true}, who, is_over);
}

void InFlight::check_free(const std::byte* begin, const std::byte* end,
                          std::string_view who) const {
  check({begin, end, true}, who, {});
}

void InFlight::check(const Access& access, std::string_view who, const IsOver& is_over) const {
  for (const Range& range : owned_) {
    const bool overlaps = access.begin < range.end && range.begin < access.end;
    const bool is_in_the_way = overlaps && (access.writes || range.written);
    ORTHANT_CHECK(!is_in_the_way || (is_over && is_over(range.token)),
                  "{} touches memory that a started {} still owns; wait for that call first", who,
                  range.what);
  }
}

}  // namespace orthant
