#include "plan/machine.h"

#include <algorithm>
#include <initializer_list>
#include <span>

#include "base/check.h"
#include "base/fields.h"
#include "base/file.h"
#include "base/text.h"
#include "base/toml.h"
#include "plan/machine_files.h"

namespace orthant {
namespace {

// Lists of numbers above 0, all of one length.
void check_lists(const std::string& name, const char* section,
                 std::initializer_list<std::span<const double>> lists) {
  for (const std::span<const double> list : lists) {
    const bool has_all = list.size() == lists.begin()->size() &&
                         std::all_of(list.begin(), list.end(), [](double x) { return x > 0; });
    if (!has_all) {
      fail_user("machine '{}': the lists of [{}] must be of one length and above 0; correct them",
                name, section);
    }
  }
}

void check_machine(const Machine& machine) {
  const MachineFacts& facts = machine.facts;
  LibraryMemory libraries = facts.libraries;
  bool has_less = facts.devices_per_host < 0 || facts.memory_mib < 0;
  libraries.fields([&has_less](const char* /*key*/, std::int64_t mib, const char* /*help*/) {
    has_less = has_less || mib < 0;
  });
  if (has_less) {
    fail_user("machine '{}': counts and sizes must be 0 or more; correct it", machine.name);
  }
  if (libraries.context_mib > libraries.libraries_mib) {
    fail_user("machine '{}': context_mib={} is part of libraries_mib={}; correct one of them",
              machine.name, libraries.context_mib, libraries.libraries_mib);
  }
  if ((facts.devices_per_host == 0) != (facts.memory_mib == 0)) {
    fail_user("machine '{}': devices_per_host={} with memory_mib={}; give both or neither",
              machine.name, facts.devices_per_host, facts.memory_mib);
  }
  const MachineRates& rates = machine.measured;
  if (machine.is_measured() && (rates.attention_tflops <= 0 || rates.memory_gb_s <= 0)) {
    fail_user(
        "machine '{}': [measured] has matmul_tflops, and needs attention_tflops and memory_gb_s "
        "above 0 beside it; give them",
        machine.name);
  }
  const ProductRates& products = machine.products;
  check_lists(machine.name, "products",
              {products.tokens, products.inputs, products.outputs, products.forward,
               products.backward_input, products.backward_weight});
  const AttentionRates& attention = machine.attention;
  check_lists(machine.name, "attention",
              {attention.head_size, attention.sequence, attention.forward, attention.backward});
  if (!attention.forward_dropout.empty() || !attention.backward_dropout.empty()) {
    check_lists(machine.name, "attention",
                {attention.head_size, attention.forward_dropout, attention.backward_dropout});
  }
}

}  // namespace

double Machine::peak_flops(DType compute) const {
  return 1e12 * (compute == DType::kF32 ? facts.peak_tflops_fp32 : facts.peak_tflops_bf16);
}

std::vector<std::string> machine_names() {
  std::vector<std::string> names;
  names.reserve(std::size(kMachineFiles));
  for (const MachineFile& file : kMachineFiles) {
    names.emplace_back(file.name);
  }
  return names;
}

std::string machine_text(Machine& machine, const std::vector<std::string>& remarks) {
  std::string text;
  for (const std::string& remark : remarks) {
    text += "# " + remark + "\n";
  }
  const FieldList fields = list_fields(machine);
  std::string section;
  for (const FieldRef& field : fields.all()) {
    if (field.section != section) text += fmt::format("\n[{}]\n", section = field.section);
    text += fmt::format("{} = {}  # {}\n", field.key, value_text(field.value), field.help);
  }
  return text;
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
