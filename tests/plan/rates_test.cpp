// Times of ops, copies and the host's work by a machine's rates.
#include "plan/rates.h"

#include <gtest/gtest.h>

#include "plan/plan.h"

namespace orthant {
namespace {

Machine measured() {
  Machine machine;
  machine.name = "made up";
  machine.facts.devices_per_host = 8;
  machine.facts.memory_mib = 1 << 20;
  machine.measured = {.matmul_tflops = 100,
                      .matmul_tflops_fp32 = 10,
                      .attention_tflops = 50,
                      .memory_gb_s = 1000,
                      .link_gb_s = 100,
                      .host_copy_gb_s = 50,
                      .host_memory_gb_s = 80};
  return machine;
}

double seconds(const Machine& machine, const Stretch::Op& op, DType compute = DType::kBF16) {
  ProgramTables tables;
  tables.stretch(std::span(&op, 1));
  return durations_on(machine, {.compute = compute, .seq_length = 2048}, tables).stretches.at(0);
}

Stretch::Op product(const char* name, double T, double I, double O, double depth) {
  return {.what = name,
          .lane = Lane::kCompute,
          .cost = {.flops = 2 * T * I * O, .bytes = 1, .depth = depth}};
}

TEST(Rates, AProductTakesTheRateOfTheNearestShape) {
  Machine machine = measured();
  EXPECT_NEAR(seconds(machine, product("linear_fwd", 1000, 1000, 1000, 1000)), 2e9 / 100e12, 1e-12);
  machine.products = {.tokens = {1000, 8000},
                      .inputs = {1000, 8000},
                      .outputs = {1000, 8000},
                      .forward = {40, 80},
                      .backward_input = {50, 90},
                      .backward_weight = {60, 95}};
  EXPECT_NEAR(seconds(machine, product("linear_fwd", 1000, 1000, 1000, 1000)), 2e9 / 40e12, 1e-9);
  EXPECT_NEAR(seconds(machine, product("linear_bwd_input", 8000, 8000, 8000, 8000)), 1024e9 / 90e12,
              1e-6);
  const double between = seconds(machine, product("linear_bwd_weight", 2800, 2800, 2800, 2800));
  EXPECT_GT(between, 2 * 2800.0 * 2800 * 2800 / 95e12);
  EXPECT_LT(between, 2 * 2800.0 * 2800 * 2800 / 60e12);
  EXPECT_NEAR(seconds(machine, product("linear_fwd", 1000, 1000, 1000, 1000), DType::kF32),
              2e9 / 10e12, 1e-12);
}

TEST(Rates, GeluInsideOfAProductTakesTheTimeOfOneTensor) {
  Machine machine = measured();
  machine.ops.gelu_fwd = 500;
  machine.ops.gelu_bwd = 250;
  const auto seconds_of_gelu = [&](const char* name, bool is_inside) {
    Stretch::Op op = product(name, 1000, 1000, 1000, 1000);
    op.cost.bytes += 2e6;
    op.cost.activation_bytes = 2e6;
    ProgramTables tables;
    tables.stretch(std::span(&op, 1));
    const Work work{.seq_length = 2048, .makes_gelu_inside = is_inside};
    return durations_on(machine, work, tables).stretches.at(0) - 2e9 / 100e12;
  };
  EXPECT_NEAR(seconds_of_gelu("linear_fwd", true), 2e6 / 500e9, 1e-12);
  EXPECT_NEAR(seconds_of_gelu("linear_bwd_input", true), 2e6 / 250e9, 1e-12);
  EXPECT_NEAR(seconds_of_gelu("linear_fwd", false), 4e6 / 500e9, 1e-12);
  EXPECT_NEAR(seconds_of_gelu("linear_bwd_input", false), 6e6 / 250e9, 1e-12);
}

TEST(Rates, AttentionTakesTheRateOfItsHeadAndSequence) {
  Machine machine = measured();
  machine.attention = {.head_size = {64, 64, 128},
                       .sequence = {1024, 4096, 2048},
                       .forward = {10, 30, 50},
                       .backward = {20, 40, 60},
                       .forward_dropout = {},
                       .backward_dropout = {}};
  const auto op = [](const char* name, double head) {
    return Stretch::Op{
        .what = name, .lane = Lane::kCompute, .cost = {.flops = 1e12, .bytes = 1, .depth = head}};
  };
  EXPECT_NEAR(seconds(machine, op("attention_fwd", 64)), 1.0 / 20, 1e-9);
  EXPECT_NEAR(seconds(machine, op("attention_bwd", 80)), 1.0 / 30, 1e-9);
  EXPECT_NEAR(seconds(machine, op("attention_bwd", 128)), 1.0 / 60, 1e-9);
}

TEST(Rates, AttentionWithDropoutTakesItsOwn) {
  Machine machine = measured();
  machine.attention = {.head_size = {64},
                       .sequence = {2048},
                       .forward = {10},
                       .backward = {20},
                       .forward_dropout = {},
                       .backward_dropout = {}};
  machine.measured.attention_tflops_fp32 = 2;
  const auto seconds_of = [&](const char* name, const Work& work) {
    const Stretch::Op op = {
        .what = name, .lane = Lane::kCompute, .cost = {.flops = 1e12, .bytes = 1, .depth = 64}};
    ProgramTables tables;
    tables.stretch(std::span(&op, 1));
    return durations_on(machine, work, tables).stretches.at(0);
  };
  const Work dropping{.seq_length = 2048, .drops_attention = true};
  EXPECT_NEAR(seconds_of("attention_fwd", dropping), 1.0 / 10, 1e-9);
  machine.attention.forward_dropout = {4};
  machine.attention.backward_dropout = {5};
  EXPECT_NEAR(seconds_of("attention_fwd", dropping), 1.0 / 4, 1e-9);
  EXPECT_NEAR(seconds_of("attention_bwd", dropping), 1.0 / 5, 1e-9);
  EXPECT_NEAR(seconds_of("attention_fwd", {.seq_length = 2048}), 1.0 / 10, 1e-9);
  const Work exact{.seq_length = 2048, .drops_attention = true, .attends_exactly = true};
  EXPECT_NEAR(seconds_of("attention_bwd", exact), 1.0 / 2, 1e-9);
}

TEST(Rates, MemoryBindsWhatHasFewFlops) {
  Machine machine = measured();
  const Stretch::Op norm = {
      .what = "norm_fwd", .lane = Lane::kCompute, .cost = {.flops = 1, .bytes = 1e9}};
  EXPECT_NEAR(seconds(machine, norm), 1e-3, 1e-12);
  machine.ops.norm_fwd = 500;
  EXPECT_NEAR(seconds(machine, norm), 2e-3, 1e-12);
}

Plan offloading(const Machine& machine) {
  PlanRequest request;
  RunConfig& config = request.job.config;
  config.model = preset("gpt2-124m");
  config.layout.offload = "optimizer";
  config.train.global_batch = 2;
  config.train.seq_length = 64;
  config.precision.compute = "bf16";
  config.device.kind = "cuda";
  validate(config);
  request.machine = machine;
  return make_plan(request);
}

// A third of 124 M parameters of 30 bytes at 80 GB/s takes 16 ms, and little of that hides behind
// the forward of 128 tokens. The GPU updates the others.
TEST(Rates, AStepWaitsForUpdatesOnTheHost) {
  Machine machine = measured();
  machine.measured.host_copy_gb_s = 1e6;
  const Plan slow = offloading(machine);
  machine.measured.host_memory_gb_s = 1e6;
  const Plan fast = offloading(machine);
  ASSERT_TRUE(slow.time && fast.time);
  EXPECT_NEAR(slow.time->step_s - fast.time->step_s, 124.4e6 / 3 * 30 / 80e9, 3e-3);
  EXPECT_GT(slow.time->waits.at("host"), 12e-3);
}

TEST(Rates, WhatIsNotMeasuredIsNamed) {
  Machine machine = measured();
  machine.measured.host_memory_gb_s = 0;
  const Plan plan = offloading(machine);
  EXPECT_FALSE(plan.time.has_value());
  EXPECT_EQ(plan.missing_rate, "host_memory_gb_s");
}

}  // namespace
}  // namespace orthant
