// InFlight: which memory started calls own until they are waited for. Touching it is an error on
// every backend, meta included: so the dry run proves a run free of use before completion.
#pragma once

#include <functional>
#include <string_view>
#include <vector>

#include "base/ledger.h"
#include "mem/tensor.h"

namespace orthant {

class InFlight {
 public:
  // A started call writes `tensor` (nobody may touch it) ...
  void own_written(Token token, const Tensor& tensor, std::string_view what) {
    own(token, tensor, what, true);
  }
  // ... or reads it (nobody may write it).
  void own_read(Token token, const Tensor& tensor, std::string_view what) {
    own(token, tensor, what, false);
  }
  void release(Token token);
  bool empty() const { return owned_.empty(); }

  // Throw when a started call forbids the access; `who` names the op that asks. Calls of which
  // `is_over` holds when the access takes place forbid nothing.
  using IsOver = std::function<bool(Token)>;
  void check_read(const Tensor& tensor, std::string_view who, const IsOver& is_over = {}) const;
  void check_write(const Tensor& tensor, std::string_view who, const IsOver& is_over = {}) const;
  void check_free(const std::byte* begin, const std::byte* end, std::string_view who) const;

 private:
  struct Range {
    const std::byte* begin;
    const std::byte* end;
    bool written;
    Token token;
    std::string_view what;
  };
  void own(Token token, const Tensor& tensor, std::string_view what, bool written);
  struct Access {
    const std::byte* begin;
    const std::byte* end;
    bool writes;
  };
  void check(const Access& access, std::string_view who, const IsOver& is_over) const;
  std::vector<Range> owned_;
};

}  // namespace orthant
