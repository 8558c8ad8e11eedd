#include "data/token_source.h"

#include <algorithm>
#include <numeric>

#include "base/check.h"
#include "base/text.h"

namespace orthant {
namespace {

Datasets open_datasets(const TokenSourceConfig& config) {
  if (config.prefixes.empty()) {
    fail_user("data: no dataset is given to {}; give data.train", name_of(config.order.part));
  }
  Datasets datasets;
  datasets.reserve(config.prefixes.size());
  for (const std::string& prefix : config.prefixes) {
    datasets.push_back(std::make_unique<IndexedDataset>(prefix));
  }
  return datasets;
}

std::unique_ptr<SampleOrder> make_order(const Datasets& datasets, const OrderConfig& config) {
  if (config.kind == OrderKind::kMegatron) return order_as_megatron(datasets, config);
  return config.eras.empty() ? order_in_turn(datasets, config) : order_blended(datasets, config);
}

}  // namespace

TokenSource::TokenSource(const TokenSourceConfig& config)
    : seq_length_(config.order.seq_length),
      eras_(config.order.eras),
      datasets_(open_datasets(config)),
      order_(make_order(datasets_, config.order)) {
  ORTHANT_CHECK(seq_length_ >= 1, "data: seq_length is {}", seq_length_);
  if (num_samples() > 0) return;
  std::int64_t num_tokens = 0;
  for (const auto& dataset : datasets_) {
    num_tokens += dataset->num_tokens();
  }
  fail_user(
      "data: the {} part of {} ({} tokens in all) has no sample of train.seq_length + 1 = {} "
      "tokens; lower train.seq_length, change data.split, or give more data",
      name_of(config.order.part), join(config.prefixes), num_tokens, seq_length_ + 1);
}

void TokenSource::copy_sample(std::int64_t position, std::span<std::int32_t> into) const {
  ORTHANT_CHECK(static_cast<std::int64_t>(into.size()) == seq_length_ + 1,
                "data: a sample has {} tokens, {} are asked", seq_length_ + 1, into.size());
  order_->visit_runs(position, [&](const TokenRun& run) {
    const auto count = static_cast<std::size_t>(run.count);
    datasets_[static_cast<std::size_t>(run.dataset)]->copy_tokens(run.first_token,
                                                                  into.first(count));
    into = into.subspan(count);
  });
  ORTHANT_CHECK(into.empty(), "data: the sample at {} lacks {} tokens", position, into.size());
}

void TokenSource::visit_parts(std::int64_t position, const PartVisitor& visit) const {
  DocumentPart part;
  order_->visit_runs(position, [&](const TokenRun& run) {
    const IndexedDataset& dataset = *datasets_[static_cast<std::size_t>(run.dataset)];
    const std::int64_t run_end = run.first_token + run.count;
    for (std::int64_t at = run.first_token; at < run_end;) {
      const std::int64_t document = dataset.document_of(at);
      const std::int64_t begin = dataset.sequence_begin(dataset.document_begin(document));
      const std::int64_t end = std::min(begin + dataset.document_length(document), run_end);
      const bool goes_on = part.count > 0 && part.dataset == run.dataset &&
                           part.document == document && part.first_token + part.count == at - begin;
      if (!goes_on) {
        if (part.count > 0) visit(part);
        part = {.dataset = run.dataset, .document = document, .first_token = at - begin};
      }
      part.count += end - at;
      at = end;
    }
  });
  visit(part);
}

void TokenSource::copy_places(std::int64_t position, std::span<std::int32_t> into) const {
  ORTHANT_CHECK(static_cast<std::int64_t>(into.size()) == seq_length_ + 1,
                "data: a sample has {} tokens, {} are asked", seq_length_ + 1, into.size());
  visit_parts(position, [&into](const DocumentPart& part) {
    const auto count = static_cast<std::size_t>(part.count);
    std::iota(into.begin(), into.begin() + part.count, 0);
    into = into.subspan(count);
  });
}

std::int64_t TokenSource::num_targets(std::int64_t position) const {
  std::int64_t parts = 0;
  visit_parts(position, [&parts](const DocumentPart&) { ++parts; });
  return seq_length_ - (parts - 1);
}

std::int64_t TokenSource::num_documents(std::int64_t position) const {
  std::int64_t parts = 0;
  std::int64_t tokens = 0;
  visit_parts(position, [&](const DocumentPart& part) {
    if (tokens < seq_length_) ++parts;
    tokens += part.count;
  });
  return parts;
}

void check_vocab(const TokenSource& source, std::int64_t vocab_size) {
  for (const auto& dataset : source.datasets()) {
    const TokenRange range = dataset->token_range();
    const std::int64_t wrong = range.min < 0 ? range.min : range.max;
    if (range.min < 0 || range.max >= vocab_size) {
      fail_user(
          "dataset {} has token id {}, the model's vocabulary is {} (ids 0 to {}); use the "
          "tokenizer that belongs to the model, or set model.vocab to at least {}",
          dataset->prefix(), wrong, vocab_size, vocab_size - 1, range.max + 1);
    }
  }
}

}  // namespace orthant
