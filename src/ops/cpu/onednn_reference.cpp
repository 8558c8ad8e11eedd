#include "ops/cpu/onednn_reference.h"

#include <bit>
#include <unordered_map>
#include <vector>

#include "ops/cpu/onednn.h"

namespace orthant {
struct OneDnnReference::Product {
  dnnl::engine engine{dnnl::engine::kind::cpu, 0};
  dnnl::stream stream{engine};
  std::vector<float> a, b, c;  // as many bytes as any type needs
  dnnl::matmul matmul;
  std::unordered_map<int, dnnl::memory> args;
};

OneDnnReference::OneDnnReference(int size, DType type, int num_threads)
    : size_(size),
      type_(type == DType::kBF16 && cpu::onednn_has_bf16() ? DType::kBF16 : DType::kF32),
      num_threads_(num_threads),
      product_(std::make_unique<Product>()) {
  const cpu::OpenMpThreads threads(num_threads);
  Product& p = *product_;
  const auto count = static_cast<std::size_t>(size) * static_cast<std::size_t>(size);
  // Both types read about 1 / 64.
  const auto value = std::bit_cast<float>(0x3c803c80U);
  p.a.assign(count, value);
  p.b.assign(count, value);
  p.c.assign(count, 0.0F);
  const dnnl::memory::desc desc({size, size}, cpu::onednn_type(type_),
                                dnnl::memory::format_tag::ab);
  p.matmul = dnnl::matmul(cpu::matmul_desc(p.engine, {.a = desc, .b = desc, .bias = {}, .c = desc},
                                           dnnl::primitive_attr()));
  p.args = {{DNNL_ARG_SRC, dnnl::memory(desc, p.engine, p.a.data())},
            {DNNL_ARG_WEIGHTS, dnnl::memory(desc, p.engine, p.b.data())},
            {DNNL_ARG_DST, dnnl::memory(desc, p.engine, p.c.data())}};
}

OneDnnReference::~OneDnnReference() = default;

double OneDnnReference::flops() const {
  return 2.0 * size_ * size_ * size_;
}

void OneDnnReference::run() {
  const cpu::OpenMpThreads threads(num_threads_);
  product_->matmul.execute(product_->stream, product_->args);
  product_->stream.wait();
}

}  // namespace orthant
