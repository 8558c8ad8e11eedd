// orthant bench machine: fills a machine file with the rates that this machine sustains in this
// program's kinds of work.
#include <algorithm>
#include <chrono>
#include <map>
#include <optional>
#include <thread>

#include "base/check.h"
#include "base/text.h"
#include "cli/bench.h"
#include "cli/machine_bed.h"
#include "cli/machine_links.h"
#include "cli/op_samples.h"
#include "mem/gpus.h"
#include "plan/machine.h"
#include "train/host_memory.h"

namespace orthant {
namespace {

using Clock = std::chrono::steady_clock;

double seconds_since(Clock::time_point start) {
  return std::chrono::duration<double>(Clock::now() - start).count();
}

// Of about 150 ops and copies.
constexpr double kNumMeasurements = 150;

// Takes each op from op_samples.h and keeps its rate.
class MachineMeter {
 public:
  MachineMeter(MachineBed& bed, DType type, double seconds_each)
      : bed_(bed),
        type_(type),
        seconds_(seconds_each) {}

  DType type() const { return type_; }
  template <class Make>
  void add(const std::string& name, Bound bound, Make make) {
    bed_.reset();
    const auto args = make(bed_);
    const Cost costs = cost(args);
    rates_[name] =
        (bound == Bound::kFlops ? costs.flops : costs.bytes) / bed_.seconds(args, seconds_);
  }
  // FLOP/s or bytes/s.
  double rate(const std::string& name) const { return rates_.at(name); }
  std::optional<double> find(const std::string& name) const {
    const auto found = rates_.find(name);
    return found == rates_.end() ? std::nullopt : std::optional(found->second);
  }

