#include "ops/expect.h"

namespace orthant {
namespace {

bool overlap(const Tensor& a, const Tensor& b) {
  const bool has_elements = a.bytes() > 0 && b.bytes() > 0;
  return has_elements && a.data < b.data + b.bytes() && b.data < a.data + a.bytes();
}

}  // namespace

Expect::Expect(std::string_view op, Role role, std::string_view anchor_name, const Tensor& anchor,
               int rank)
    : op_(op) {
  ORTHANT_CHECK(anchor.present(), "{}: {} is absent; it must be given", op, anchor_name);
  ORTHANT_CHECK(rank == kAnyRank || anchor.shape.rank() == rank,
                "{}: {} is {}; it must have {} dimensions", op, anchor_name, anchor.shape.text(),
                rank);
  keep(role, anchor_name, anchor);
}

void Expect::anchor_is_float() const {
  const Arg& anchor = args_[0];
  ORTHANT_CHECK(is_float(anchor.tensor->dtype), "{}: {} is {}; it must be f32, bf16, f16 or f64",
                op_, anchor.name, name_of(anchor.tensor->dtype));
}

void Expect::anchor_is(DType dtype) const {
  const Arg& anchor = args_[0];
  ORTHANT_CHECK(anchor.tensor->dtype == dtype, "{}: {} is {}; it must be {}", op_, anchor.name,
                name_of(anchor.tensor->dtype), name_of(dtype));
}

void Expect::keep(Role role, std::string_view name, const Tensor& tensor) {
  ORTHANT_CHECK(num_args_ < kMaxArgs, "{}: more than {} tensors", op_, kMaxArgs);
  args_[num_args_++] = {role, name, &tensor};
}

void Expect::add(Role role, std::string_view name, const Tensor& tensor, const Shape& shape,
                 DType dtype) {
  const Arg& anchor = args_[0];
  ORTHANT_CHECK(tensor.present(), "{}: {} is absent, {} is {}; {} must be {} {}", op_, name,
                anchor.name, anchor.tensor->shape.text(), name, shape.text(), name_of(dtype));
  ORTHANT_CHECK(tensor.shape == shape, "{}: {} is {}, {} is {}; {} must be {}", op_, name,
                tensor.shape.text(), anchor.name, anchor.tensor->shape.text(), name, shape.text());
  ORTHANT_CHECK(tensor.dtype == dtype, "{}: {} is {}, {} is {}; {} must be {}", op_, name,
                name_of(tensor.dtype), anchor.name, name_of(anchor.tensor->dtype), name,
                name_of(dtype));
  keep(role, name, tensor);
}

void Expect::absent(std::string_view name, const Tensor& tensor, std::string_view reason) const {
  ORTHANT_CHECK(tensor.absent(), "{}: {} is given, but {}; leave it absent", op_, name, reason);
}

void Expect::no_overlap(std::initializer_list<Pair> allowed) const {
  for (std::size_t i = 0; i < num_args_; ++i) {
    for (std::size_t j = 0; j < num_args_; ++j) {
      // Two outputs meet once.
      const bool meet = args_[i].role == Role::kOut && (args_[j].role == Role::kIn || i < j);
      if (meet && overlap(*args_[i].tensor, *args_[j].tensor)) {
        check_shared(args_[i], args_[j], allowed);
      }
    }
  }
}

void Expect::check_shared(const Arg& out, const Arg& other,
                          std::initializer_list<Pair> allowed) const {
  bool is_allowed = false;
  for (const Pair& pair : allowed) {
    is_allowed |= &pair.out == out.tensor && &pair.in == other.tensor;
  }
  ORTHANT_CHECK(is_allowed, "{}: {} overlaps {} in memory; they must be apart", op_, out.name,
                other.name);
  ORTHANT_CHECK(
      out.tensor->data == other.tensor->data && out.tensor->bytes() == other.tensor->bytes(),
      "{}: {} overlaps a part of {}; they must be the same memory or apart", op_, out.name,
      other.name);
}

}  // namespace orthant
