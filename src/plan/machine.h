// Machine: what a kind of computer offers, as a file of configs/machines says it. The files are
// part of the binary.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "mem/dtype.h"
#include "train/library_memory.h"

namespace orthant {

// From data sheets.
struct MachineFacts {
  std::string title;
  int devices_per_host = 0;  // 0: all ranks of a run share one host and its memory
  std::int64_t memory_mib = 0;
  LibraryMemory libraries = {};
  std::int64_t host_memory_gib = 0;
  double peak_tflops_bf16 = 0;
  double peak_tflops_fp32 = 0;
  double memory_gb_s = 0;
  std::string link = "memory";
  double link_gb_s = 0;
  std::string network = "network";
  double network_gb_s = 0;

  template <class Visitor>
  void fields(Visitor&& v) {
    v("title", title, "what it is");
    v("devices_per_host", devices_per_host, "devices of a host; 0: ranks share one host's memory");
    v("memory_mib", memory_mib, "of a device, MiB; 0: what this host has free");
    libraries.fields(v);
    v("host_memory_gib", host_memory_gib, "of a host, GiB; 0: not known");
    v("peak_tflops_bf16", peak_tflops_bf16, "dense bf16, TFLOP/s");
    v("peak_tflops_fp32", peak_tflops_fp32, "fp32, TFLOP/s");
    v("memory_gb_s", memory_gb_s, "read and written, GB/s");
    v("link", link, "what joins the devices of a host");
    v("link_gb_s", link_gb_s, "of a device to its host's others, each way, GB/s");
    v("network", network, "what joins hosts");
    v("network_gb_s", network_gb_s, "of a device to other hosts, each way, GB/s");
  }
};

// From measurements with this program's kinds of work; 0: not measured.
struct MachineRates {
  double matmul_tflops = 0;
  double matmul_tflops_fp32 = 0;
  double attention_tflops = 0;
  double attention_tflops_fp32 = 0;
  double memory_gb_s = 0;
  double link_gb_s = 0;
  double network_gb_s = 0;
  double host_copy_gb_s = 0;
  double host_memory_gb_s = 0;
  double call_us = 0;
  double op_us = 0;

  template <class Visitor>
  void fields(Visitor&& v) {
    v("matmul_tflops", matmul_tflops, "sustained matrix products in 16 bits, TFLOP/s");
    v("matmul_tflops_fp32", matmul_tflops_fp32, "those in fp32");
    v("attention_tflops", attention_tflops, "causal attention in 16 bits, TFLOP/s");
    v("attention_tflops_fp32", attention_tflops_fp32, "that in fp32");
    v("memory_gb_s", memory_gb_s, "read and written by element-wise ops, GB/s");
    v("link_gb_s", link_gb_s, "bus bandwidth of large collectives in a host, GB/s");
    v("network_gb_s", network_gb_s, "bus bandwidth of large collectives between hosts, GB/s");
    v("host_copy_gb_s", host_copy_gb_s, "between device and host, one way, GB/s");
    v("host_memory_gb_s", host_memory_gb_s, "read and written by updates on the host, GB/s");
    v("call_us", call_us, "least time of a call between ranks, us");
    v("op_us", op_us, "least time of an op, us");
  }
};

// Products in 16 bits by shape; lists of one length. None: all take matmul_tflops.
struct ProductRates {
  std::vector<double> tokens;
  std::vector<double> inputs;
  std::vector<double> outputs;
  std::vector<double> forward;
  std::vector<double> backward_input;
  std::vector<double> backward_weight;

  template <class Visitor>
  void fields(Visitor&& v) {
    v("tokens", tokens, "rows of each product that was measured");
    v("inputs", inputs, "its input width");
    v("outputs", outputs, "its output width");
    v("forward", forward, "TFLOP/s of y = x w^T");
    v("backward_input", backward_input, "of dx = dy w");
    v("backward_weight", backward_weight, "of dw += dy^T x");
  }
};

// Causal attention in 16 bits by shape; lists of one length. None: all takes attention_tflops.
struct AttentionRates {
  std::vector<double> head_size;
  std::vector<double> sequence;
  std::vector<double> forward;
  std::vector<double> backward;
  std::vector<double> forward_dropout;  // none: as without
  std::vector<double> backward_dropout;

  template <class Visitor>
  void fields(Visitor&& v) {
    v("head_size", head_size, "width of a head of each attention that was measured");
    v("sequence", sequence, "its tokens");
    v("forward", forward, "TFLOP/s, half of all pairs counted");
    v("backward", backward, "of its gradient");
    v("forward_dropout", forward_dropout, "TFLOP/s with dropout of the probabilities");
    v("backward_dropout", backward_dropout, "of its gradient");
  }
};

// GB/s read and written by ops that memory binds; 0: memory_gb_s.
struct OpRates {
  double add = 0;
  double accumulate = 0;
  double copy = 0;
  double zero = 0;
  double dropout = 0;
  double norm_fwd = 0;
  double norm_bwd = 0;
  double rotary = 0;
  double gelu_fwd = 0;
  double gelu_bwd = 0;
  double swiglu_fwd = 0;
  double swiglu_bwd = 0;
  double embedding_fwd = 0;
  double embedding_bwd = 0;
  double softmax_part = 0;
  double cross_entropy_bwd = 0;
  double squared_norm = 0;
  double adamw = 0;

  template <class Visitor>
  void fields(Visitor&& v) {
    v("add", add, "GB/s of the op of that name");
    v("accumulate", accumulate, "GB/s");
    v("copy", copy, "GB/s");
    v("zero", zero, "GB/s");
    v("dropout", dropout, "GB/s");
    v("norm_fwd", norm_fwd, "GB/s");
    v("norm_bwd", norm_bwd, "GB/s");
    v("rotary", rotary, "GB/s");
    v("gelu_fwd", gelu_fwd, "GB/s");
    v("gelu_bwd", gelu_bwd, "GB/s");
    v("swiglu_fwd", swiglu_fwd, "GB/s");
    v("swiglu_bwd", swiglu_bwd, "GB/s");
    v("embedding_fwd", embedding_fwd, "GB/s");
    v("embedding_bwd", embedding_bwd, "GB/s");
    v("softmax_part", softmax_part, "GB/s");
    v("cross_entropy_bwd", cross_entropy_bwd, "GB/s");
    v("squared_norm", squared_norm, "GB/s");
    v("adamw", adamw, "GB/s");
  }
};

struct Machine {
  std::string name;
  MachineFacts facts;
  MachineRates measured;
  ProductRates products;
  AttentionRates attention;
  OpRates ops;

  bool shares_host() const { return facts.devices_per_host == 0; }
  bool is_measured() const { return measured.matmul_tflops > 0; }
  double peak_flops(DType compute) const;  // 0: not known

  template <class Visitor>
  void sections(Visitor&& v) {
    v("machine", facts);
    v("measured", measured);
    v("products", products);
    v("attention", attention);
    v("ops", ops);
  }
};

std::vector<std::string> machine_names();

// The file that load_machine() reads back, `remarks` above it: lines, each with "# " before it.
std::string machine_text(Machine& machine, const std::vector<std::string>& remarks);

// One of machine_names(), or a file, which ends in ".toml". A user error names the nearest.
Machine load_machine(const std::string& name);

}  // namespace orthant