 private:
  MachineBed& bed_;
  DType type_;
  double seconds_;
  std::map<std::string, double> rates_;
};

// What a machine is measured with: shapes of GPT-2 and LLaMA, as large as they are in training on
// it.
struct Samples {
  std::vector<ProductShape> products;
  std::vector<AttentionShape> attention;
  SampleSizes gpt;
  SampleSizes llama;
  MachineBed::Sizes memory;
  std::int64_t host_elements;  // of an update on the host
};

// GPT-2's 50257 as models have it: with whole vectors in a row.
constexpr std::int64_t kPaddedVocabulary = 50304;

Samples gpu_samples() {
  Samples samples;
  const auto product = [&samples](std::int64_t T, std::int64_t I, std::int64_t O, bool has_bias) {
    samples.products.push_back({.tokens = T, .inputs = I, .outputs = O, .has_bias = has_bias});
  };
  for (const std::int64_t C : {768, 1600}) {
    const std::int64_t T = C == 768 ? 65536 : 16384;
    product(T, C, 3 * C, true);
    product(T, C, C, true);
    product(T, C, 4 * C, true);
    product(T, 4 * C, C, true);
    product(T / 2, C, kPaddedVocabulary, false);
  }
  for (const std::int64_t T : {4096, 16384}) {
    product(T, 4096, 12288, false);
    product(T, 4096, 4096, false);
    product(T, 4096, 22016, false);
    product(T, 11008, 4096, false);
    product(T, 4096, 32000, false);
  }
  product(2048, 2048, 2048, false);
  product(1024, 1024, 1024, false);
  for (const auto& [S, B] : {std::pair(1024, 16), {2048, 8}, {4096, 4}, {8192, 2}}) {
    samples.attention.push_back(attention_sample(B, S, 24, 24, 64));
    samples.attention.push_back(attention_sample(B, S, 32, 32, 128));
  }
  samples.gpt = {
      .tokens = 32768, .width = 768, .vocabulary = kPaddedVocabulary, .elements = 1 << 28};
  samples.llama = {.tokens = 8192,
                   .width = 4096,
                   .vocabulary = 32000,
                   .elements = 1 << 28,
                   .norm = NormKind::kRmsNorm};
  samples.memory = {.values = std::int64_t{12} << 30, .work = std::int64_t{4} << 30};
  samples.host_elements = 1 << 26;
  return samples;
}

Samples cpu_samples() {
  Samples samples;
  for (const auto& [I, O] : {std::pair(768, 768), {768, 2304}, {768, 3072}, {3072, 768}}) {
    samples.products.push_back({.tokens = 1024, .inputs = I, .outputs = O});
  }
  samples.products.push_back({.tokens = 512, .inputs = 256, .outputs = 1024});
  samples.attention = {attention_sample(4, 256, 12, 12, 64), attention_sample(1, 1024, 12, 12, 64),
                       attention_sample(1, 1024, 8, 8, 128)};
  samples.gpt = {.tokens = 1024, .width = 768, .vocabulary = 8192, .elements = 1 << 24};
  samples.llama = samples.gpt;
  samples.llama.norm = NormKind::kRmsNorm;
  samples.memory = {.values = std::int64_t{1} << 30, .work = std::int64_t{1} << 28};
  samples.host_elements = 1 << 24;
  return samples;
}

std::string text_of(const ProductShape& n) {
  return fmt::format("{}x{}x{}", n.tokens, n.inputs, n.outputs);
}

std::string text_of(const AttentionShape& n) {
  return fmt::format("{}x{}", n.S, n.D);
}

double tera(double rate) {
  return std::round(rate * 1e-10) / 100;
}
double giga(double rate) {
  return std::round(rate * 1e-8) / 10;
}

void measure_products(MachineMeter& meter, const Samples& samples, Machine& machine) {
  ProductRates& rates = machine.products;
  rates = {};
  double best = 0;
  for (const ProductShape& n : samples.products) {
    const std::string shape = text_of(n);
    add_product(meter, shape, n);
    rates.tokens.push_back(static_cast<double>(n.tokens));
    rates.inputs.push_back(static_cast<double>(n.inputs));
    rates.outputs.push_back(static_cast<double>(n.outputs));
    rates.forward.push_back(tera(meter.rate("linear_fwd " + shape)));
    rates.backward_input.push_back(tera(meter.rate("linear_bwd_input " + shape)));
    rates.backward_weight.push_back(tera(meter.rate("linear_bwd_weight " + shape)));
    best = std::max(best, rates.forward.back());
  }
  machine.measured.matmul_tflops = best;
}

void measure_attention(MachineMeter& meter, const Samples& samples, Machine& machine) {
  AttentionRates& rates = machine.attention;
  rates = {};
  double best = 0;
  for (const AttentionShape& n : samples.attention) {
    const std::string shape = text_of(n);
    add_attention(meter, shape, n);
    rates.head_size.push_back(static_cast<double>(n.D));
    rates.sequence.push_back(static_cast<double>(n.S));
    rates.forward.push_back(tera(meter.rate("attention_fwd " + shape)));
    rates.backward.push_back(tera(meter.rate("attention_bwd " + shape)));
    AttentionShape dropping = n;
    dropping.dropout = 0.1;
    add_attention(meter, "dropping " + shape, dropping);
    rates.forward_dropout.push_back(tera(meter.rate("attention_fwd dropping " + shape)));
    rates.backward_dropout.push_back(tera(meter.rate("attention_bwd dropping " + shape)));
    best = std::max(best, rates.backward.back());
  }
  machine.measured.attention_tflops = best;
}

// fp32 by one product and one attention.
void measure_fp32(MachineBed& bed, const Samples& samples, double seconds, Machine& machine) {
  MachineMeter meter(bed, DType::kF32, seconds);
  const ProductShape product = samples.products.back();
  add_product(meter, "one", product);
  machine.measured.matmul_tflops_fp32 = tera(meter.rate("linear_fwd one"));
  add_attention(meter, "one", samples.attention.front());
  // Forward and backward together: two products and five.
  const double seconds_of_one =
      2 / meter.rate("attention_fwd one") + 5 / meter.rate("attention_bwd one");
  machine.measured.attention_tflops_fp32 = tera(7 / seconds_of_one);
}

// Both models' shapes; the slower counts where both have the op.
void measure_memory(MachineBed& bed, const Samples& samples, double seconds, Machine& machine) {
  std::vector<MachineMeter> meters;
  for (const SampleSizes& sizes : {samples.gpt, samples.llama}) {
    MachineMeter& meter = meters.emplace_back(bed, DType::kBF16, seconds);
    add_norms(meter, sizes);
    add_activations(meter, sizes);
    add_tokens(meter, sizes);
  }
  add_elementwise(meters.front(), samples.gpt);
  machine.ops.fields([&meters](const char* name, double& gb_s, const char* /*help*/) {
    gb_s = 0;
    for (const MachineMeter& meter : meters) {
      const std::optional<double> rate = meter.find(name);
      if (rate && (gb_s == 0 || giga(*rate) < gb_s)) gb_s = giga(*rate);
    }
  });
  machine.measured.memory_gb_s = machine.ops.add;
}

// The least time of an op: of many on few elements.
double least_op_us(MachineBed& bed) {
  bed.reset();
  const Tensor x = bed.values({64}, DType::kBF16);
  const double seconds = bed.seconds(Add{.y = x, .a = x, .b = x}, 0.1);
  return std::round(seconds * 1e8) / 100;
}

// Bytes a second of copies of 256 MiB in one direction.
double copy_rate(MachineBed& bed, double seconds) {
  constexpr std::int64_t kBytes = std::int64_t{256} << 20;
  Device& device = bed.device();
  Arena arena(device, bed.in_flight(), "copies", kBytes, Arena::Place::kHost);
  const Tensor there = arena.alloc({kBytes}, DType::kU8, MemClass::kWork);
  bed.reset();
  const Tensor here = bed.alloc({kBytes}, DType::kU8);
  double slowest = 0;
  for (const Lane lane : {Lane::kCopyOut, Lane::kCopyIn}) {
    const bool is_out = lane == Lane::kCopyOut;
    const auto copy = [&] {
      device.start_copy(lane, is_out ? there : here, is_out ? here : there);
      device.drain();
    };
    copy();
    const Clock::time_point start = Clock::now();
    int count = 0;
    for (; count == 0 || seconds_since(start) < seconds; ++count) {
      copy();
    }
    const double rate = static_cast<double>(kBytes) * count / seconds_since(start);
    slowest = slowest == 0 ? rate : std::min(slowest, rate);
  }
  return slowest;
}

// Bytes a second that AdamW on the host reads and writes, over all threads.
double host_update_rate(int num_threads, std::int64_t elements, double seconds) {
  MachineBed host("cpu", num_threads,
                  {.values = elements * 18 + (std::int64_t{8} << 20), .work = 0});
  MachineMeter meter(host, DType::kBF16, seconds);
  add_adamw(meter, elements);
  return meter.rate("adamw");
}

// Where there are several ranks to measure them by; true: there are.
bool measure_links(const MachineBench& bench, double seconds, Machine& machine) {
  const bool is_cuda = bench.device == "cuda";
  const int ranks = is_cuda ? num_gpus() : bench.num_threads;
  if (ranks < 2) return false;
  constexpr double kLeast = 1e-3;  // 0 would say that nothing was measured
  const LinkRates links = is_cuda ? measure_gpu_links(ranks) : measure_thread_links(ranks, seconds);
  machine.measured.link_gb_s = std::max(kLeast, std::round(links.gb_s / kLeast) * kLeast);
  machine.measured.call_us = std::round(links.call_us * 10) / 10;
  return true;
}

// What this host and its devices say of themselves.
void read_facts(const MachineBench& bench, Machine& machine) {
  MachineFacts& facts = machine.facts;
  if (bench.device != "cuda") {
    facts = {.title = fmt::format("this host, {} threads", bench.num_threads)};
    return;
  }
  const std::vector<GpuFacts> found = gpus();
  if (found.empty()) {
    fail_user(
        "--device=cuda: no GPU is here that this binary can use; give --device cpu, or ask "
        "orthant doctor");
  }
  facts.title = found.front().name;
  facts.devices_per_host = static_cast<int>(found.size());
  facts.memory_mib = found.front().total_bytes >> 20;
}

// Of the device's memory, what is in use beside `reserved` bytes.
std::int64_t libraries_mib(std::int64_t reserved) {
  const GpuFacts gpu = gpus().front();
  return (gpu.total_bytes - gpu.free_bytes - reserved) >> 20;
}

// Before a kernel is loaded here. Other processes have ended by then.
void measure_connected_libraries(LibraryMemory& memory) {
  if (num_gpus() > 1) measure_link_memory(num_gpus(), memory);
  memory.context_mib = libraries_mib(0);
}

}  // namespace

std::string bench_machine(const MachineBench& bench) {
  Machine machine;
  if (!bench.like.empty()) machine = load_machine(bench.like);
  const bool is_cuda = bench.device == "cuda";
  const Samples samples = is_cuda ? gpu_samples() : cpu_samples();
  const double each = bench.seconds / kNumMeasurements;
  if (bench.like.empty()) read_facts(bench, machine);
  const bool has_links = measure_links(bench, each / 4, machine);  // first, since it may fail
  if (is_cuda) measure_connected_libraries(machine.facts.libraries);
  {
    MachineBed bed(bench.device, bench.num_threads, samples.memory);
    MachineMeter meter(bed, DType::kBF16, each);
    measure_products(meter, samples, machine);
    measure_attention(meter, samples, machine);
    measure_fp32(bed, samples, each, machine);
    measure_memory(bed, samples, each, machine);
    machine.measured.op_us = least_op_us(bed);
    if (is_cuda) {
      machine.facts.libraries.libraries_mib = libraries_mib(bed.reserved_bytes());
      machine.measured.host_copy_gb_s = giga(copy_rate(bed, 4 * each));
    }
  }
  machine.measured.host_memory_gb_s =
      giga(host_update_rate(bench.num_threads, samples.host_elements, 4 * each));
  std::vector<std::string> remarks = {
      fmt::format("Written by orthant bench machine --device {} --threads {} --seconds {:g}.",
                  bench.device, bench.num_threads, bench.seconds)};
  if (!bench.like.empty()) {
    remarks.push_back(fmt::format("{}etworks, and what the vendor says, are those of machine {}.",
                                  has_links ? "N" : "Links and n", bench.like));
  }
  return machine_text(machine, remarks);
}

}  // namespace orthant
