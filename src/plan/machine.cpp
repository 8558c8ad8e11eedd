#include "plan/machine.h"

#include <algorithm>

#include "base/check.h"
#include "base/fields.h"
#include "base/file.h"
#include "base/text.h"
#include "base/toml.h"
#include "plan/machine_files.h"

namespace orthant {
namespace {

void check_machine(const Machine& machine) {
  const MachineFacts& facts = machine.facts;
  if (facts.devices_per_host < 0 || facts.memory_mib < 0 || facts.libraries_mib < 0) {
    fail_user("machine '{}': counts and sizes must be 0 or more; correct it", machine.name);
  }
  if ((facts.devices_per_host == 0) != (facts.memory_mib == 0)) {
    fail_user("machine '{}': devices_per_host={} with memory_mib={}; give both or neither",
              machine.name, facts.devices_per_host, facts.memory_mib);
  }
  const MachineRates& rates = machine.measured;
  const double needed[] = {rates.attention_tflops, rates.memory_gb_s, rates.link_gb_s,
                           rates.network_gb_s, rates.host_copy_gb_s};
  const bool has_all =
      std::all_of(std::begin(needed), std::end(needed), [](double rate) { return rate > 0; });
  if (machine.is_measured() && !has_all) {
    fail_user("machine '{}': [measured] needs every rate above 0 beside matmul_tflops; give all",
              machine.name);
  }
}

}  // namespace

double Machine::peak_flops(DType compute) const {
  return 1e12 * (compute == DType::kF32 ? facts.peak_tflops_fp32 : facts.peak_tflops_bf16);
}

std::vector<std::string> machine_names() {
  std::vector<std::string> names;
  for (const MachineFile& file : kMachineFiles) {
    names.emplace_back(file.name);
  }
  return names;
}

Machine load_machine(const std::string& name) {
  Machine machine;
  machine.name = name;
  FieldList fields = list_fields(machine);
  if (name.ends_with(".toml")) {
    read_toml_file(fields, name);
  } else {
    const auto* found =
        std::find_if(kMachineFiles.begin(), kMachineFiles.end(),
                     [&name](const MachineFile& file) { return file.name == name; });
    if (found == kMachineFiles.end()) {
      const std::vector<std::string> names = machine_names();
      fail_user(
          "--machine={} is not known; did you mean '{}'? Known are {}, and files that end in "
          ".toml",
          name, nearest(name, names), join(names));
    }
    read_toml(fields, found->text, "configs/machines/" + name + ".toml");
  }
  check_machine(machine);
  return machine;
}

}  // namespace orthant
