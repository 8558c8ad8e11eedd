// Pairs wait in a heap with the words in which they came up; a count that has fallen since is
// noticed when its pair is at the top.
#include "data/bpe_trainer.h"

#include <algorithm>
#include <array>
#include <map>
#include <queue>

#include "base/check.h"
#include "base/json.h"
#include "data/token_texts.h"
#include "data/word_patterns.h"

namespace orthant {
namespace {

using Pair = std::pair<std::int32_t, std::int32_t>;

std::uint64_t key_of(const Pair& pair) {
  return static_cast<std::uint64_t>(pair.first) << 32 | static_cast<std::uint32_t>(pair.second);
}

struct Candidate {
  std::int64_t count;
  Pair pair;
  std::vector<std::int32_t> words;  // where it came up, ascending

  // Whether it comes later.
  bool operator<(const Candidate& other) const {
    return count != other.count ? count < other.count : pair > other.pair;
  }
};

struct Word {
  std::vector<std::int32_t> ids;
  std::int64_t count = 0;
};

class Trainer {
 public:
  Trainer(const PieceCounts& pieces, const BpeTraining& training) : training_(training) {
    for (const std::string& token : training.special_tokens) {
      id_of(token);
    }
    add_bytes();
    add_words(pieces);
  }

  TrainedBpe run() {
    while (static_cast<std::int64_t>(tokens_.size()) < training_.vocab_size && !heap_.empty()) {
      Candidate top = heap_.top();
      heap_.pop();
      const std::int64_t count = pair_counts_[key_of(top.pair)];
      if (top.count != count) {
        top.count = count;
        heap_.push(std::move(top));
        continue;
      }
      if (count < std::max<std::int64_t>(1, training_.min_count)) break;
      merge(top);
    }
    return {std::move(tokens_), distinct_merges()};
  }

 private:
  std::int32_t id_of(const std::string& token) {
    const auto [found, is_new] = ids_.emplace(token, static_cast<std::int32_t>(tokens_.size()));
    if (is_new) tokens_.push_back(token);
    return found->second;
  }

  // In the order of the characters that stand for them.
  void add_bytes() {
    std::array<std::string, 256> texts;
    for (std::size_t byte = 0; byte < 256; ++byte) {
      texts[byte] = byte_level_text(std::string(1, static_cast<char>(byte)));
    }
    std::array<std::string, 256> sorted = texts;
    // UTF-8 sorts as its code points.
    std::sort(sorted.begin(), sorted.end());
    for (const std::string& text : sorted) {
      id_of(text);
    }
    for (std::size_t byte = 0; byte < 256; ++byte) {
      byte_ids_[byte] = id_of(texts[byte]);
    }
  }

  void add_words(const PieceCounts& pieces) {
    std::vector<const PieceCounts::value_type*> sorted;
    sorted.reserve(pieces.size());
    for (const auto& piece : pieces) {
      sorted.push_back(&piece);
    }
    std::sort(sorted.begin(), sorted.end(),
              [](const auto* a, const auto* b) { return a->first < b->first; });
    words_.reserve(sorted.size());
    for (const auto* piece : sorted) {
      Word word;
      word.count = piece->second;
      for (const char c : piece->first) {
        word.ids.push_back(byte_ids_[static_cast<unsigned char>(c)]);
      }
      words_.push_back(std::move(word));
    }
    for (std::size_t w = 0; w < words_.size(); ++w) {
      const std::vector<std::int32_t>& ids = words_[w].ids;
      for (std::size_t i = 0; i + 1 < ids.size(); ++i) {
        change({ids[i], ids[i + 1]}, static_cast<std::int32_t>(w), 1);
      }
    }
    push_candidates();
  }

  // The pair comes up once more, or once less, in a word.
  void change(const Pair& pair, std::int32_t word, int by) {
    pair_counts_[key_of(pair)] += by * words_[static_cast<std::size_t>(word)].count;
    if (by < 0) return;
    std::vector<std::int32_t>& places = came_up_[pair];
    if (places.empty() || places.back() != word) places.push_back(word);
  }

  void push_candidates() {
    for (auto& [pair, places] : came_up_) {
      const std::int64_t count = pair_counts_[key_of(pair)];
      if (count > 0) heap_.push({count, pair, std::move(places)});
    }
    came_up_.clear();
  }

  void merge(const Candidate& candidate) {
    const auto [left, right] = candidate.pair;
    const std::int32_t merged =
        id_of(tokens_[static_cast<std::size_t>(left)] + tokens_[static_cast<std::size_t>(right)]);
    merges_.push_back(candidate.pair);
    for (const std::int32_t word : candidate.words) {
      merge_in(word, candidate.pair, merged);
    }
    push_candidates();
  }

