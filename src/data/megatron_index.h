// Megatron-LM's document, sample and shuffle indices and its blending, number for number
// (its gpt_dataset.py and helpers.cpp).
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <vector>

namespace orthant {

// Where a sample begins: a place in the document index, and a token of that document.
struct MegatronRow {
  std::int64_t place = 0;
  std::int64_t offset = 0;
  friend bool operator==(const MegatronRow&, const MegatronRow&) = default;
};

struct MegatronIndex {
  std::vector<std::int32_t> documents;  // sequences of the dataset, once for each epoch
  std::vector<MegatronRow> rows;        // one more than samples
  std::vector<std::int64_t> shuffle;    // position to sample

  std::int64_t num_samples() const { return static_cast<std::int64_t>(rows.size()) - 1; }
};

struct MegatronRequest {
  std::int32_t first_document = 0;          // of the split
  std::span<const std::int32_t> lengths;    // tokens of each document of the split
  std::int64_t seq_length = 0;              // S; a sample has S + 1 tokens, neighbours share one
  std::optional<std::int64_t> num_samples;  // none: one epoch
  std::uint32_t seed = 0;
};

// The lengths must have at least one sample.
MegatronIndex megatron_index(const MegatronRequest& request);

// What a blend reads at each position: dataset, and how many of its samples came before.
struct MegatronBlend {
  std::vector<std::int32_t> dataset;
  std::vector<std::int64_t> sample;
};
// By weight, which this makes sum to 1.
MegatronBlend megatron_blend(std::span<const double> weights, std::int64_t num_samples);
// Every sample of datasets of these sizes once.
MegatronBlend megatron_blend_of_all(std::span<const std::int64_t> sizes);
// The samples that a dataset of a blend is asked for: with Megatron's surplus of half a percent.
std::int64_t megatron_share(double weight, std::int64_t num_samples);

}  // namespace orthant
