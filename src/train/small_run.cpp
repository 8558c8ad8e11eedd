#include "train/small_run.h"

#include <algorithm>
#include <cmath>
#include <numeric>
#include <vector>

#include "base/random.h"
#include "data/indexed_dataset_writer.h"

namespace orthant {
namespace {

// Heads as they lie over tp: whole groups on a rank, or several ranks that hold one key-value head.
void shrink_heads(ModelConfig& small, const ModelConfig& model, std::int64_t tp) {
  if (model.kv_heads % tp == 0) {
    const std::int64_t most = tp >= 4 ? 1 : 2;
    small.kv_heads = tp * std::min(model.kv_heads / tp, most);
    small.heads = small.kv_heads * std::min<std::int64_t>(model.heads / model.kv_heads, 2);
  } else {
    small.kv_heads = model.kv_heads;
    small.heads = tp * std::min<std::int64_t>(model.heads / tp, 2);
  }
}

// At most two blocks in a part; where the counts are not listed, the first has one more than
// others.
std::int64_t shrink_depth(LayoutConfig& layout, std::int64_t layers) {
  const std::int64_t parts = std::int64_t{layout.pp} * layout.virtual_stages;
  if (layout.stages.is_text()) return std::min(layers, parts + 1);
  const std::vector<std::int64_t> counts = layout.stages.ints;
  std::int64_t sum = 0;
  for (std::int64_t most = 2; sum < parts; ++most) {
    std::transform(counts.begin(), counts.end(), layout.stages.ints.begin(),
                   [most](std::int64_t count) { return std::min(count, most); });
    sum = std::accumulate(layout.stages.ints.begin(), layout.stages.ints.end(), std::int64_t{0});
  }
  return sum;
}

void shrink_model(RunConfig& small, const RunConfig& run) {
  const std::int64_t tp = run.layout.tp;
  ModelConfig& model = small.model;
  model.layers = shrink_depth(small.layout, run.model.layers);
  shrink_heads(model, run.model, tp);
  model.head_dim = model.heads > 4 ? 8 : 16;
  const bool is_square = run.model.heads * run.model.head_dim == run.model.hidden;
  model.hidden = model.heads * model.head_dim + (is_square ? 0 : 8);
  const double widening = std::clamp(
      static_cast<double>(run.model.ffn) / static_cast<double>(run.model.hidden), 1.0, 8.0);
  const double unit = 8.0 * static_cast<double>(tp);  // rows of 16 bytes on each rank
  const auto units = std::llround(widening * static_cast<double>(model.hidden) / unit);
  model.ffn = std::max<std::int64_t>(units, 1) * 8 * tp;
  model.vocab = std::min(run.model.vocab, 32 * tp - 3);  // the last part is padded
  model.init_std = 1 / std::sqrt(static_cast<double>(model.hidden));
  // cuDNN's masks depend on tp and on the micro-batch, see ops/workspace.h.
  const bool has_other_masks = small.device.kind == "cuda" && !small.train.deterministic &&
                               small.compute_type() != DType::kF32;
  if (has_other_masks) model.dropout = 0;
}

// Sequences and micro-batches: few, odd where they may be, and enough to fill the pipeline.
void shrink_batch(RunConfig& small, const RunConfig& run) {
  LayoutConfig& layout = small.layout;
  const bool splits_rows = layout.sequence_parallel || layout.split_saved_inputs;
  const std::int64_t length = splits_rows ? (8 / layout.tp + 1) * layout.tp : 11;
  if (length <= run.train.seq_length) {
    small.train.seq_length = length;
    layout.micro_batch = std::min<std::int64_t>(layout.micro_batch, 2);
  }
  const std::int64_t of_run = run.max_global_batch() / (run.layout.micro_batch * layout.dp());
  constexpr int kDeep = 8;  // from here on one rank would be long at work with more
  const std::int64_t enough = (layout.pp <= kDeep ? 2 : 1) * std::int64_t{layout.pp} + 1;
  const std::int64_t micros = layout.schedule == "file" ? of_run : std::min(of_run, enough);
  small.train.global_batch = micros * layout.micro_batch * layout.dp();
  small.train.accumulation = 0;
  small.train.batch_ramp.clear();
  const bool has_table = run.model.position == "learned";
  small.model.max_positions = has_table
                                  ? std::min(run.model.max_positions, small.train.seq_length + 3)
                                  : small.train.seq_length;
}

}  // namespace

RunConfig small_run(const RunConfig& run, const std::string& folder) {
  RunConfig small = run;
  small.origin = {};
  if (small.layout.recompute_blocks > 0) small.layout.recompute_blocks = 1;
  shrink_model(small, run);
  shrink_batch(small, run);
  small.train.steps = kSmallSteps;
  small.train.eval_interval = 0;
  small.train.max_minutes = 0;
  // Large updates tell what has come of them. They are nearly proportional to the gradients: of
  // those that are nothing but rounding AdamW's usual eps would make as much as of others.
  small.optimizer.lr = small.optimizer.min_lr = 0.05;
  small.optimizer.eps = 0.01;
  small.optimizer.warmup_steps = 0;
  small.optimizer.decay = "constant";
  small.optimizer.decay_steps = 0;
  small.data.train = {folder + "/tokens"};
  small.data.weights.clear();
  small.data.valid.clear();
  small.data.split.clear();
  small.checkpoint = {};
  small.checkpoint.dir = folder + "/checkpoints";
  small.checkpoint.keep = 0;
  small.log.dir = folder;
  validate(small);
  return small;
}

RunConfig on_one_rank(const RunConfig& small, std::int64_t micro_batch) {
  RunConfig plain = small;
  plain.layout = {};
  plain.layout.micro_batch = micro_batch;
  plain.layout.deadline_s = small.layout.deadline_s;
  validate(plain);
  return plain;
}

void write_small_data(const RunConfig& small) {
  const std::int64_t vocab = small.model.vocab;
  const std::int64_t samples = kSmallSteps * small.train.global_batch + 1;
  const std::int64_t count = samples * small.train.seq_length + 1;
  constexpr std::int64_t kDocuments = 3;
  IndexedDatasetWriter writer(small.data.train.front(), vocab);
  std::vector<std::int32_t> document;
  for (std::int64_t i = 0; i < count; ++i) {
    const std::uint32_t word = philox(1, stream_of("tokens"), static_cast<std::uint64_t>(i))[0];
    document.push_back(static_cast<std::int32_t>(word % static_cast<std::uint64_t>(vocab)));
    const bool ends = i + 1 == count || (i + 1) % (count / kDocuments) == 0;
    if (!ends) continue;
    writer.append(document);
    writer.end_document();
    document.clear();
  }
  writer.commit();
}

void UnevenSource::read(const ParamSpec& param, StateKind state, std::int64_t first,
                        std::span<float> into) const {
  initial_.read(param, state, first, into);
  if (state != StateKind::kWeight || param.init.kind == Init::Kind::kNormal) return;
  constexpr double kSpread = 0.1;
  const std::uint64_t stream = stream_of(param.name);
  for (std::size_t i = 0; i < into.size(); ++i) {
    const auto element = static_cast<std::uint64_t>(first) + i;
    into[i] += static_cast<float>(kSpread * normal(seed_, stream, element));
  }
}

}  // namespace orthant
