// Machine: what a kind of computer offers, as a file of configs/machines says it. The files are
// part of the binary.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "mem/dtype.h"

namespace orthant {

// From data sheets.
struct MachineFacts {
  std::string title;
  int devices_per_host = 0;  // 0: all ranks of a run share one host and its memory
  std::int64_t memory_mib = 0;
  std::int64_t libraries_mib = 0;
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
    v("libraries_mib", libraries_mib, "of it what driver and libraries take for themselves, MiB");
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
  double attention_tflops = 0;
  double memory_gb_s = 0;
  double link_gb_s = 0;
  double network_gb_s = 0;
  double host_copy_gb_s = 0;
  double call_us = 0;
  double op_us = 0;

  template <class Visitor>
  void fields(Visitor&& v) {
    v("matmul_tflops", matmul_tflops, "sustained matrix products, TFLOP/s");
    v("attention_tflops", attention_tflops, "causal attention, TFLOP/s");
    v("memory_gb_s", memory_gb_s, "read and written by element-wise ops, GB/s");
    v("link_gb_s", link_gb_s, "bus bandwidth of large collectives in a host, GB/s");
    v("network_gb_s", network_gb_s, "bus bandwidth of large collectives between hosts, GB/s");
    v("host_copy_gb_s", host_copy_gb_s, "between device and host, one way, GB/s");
    v("call_us", call_us, "least time of a call between ranks, us");
    v("op_us", op_us, "least time of an op, us");
  }
};

struct Machine {
  std::string name;
  MachineFacts facts;
  MachineRates measured;

  bool shares_host() const { return facts.devices_per_host == 0; }
  bool is_measured() const { return measured.matmul_tflops > 0; }
  std::int64_t library_bytes() const { return facts.libraries_mib << 20; }
  double peak_flops(DType compute) const;  // 0: not known

  template <class Visitor>
  void sections(Visitor&& v) {
    v("machine", facts);
    v("measured", measured);
  }
};

std::vector<std::string> machine_names();

// One of machine_names(), or a file, which ends in ".toml". A user error names the nearest.
Machine load_machine(const std::string& name);

}  // namespace orthant
