#include "data/dataset_files.h"

#include <algorithm>
#include <cfenv>
#include <cmath>
#include <cstring>
#include <filesystem>
#include <limits>
#include <memory>
#include <numeric>
#include <span>
#include <string_view>

#include "base/check.h"
#include "base/crc32c.h"
#include "data/index_reader.h"
#include "data/indexed_dataset_writer.h"

namespace orthant {
namespace {

void refuse_modes(const DatasetStream& input) {
  if (input.header().has_modes) {
    fail_user("dataset {} is multimodal, which is not supported; give one of text alone",
              input.prefix());
  }
}

void refuse_same(const std::string& input, const std::string& output) {
  std::error_code ignored;
  if (input == output || std::filesystem::equivalent(input + ".idx", output + ".idx", ignored)) {
    fail_user("dataset {} is an input and an output; give another prefix for the output", input);
  }
}

void copy_document(DatasetStream& from, IndexedDatasetWriter& to) {
  from.next_document([&to](std::span<const std::byte> tokens) { to.append_raw(tokens); },
                     [&to] { to.end_sequence(); });
  to.end_document();
}

DatasetCounts counts_of(const IndexedDatasetWriter& writer) {
  return {writer.num_documents(), writer.num_sequences(), writer.num_tokens()};
}

// Half to even, as Python rounds.
std::int64_t rounded(double value) {
  ORTHANT_CHECK(std::fegetround() == FE_TONEAREST, "the rounding mode is not to nearest");
  return static_cast<std::int64_t>(std::nearbyint(value));
}

template <class T>
void widen(TokenRange& range, std::span<const std::byte> tokens) {
  T min = std::numeric_limits<T>::max();
  T max = std::numeric_limits<T>::min();
  for (std::size_t at = 0; at < tokens.size(); at += sizeof(T)) {
    T value;
    std::memcpy(&value, tokens.data() + at, sizeof(T));
    min = std::min(min, value);
    max = std::max(max, value);
  }
  const bool is_first = range.min > range.max;
  range.min = is_first ? min : std::min<std::int64_t>(range.min, min);
  range.max = is_first ? max : std::max<std::int64_t>(range.max, max);
}

void widen(TokenType type, TokenRange& range, std::span<const std::byte> tokens) {
  switch (type) {
    case TokenType::kU8: return widen<std::uint8_t>(range, tokens);
    case TokenType::kI8: return widen<std::int8_t>(range, tokens);
    case TokenType::kI16: return widen<std::int16_t>(range, tokens);
    case TokenType::kI32: return widen<std::int32_t>(range, tokens);
    case TokenType::kI64: return widen<std::int64_t>(range, tokens);
    case TokenType::kU16: break;
  }
  widen<std::uint16_t>(range, tokens);
}

}  // namespace

DatasetCounts merge_datasets(const std::vector<std::string>& inputs, const std::string& output) {
  if (inputs.empty()) fail_user("data merge: no input is given; give prefixes of datasets");
  TokenType type = TokenType::kU16;
  for (const std::string& prefix : inputs) {
    refuse_same(prefix, output);
    const DatasetStream input(prefix);
    refuse_modes(input);
    if (&prefix == &inputs.front()) type = input.header().type;
    if (input.header().type != type) {
      fail_user(
          "data merge: tokens of {} are {}, those of {} are {}; they come from different "
          "tokenizers, pack them with one",
          inputs.front(), name_of(type), prefix, name_of(input.header().type));
    }
  }
  IndexedDatasetWriter writer(output, type);
  for (const std::string& prefix : inputs) {
    DatasetStream input(prefix);
    for (std::int64_t i = 0; i < input.num_documents(); ++i) {
      copy_document(input, writer);
    }
    input.check_end();
  }
  writer.commit();
  return counts_of(writer);
}

std::vector<DatasetCounts> split_dataset(const std::string& input,
                                         const std::vector<DatasetShare>& shares) {
  if (shares.empty()) fail_user("data split: no output is given; give PREFIX=SHARE");
  const double all =
      std::accumulate(shares.begin(), shares.end(), 0.0,
                      [](double sum, const DatasetShare& share) { return sum + share.share; });
  DatasetStream stream(input);
  refuse_modes(stream);
  std::vector<std::unique_ptr<IndexedDatasetWriter>> writers;
  double before = 0;
  std::int64_t done = 0;
  for (const DatasetShare& share : shares) {
    if (!(share.share > 0) || !std::isfinite(all)) {
      fail_user("data split: the share of {} is {}; it must be above 0", share.output, share.share);
    }
    refuse_same(input, share.output);
    writers.push_back(std::make_unique<IndexedDatasetWriter>(share.output, stream.header().type));
    before += share.share;
    const bool is_last = &share == &shares.back();
    const std::int64_t end =
        is_last ? stream.num_documents()
                : rounded(before / all * static_cast<double>(stream.num_documents()));
    for (; done < end; ++done) {
      copy_document(stream, *writers.back());
    }
    if (writers.back()->num_documents() == 0) {
      fail_user(
          "data split: {} has {} documents, of which {} would get none; give it a larger share",
          input, stream.num_documents(), share.output);
    }
  }
  stream.check_end();
  std::vector<DatasetCounts> counts;
  counts.reserve(writers.size());
  for (const auto& writer : writers) {
    writer->commit();
    counts.push_back(counts_of(*writer));
  }
  return counts;
}

DatasetReport verify_dataset(const std::string& prefix, std::int64_t vocab_size) {
  DatasetStream stream(prefix);
  DatasetReport report;
  report.type = stream.header().type;
  report.range = {0, -1};
  const std::int64_t size = size_of(report.type);
  for (std::int64_t i = 0; i < stream.num_documents(); ++i) {
    const std::int64_t before = report.counts.num_tokens;
    stream.next_document(
        [&](std::span<const std::byte> tokens) {
          widen(report.type, report.range, tokens);
          report.counts.num_tokens += static_cast<std::int64_t>(tokens.size()) / size;
          report.checksum = crc32c({reinterpret_cast<const char*>(tokens.data()), tokens.size()},
                                   report.checksum);
        },
        [] {});
    const std::int64_t length = report.counts.num_tokens - before;
    if (vocab_size > 0 && (report.range.max >= vocab_size || report.range.min < 0)) {
      fail_user(
          "dataset {}: document {} has ids from {} to {}, the vocabulary has {}; it was packed "
          "with another tokenizer",
          prefix, i, report.range.min, report.range.max, vocab_size);
    }
    report.num_empty_documents += length == 0 ? 1 : 0;
    report.longest_document = std::max(report.longest_document, length);
  }
  stream.check_end();
  report.counts.num_documents = stream.num_documents();
  report.counts.num_sequences = stream.header().num_sequences;
  return report;
}

}  // namespace orthant
