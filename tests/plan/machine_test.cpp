// Machine files: those in the binary, and those of a user.
#include "plan/machine.h"

#include <fstream>

#include <gtest/gtest.h>
#include <unistd.h>

#include "base/check.h"

namespace orthant {
namespace {

std::string error_of(const std::string& name) {
  try {
    load_machine(name);
  } catch (const Error& error) {
    EXPECT_EQ(error.fault(), Fault::kUser);
    return error.what();
  }
  return "no error";
}

TEST(Machine, KnownOnesAreInTheBinary) {
  for (const char* name : {"a100-40g", "a100-80g", "cpu", "h100-80g", "h200"}) {
    const Machine machine = load_machine(name);
    EXPECT_FALSE(machine.facts.title.empty()) << name;
    EXPECT_EQ(machine.shares_host(), std::string(name) == "cpu");
    if (machine.shares_host()) continue;
    EXPECT_EQ(machine.facts.devices_per_host, 8) << name;
    EXPECT_GT(machine.facts.memory_mib, 40000) << name;
    EXPECT_GT(machine.peak_flops(DType::kBF16), machine.peak_flops(DType::kF32)) << name;
    EXPECT_GT(machine.facts.link_gb_s, machine.facts.network_gb_s) << name;
    LibraryMemory libraries = machine.facts.libraries;
    libraries.fields([name](const char* key, std::int64_t mib, const char* /*help*/) {
      EXPECT_GT(mib, 0) << name << " " << key;
    });
  }
}

TEST(Machine, AnUnknownNameNamesTheNearest) {
  EXPECT_EQ(error_of("a100-80gb"),
            "--machine=a100-80gb is not known; did you mean 'a100-80g'? Known are a100-40g, "
            "a100-80g, cpu, h100-80g, h200, and files that end in .toml");
}

TEST(Machine, AFileIsRead) {
  const std::string path = testing::TempDir() + fmt::format("machine-{}.toml", ::getpid());
  std::ofstream(path) << "[machine]\ntitle = \"two\"\ndevices_per_host = 2\nmemory_mib = 100\n";
  EXPECT_EQ(load_machine(path).facts.devices_per_host, 2);
  EXPECT_FALSE(load_machine(path).is_measured());
  std::ofstream(path) << "[machine]\ndevices_per_host = 2\n";
  EXPECT_EQ(error_of(path), fmt::format("machine '{}': devices_per_host=2 with memory_mib=0; give "
                                        "both or neither",
                                        path));
  std::ofstream(path) << "[machine]\nlibraries_mib = 5\ncontext_mib = 6\n";
  EXPECT_EQ(error_of(path), fmt::format("machine '{}': context_mib=6 is part of libraries_mib=5; "
                                        "correct one of them",
                                        path));
  std::ofstream(path) << "[machine]\nnccl_mib = -1\n";
  EXPECT_NE(error_of(path).find("counts and sizes must be 0 or more"), std::string::npos);
  std::ofstream(path) << "[measured]\nmatmul_tflops = 2\n";
  EXPECT_NE(error_of(path).find("needs attention_tflops and memory_gb_s"), std::string::npos);
  std::ofstream(path) << "[products]\ntokens = [4.0, 5.0]\ninputs = [1.0]\n";
  EXPECT_NE(error_of(path).find("the lists of [products] must be of one length"),
            std::string::npos);
  const std::string attention =
      "[attention]\nhead_size = [64.0]\nsequence = [8.0]\nforward = [1.0]\nbackward = [1.0]\n";
  std::ofstream(path) << attention;
  EXPECT_TRUE(load_machine(path).attention.forward_dropout.empty());
  std::ofstream(path) << attention << "forward_dropout = [1.0]\n";
  EXPECT_NE(error_of(path).find("the lists of [attention] must be of one length"),
            std::string::npos);
  ::unlink(path.c_str());
}

TEST(Machine, IsReadBackAsItWasWritten) {
  Machine machine = load_machine("h200");
  machine.ops.norm_fwd = 3210.5;
  const std::string path = testing::TempDir() + fmt::format("written-{}.toml", ::getpid());
  std::ofstream(path) << machine_text(machine, {"one", "two"});
  Machine read = load_machine(path);
  ::unlink(path.c_str());
  EXPECT_EQ(machine_text(read, {}), machine_text(machine, {}));
  EXPECT_EQ(read.ops.norm_fwd, 3210.5);
}

}  // namespace
}  // namespace orthant
