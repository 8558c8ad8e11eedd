// Fixture: a Hugging Face model, its data and its float64 training curve, and runs of it on thread
// ranks.
#pragma once

#include <array>
#include <filesystem>
#include <fstream>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "base/file.h"
#include "base/json.h"
#include "ckpt/safetensors.h"
#include "comm/backends.h"
#include "hf/hf_config.h"
#include "hf/hf_source.h"
#include "params/state_reader.h"
#include "train/dry_run.h"
#include "train/rank.h"

namespace orthant::test {

inline std::string fixture_folder(const std::string& name) {
  return std::string(ORTHANT_SOURCE_DIR) + "/../shared/fixtures/" + name;
}
inline bool has_fixture(const std::string& name) {
  return std::filesystem::exists(fixture_folder(name));
}

struct Fixture {
  std::string folder;
  ModelConfig model;
  Json expected;
  std::vector<std::int32_t> tokens;

  explicit Fixture(const std::string& name) : folder(fixture_folder(name)) {
    model = read_hf_config(folder).model;
    expected = Json::parse(read_text_file(folder + "/expected.json"));
    const std::string bytes = read_text_file(folder + "/corpus.bin");  // u16
    for (std::size_t i = 0; i + 1 < bytes.size(); i += 2) {
      tokens.push_back(static_cast<unsigned char>(bytes[i]) +
                       256 * static_cast<unsigned char>(bytes[i + 1]));
    }
  }
};

// Host memory of one rank's micro-batches of one step in sequential order.
struct StepData {
  std::vector<std::vector<std::int32_t>> tokens;
  std::vector<std::vector<std::int64_t>> ids;
  std::vector<std::vector<std::int32_t>> places;
  std::vector<HostMicro> micros;

  StepData(const std::vector<std::int32_t>& stream, const LayoutConfig& layout, int dp_rank,
           std::int64_t step, std::int64_t G, std::int64_t S) {
    const std::int64_t b = layout.micro_batch;
    const std::int64_t dp = layout.dp();
    const std::int64_t samples = (static_cast<std::int64_t>(stream.size()) - 1) / S;
    for (std::int64_t k = 0; k < G / (b * dp); ++k) {
      std::vector<std::int32_t> rows;
      std::vector<std::int64_t> row_ids;
      for (std::int64_t j = 0; j < b; ++j) {
        const std::int64_t position = step * G + (k * dp + dp_rank) * b + j;
        const std::int64_t sample = position % samples;
        for (std::int64_t s = 0; s <= S; ++s) {
          rows.push_back(stream[static_cast<std::size_t>(sample * S + s)]);
        }
        row_ids.push_back(position);
      }
      tokens.push_back(std::move(rows));
      ids.push_back(std::move(row_ids));
    }
    for (std::size_t i = 0; i < tokens.size(); ++i) {
      micros.push_back({tokens[i], ids[i]});
    }
  }
};

// What a training left behind; weights are canonical, whole and f32.
struct Curve {
  std::vector<double> loss;
  std::vector<double> norm;
  std::map<std::string, std::vector<float>> weights;
  std::map<std::string, std::vector<float>> grads;  // of step 1
  std::string memory_fault;                         // where plan and run disagreed
  std::string ledger_fault;
};

struct Training {
  RankConfig config;
  std::int64_t global_batch = 8;
  int steps = 20;
  double max_lr = 0.005;
  double min_lr = 0.0005;
  int warmup = 4;
  int total_steps = 20;
  std::string ops = "cpu";
  int num_threads = 1;
  bool wants_grads = false;
  // Whether a token of the stream does, with config.by_document; null: it is one document.
  std::function<bool(std::int64_t token)> begins_document = {};
  // Another world than that of the threads; null: theirs.
  std::function<std::unique_ptr<Communicator>(ThreadWorld& world, int rank, const CommParts& parts)>
      join;