  void merge_in(std::int32_t word, const Pair& pair, std::int32_t merged) {
    std::vector<std::int32_t>& ids = words_[static_cast<std::size_t>(word)].ids;
    std::size_t kept = 0;
    for (std::size_t i = 0; i < ids.size(); ++kept) {
      const bool is_pair = i + 1 < ids.size() && ids[i] == pair.first && ids[i + 1] == pair.second;
      if (!is_pair) {
        ids[kept] = ids[i++];
        continue;
      }
      if (kept > 0) {
        change({ids[kept - 1], pair.first}, word, -1);
        change({ids[kept - 1], merged}, word, 1);
      }
      if (i + 2 < ids.size()) {
        change({pair.second, ids[i + 2]}, word, -1);
        change({merged, ids[i + 2]}, word, 1);
      }
      ids[kept] = merged;
      i += 2;
    }
    ids.resize(kept);
  }

  // A pair can be merged again where another pair has made the same token; its last rank holds.
  std::vector<Pair> distinct_merges() const {
    std::vector<Pair> distinct;
    std::unordered_map<std::uint64_t, std::size_t> last;
    for (std::size_t i = 0; i < merges_.size(); ++i) {
      last[key_of(merges_[i])] = i;
    }
    for (std::size_t i = 0; i < merges_.size(); ++i) {
      if (last[key_of(merges_[i])] == i) distinct.push_back(merges_[i]);
    }
    return distinct;
  }

  const BpeTraining& training_;
  std::vector<std::string> tokens_;
  std::unordered_map<std::string, std::int32_t> ids_;
  std::array<std::int32_t, 256> byte_ids_{};
  std::vector<Word> words_;
  std::unordered_map<std::uint64_t, std::int64_t> pair_counts_;
  std::map<Pair, std::vector<std::int32_t>> came_up_;  // since the last merge
  std::priority_queue<Candidate> heap_;
  std::vector<Pair> merges_;
};

}  // namespace

TrainedBpe train_bpe(const PieceCounts& pieces, const BpeTraining& training) {
  const auto least = static_cast<std::int64_t>(training.special_tokens.size()) + 256;
  if (training.vocab_size < least) {
    fail_user("a vocabulary of {} is asked; special tokens and bytes alone are {}, give more",
              training.vocab_size, least);
  }
  return Trainer(pieces, training).run();
}

std::string tokenizer_json(const TrainedBpe& trained, const BpeTraining& training,
                           std::string_view pattern) {
  Json vocab = Json::object();
  for (std::size_t id = 0; id < trained.tokens.size(); ++id) {
    vocab[trained.tokens[id]] = id;
  }
  Json merges = Json::array();
  for (const auto& [left, right] : trained.merges) {
    merges.push_back({trained.tokens[static_cast<std::size_t>(left)],
                      trained.tokens[static_cast<std::size_t>(right)]});
  }
  Json added = Json::array();
  for (std::size_t id = 0; id < training.special_tokens.size(); ++id) {
    added.push_back({{"id", id},
                     {"content", training.special_tokens[id]},
                     {"single_word", false},
                     {"lstrip", false},
                     {"rstrip", false},
                     {"normalized", false},
                     {"special", true}});
  }
  const bool is_gpt2 = pattern == kGpt2Pattern;
  const Json byte_level = {{"type", "ByteLevel"},
                           {"add_prefix_space", false},
                           {"trim_offsets", true},
                           {"use_regex", is_gpt2}};
  const Json split = {{"type", "Split"},
                      {"pattern", {{"Regex", std::string(pattern)}}},
                      {"behavior", "Isolated"},
                      {"invert", false}};
  Json pre_tokenizer = byte_level;
  if (!is_gpt2) {
    pre_tokenizer = {{"type", "Sequence"}, {"pretokenizers", Json::array({split, byte_level})}};
  }
  const Json file = {
      {"version", "1.0"},
      {"truncation", nullptr},
      {"padding", nullptr},
      {"added_tokens", added},
      {"normalizer", nullptr},
      {"pre_tokenizer", pre_tokenizer},
      {"post_processor", nullptr},
      {"decoder", byte_level},
      {"model",
       {{"type", "BPE"},
        {"dropout", nullptr},
        {"unk_token", nullptr},
        {"continuing_subword_prefix", nullptr},
        {"end_of_word_suffix", nullptr},
        {"fuse_unk", false},
        {"byte_fallback", false},
        {"ignore_merges", false},
        {"vocab", vocab},
        {"merges", merges}}},
  };
  return file.dump(2) + "\n";
}

}  // namespace orthant
