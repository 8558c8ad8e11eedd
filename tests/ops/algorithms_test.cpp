// The text of chosen algorithms, and what ranks that share them see.
#include "ops/algorithms.h"

#include <thread>
#include <vector>

#include <gtest/gtest.h>

#include "base/check.h"

namespace orthant {
namespace {

const AlgorithmPlace kPlace = {.gpu = "NVIDIA \"H200\"",
                               .capability = 90,
                               .multiprocessors = 132,
                               .cublaslt = 130002,
                               .workspace_bytes = 33554432};

ProductProblem problem_of(std::int64_t m) {
  return {.m = m,
          .n = 3072,
          .k = 768,
          .type = DType::kBF16,
          .result = DType::kF32,
          .transposes_a = true,
          .transposes_b = false,
          .adds = true,
          .gelu = ProductGelu::kNone,
          .bias_alignment = 0,
          .d_alignment = 256,
          .a_alignment = 16,
          .b_alignment = 2};
}

ChosenAlgorithm chosen(std::uint64_t word, double ms = 0.125) {
  return {.words = {word, 0, ~std::uint64_t{0}, 1, 2, 3, 4, 0x8000000000000005}, .ms = ms};
}

AlgorithmTable table_of(const AlgorithmPlace& place, std::int64_t m, std::uint64_t word) {
  return {{place, {{problem_of(m), chosen(word)}}}};
}

// The text of four products of one place and one of another.
std::string whole_text() {
  AlgorithmTable table = table_of(kPlace, 8192, 7);
  ProductProblem with_bias = problem_of(1);
  with_bias.bias_alignment = 64;
  table[kPlace].emplace(with_bias, chosen(9, 1.0 / 3));
  for (const ProductGelu gelu : {ProductGelu::kForward, ProductGelu::kGradient}) {
    ProductProblem with_gelu = problem_of(1);
    with_gelu.gelu = gelu;
    table[kPlace].emplace(with_gelu, chosen(10));
  }
  AlgorithmPlace newer = kPlace;
  newer.cublaslt = 130100;
  table[newer].emplace(problem_of(8192), chosen(8));
  return algorithms_text(table);
}

TEST(AlgorithmText, ReadsBackTheSame) {
  const AlgorithmTable table = parse_algorithms(whole_text(), "a.json");
  EXPECT_EQ(table.size(), 2U);
  EXPECT_EQ(table.at(kPlace).size(), 4U);
  EXPECT_EQ(table.at(kPlace).at(problem_of(8192)), chosen(7));
  EXPECT_EQ(algorithms_text(table), whole_text());
  EXPECT_TRUE(parse_algorithms(algorithms_text({}), "a.json").empty());
}

TEST(AlgorithmText, HasALineForEachProduct) {
  EXPECT_EQ(algorithms_text(table_of(kPlace, 8192, 7)),
            R"({
 "format": "orthant-algorithms",
 "version": 1,
 "places": [
  {"gpu": "NVIDIA \"H200\"", "capability": 90, "multiprocessors": 132, "cublaslt": 130002, "workspace_bytes": 33554432, "products": [
   {"m":8192,"n":3072,"k":768,"type":"bf16","result":"f32","transposes_a":true,"transposes_b":false,"adds":true,"bias_alignment":0,"d_alignment":256,"a_alignment":16,"b_alignment":2,"ms":0.125,"algorithm":"00000000000000070000000000000000ffffffffffffffff00000000000000010000000000000002000000000000000300000000000000048000000000000005"}]}]
}
)");
}

std::string refusal_of(const std::string& text) {
  try {
    parse_algorithms(text, "a.json");
  } catch (const Error& error) {
    EXPECT_EQ(error.fault(), Fault::kUser);
    return error.what();
  }
  return "";
}

std::string changed(const std::string& from, const std::string& to) {
  std::string text = algorithms_text(table_of(kPlace, 8192, 7));
  const std::size_t at = text.find(from);
  EXPECT_NE(at, std::string::npos) << from;
  return text.replace(at, from.size(), to);
}

TEST(AlgorithmText, IsRefusedWhereItIsDamaged) {
  const std::string whole = whole_text();
  for (std::size_t size = 0; size + 1 < whole.size(); size += 7) {
    EXPECT_EQ(refusal_of(whole.substr(0, size)).find("a.json is damaged: "), 0U) << size;
  }
  const struct {
    const char* from;
    const char* to;
    const char* said;
  } cases[] = {
      {"orthant-algorithms", "orthant-checkpoint", "not a file of algorithms of version 1"},
      {"\"version\": 1", "\"version\": 2", "not a file of algorithms of version 1"},
      {"\"m\":8192", "\"m\":0", "\"m\": 0 cannot be"},
      {"\"m\":8192", "\"m\":8192.5", "\"m\": 8192.5 cannot be"},
      {"\"m\":8192", "\"m\":18446744073709551615", "\"m\""},
      {"\"m\":8192,", "", "'m'"},
      {"\"bf16\"", "\"f64\"", "\"type\": \"f64\" cannot be"},
      {"\"adds\":true", "\"adds\":1", "boolean"},
      {"\"adds\":true", "\"adds\":true,\"gelu\":\"erf\"", "\"gelu\": \"erf\" cannot be"},
      {"\"a_alignment\":16", "\"a_alignment\":24", "\"a_alignment\": 24 cannot be"},
      {"\"d_alignment\":256", "\"d_alignment\":512", "\"d_alignment\": 512 cannot be"},
      {"\"bias_alignment\":0", "\"bias_alignment\":-1", "\"bias_alignment\": -1 cannot be"},
      {"\"ms\":0.125", "\"ms\":-1", "\"ms\": -1 cannot be"},
      {"\"algorithm\":\"0", "\"algorithm\":\"", "\"algorithm\""},
      {"\"algorithm\":\"0", "\"algorithm\":\"g", "\"algorithm\""},
      {"\"algorithm\":\"0", "\"algorithm\":\"-", "\"algorithm\""},
      {"\"capability\": 90", "\"capability\": 4294967386", "\"capability\""},
  };
  for (const auto& [from, to, said] : cases) {
    EXPECT_NE(refusal_of(changed(from, to)).find(said), std::string::npos)
        << to << ": " << refusal_of(changed(from, to));
  }
}

TEST(AlgorithmText, IsRefusedWhereItSaysAThingTwice) {
  const std::string text = algorithms_text(table_of(kPlace, 8192, 7));
  const std::size_t product = text.find("   {\"m\"");
  const std::string line = text.substr(product, text.find("]}]") - product);
  std::string twice = text;
  EXPECT_NE(refusal_of(twice.insert(product, line + ",\n")).find("a product twice"),
            std::string::npos);
  const std::size_t place = text.find("  {\"gpu\"");
  const std::string section = text.substr(place, text.find("]}]") + 2 - place);
  twice = text;
  EXPECT_NE(refusal_of(twice.insert(place, section + ",\n")).find("a place twice"),
            std::string::npos);
}

TEST(Algorithms, TheFirstChoiceCounts) {
  Algorithms algorithms;
  EXPECT_FALSE(algorithms.find(kPlace, problem_of(1)));
  EXPECT_EQ(algorithms.choose(kPlace, problem_of(1), chosen(5)), chosen(5));
  EXPECT_EQ(algorithms.choose(kPlace, problem_of(1), chosen(6)), chosen(5));
  algorithms.learn(table_of(kPlace, 1, 7));
  EXPECT_EQ(algorithms.find(kPlace, problem_of(1)), chosen(5));
  EXPECT_FALSE(algorithms.find(kPlace, problem_of(2)));
  AlgorithmPlace other = kPlace;
  other.cublaslt = 120000;
  EXPECT_FALSE(algorithms.find(other, problem_of(1)));
}

TEST(Algorithms, WhatIsSettledReplacesNews) {
  Algorithms algorithms;
  algorithms.choose(kPlace, problem_of(1), chosen(5));
  algorithms.settle(table_of(kPlace, 1, 5));
  EXPECT_EQ(algorithms.edition(), 0);
  EXPECT_TRUE(algorithms.news().empty());
  EXPECT_EQ(algorithms.settled(), table_of(kPlace, 1, 5));
  algorithms.choose(kPlace, problem_of(2), chosen(5));
  algorithms.settle(table_of(kPlace, 2, 6));
  EXPECT_EQ(algorithms.edition(), 1);
  EXPECT_EQ(algorithms.find(kPlace, problem_of(2)), chosen(6));
  EXPECT_EQ(algorithms.choose(kPlace, problem_of(2), chosen(7)), chosen(6));
}

TEST(Algorithms, WhatIsRefusedIsChosenAgain) {
  Algorithms algorithms;
  algorithms.settle(table_of(kPlace, 1, 5));
  algorithms.refuse(kPlace, problem_of(1), chosen(6));  // another has chosen anew
  EXPECT_EQ(algorithms.find(kPlace, problem_of(1)), chosen(5));
  algorithms.refuse(kPlace, problem_of(1), chosen(5));
  EXPECT_FALSE(algorithms.find(kPlace, problem_of(1)));
  EXPECT_EQ(algorithms.choose(kPlace, problem_of(1), chosen(7)), chosen(7));
  EXPECT_EQ(algorithms.news(), table_of(kPlace, 1, 7));
}

TEST(Algorithms, ThreadsThatChooseAtOnceTakeTheSame) {
  constexpr std::int64_t kProblems = 200;
  constexpr std::uint64_t kThreads = 4;
  Algorithms algorithms;
  std::vector<std::vector<ChosenAlgorithm>> taken(kThreads);
  std::vector<std::thread> threads;
  for (std::uint64_t t = 0; t < kThreads; ++t) {
    threads.emplace_back([&, t] {
      for (std::int64_t m = 1; m <= kProblems; ++m) {
        const auto found = algorithms.find(kPlace, problem_of(m));
        taken[t].push_back(found ? *found : algorithms.choose(kPlace, problem_of(m), chosen(t)));
      }
    });
  }
  for (std::thread& thread : threads) {
    thread.join();
  }
  for (const auto& of_thread : taken) {
    EXPECT_EQ(of_thread, taken[0]);
  }
}

}  // namespace
}  // namespace orthant