  double lr_at(int step) const {
    if (step <= warmup) return max_lr * step / warmup;
    const double share = static_cast<double>(step - warmup) / (total_steps - warmup);
    return min_lr + 0.5 * (max_lr - min_lr) * (1 + std::cos(3.14159265358979323846 * share));
  }
};

// Tells the micro-batches of a step of a stream of `num_tokens` where their documents begin.
inline void add_documents(const Training& training, std::int64_t num_tokens, int dp_rank,
                          std::int64_t step, StepData& data) {
  if (!training.begins_document) return;
  const std::int64_t S = training.config.seq_length;
  const std::int64_t b = training.config.layout.micro_batch;
  const std::int64_t rows = b * training.config.layout.dp();  // of a micro-batch on all dp ranks
  data.places.resize(data.micros.size());
  for (std::size_t k = 0; k < data.micros.size(); ++k) {
    HostMicro& micro = data.micros[k];
    for (std::int64_t row = 0; row < rows; ++row) {
      const std::int64_t position =
          step * training.global_batch + static_cast<std::int64_t>(k) * rows + row;
      const std::int64_t first = position % ((num_tokens - 1) / S) * S;
      std::int32_t place = 0;
      for (std::int64_t s = 0; s <= S; ++s, ++place) {
        if (training.begins_document(first + s)) place = 0;
        if (row / b == dp_rank) data.places[k].push_back(place);
        if (place > 0) ++micro.num_targets;
      }
    }
    micro.places = data.places[k];
  }
}

inline std::string compare_plans(const MemoryPlan& plan, const MemoryPlan& run) {
  for (std::size_t i = 0; i < plan.arenas.size(); ++i) {
    if (plan.arenas[i] == run.arenas[i]) continue;
    return fmt::format("arena {} is planned {} bytes, ran to {}", plan.arenas[i].name,
                       plan.arenas[i].bytes, run.arenas[i].bytes);
  }
  return {};
}

inline std::string compare_ledgers(std::span<const Entry> plan, std::span<const Entry> run) {
  if (plan.size() != run.size())
    return fmt::format("{} entries are planned, {} ran", plan.size(), run.size());
  for (std::size_t i = 0; i < plan.size(); ++i) {
    if (!same(plan[i], run[i])) {
      return fmt::format("entry {}: planned {} in {}, ran {} in {}", i, plan[i].what, plan[i].where,
                         run[i].what, run[i].where);
    }
  }
  return {};
}

inline void gather(Rank& rank, bool grads, std::map<std::string, std::vector<float>>& into) {
  for (const ParamStore::Owned& owned : rank.store().owned()) {
    auto& whole = into[owned.piece.name];
    whole.resize(static_cast<std::size_t>(owned.piece.global.count()));
    StateReader reader(rank.device(), owned.piece.count);
    const std::span<const float> values = grads ? reader.values(rank.device(), owned.grad)
                                                : reader.weights(owned, 0, owned.piece.count);
    for (const Run& run : runs_of(owned.piece)) {
      std::copy_n(values.begin() + run.local, run.count, whole.begin() + run.global);
    }
  }
}

// Trains on thread ranks; every rank is planned by its own dry run and checked against it.
inline Curve train(const Training& training, const ParamSource& source,
                   const std::vector<std::int32_t>& stream) {
  const RankConfig& config = training.config;
  Curve curve;
  std::mutex mutex;
  ThreadWorld world(config.layout.ranks, 60);
  run_rank_threads(world, [&](int r) {
    const DryRun plan = dry_run(config, r, 0);
    const auto device = make_device(training.ops, gpu_of(r));
    const Backend backend{.device = *device,
                          .ops = training.ops,
                          .join_world =
                              [&](const CommParts& parts) {
                                return training.join ? training.join(world, r, parts)
                                                     : world.join(r, parts);
                              },
                          .num_threads = training.num_threads};
    Rank rank(config, backend, plan.memory);
    rank.store().load(source);
    const int dp_rank = rank.mesh().coord(Axis::kDp);
    for (int step = 1; step <= training.steps; ++step) {
      StepData data(stream, config.layout, dp_rank, step - 1, training.global_batch,
                    config.seq_length);
      add_documents(training, static_cast<std::int64_t>(stream.size()), dp_rank, step - 1, data);
      if (step == 1 && training.wants_grads) {
        rank.gradients(1, data.micros, static_cast<int>(data.micros.size()));
        const std::lock_guard lock(mutex);
        gather(rank, true, curve.grads);
      }
      const StepResult result =
          rank.step(step, training.lr_at(step), data.micros, static_cast<int>(data.micros.size()));
      if (r == 0) {
        curve.loss.push_back(result.loss);
        curve.norm.push_back(result.grad_norm);
      }
    }
    const std::string ledger = compare_ledgers(plan.step, rank.ledger().entries());
    rank.store().settle();
    const std::lock_guard lock(mutex);
    const std::string memory = compare_plans(plan.memory, rank.memory());
    if (!memory.empty()) curve.memory_fault = fmt::format("rank {}: {}", r, memory);
    if (!ledger.empty()) curve.ledger_fault = fmt::format("rank {}: {}", r, ledger);
    gather(rank, false, curve.weights);
  });
  return curve;
}

// The fixture's own training on a layout.
inline Training fixture_training(const Fixture& fixture, int tp, int pp, int dp,
                                 std::int64_t micro_batch) {
  Training training;
  training.config.model = fixture.model;
  training.config.layout.ranks = tp * pp * dp;
  training.config.layout.tp = tp;
  training.config.layout.pp = pp;
  training.config.layout.micro_batch = micro_batch;
  training.config.seq_length = 32;
  training.config.max_micros = static_cast<int>(8 / (micro_batch * dp));
  return training;
}

}  // namespace orthant::test
