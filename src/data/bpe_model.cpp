// Short pieces: a cache, then repeated scans of a small array. Long ones: a heap over a linked
// list, after cutting between code points that no merge joins, where the result cannot depend on
// the cut.
#include "data/bpe_model.h"

#include <algorithm>
#include <bit>
#include <cstring>
#include <functional>

#include "base/check.h"
#include "data/unicode.h"

namespace orthant {
namespace {

constexpr std::size_t kRecentBits = 15;
constexpr std::size_t kMaxRecentBytes = 16;
constexpr std::size_t kFewSymbols = 48;
constexpr std::uint32_t kJointBits = 18;
constexpr std::uint64_t kOdd = 0x9E3779B97F4A7C15ull;

std::uint64_t pair_key(std::int32_t left, std::int32_t right) {
  return static_cast<std::uint64_t>(static_cast<std::uint32_t>(left)) << 32 |
         static_cast<std::uint32_t>(right);
}

std::size_t pair_hash(std::uint64_t key) {
  key = (key ^ (key >> 29)) * kOdd;
  return static_cast<std::size_t>(key ^ (key >> 32));
}

std::size_t text_hash(std::string_view text) {
  return std::hash<std::string_view>()(text);
}

std::size_t joint_bit(std::uint32_t left, std::uint32_t right) {
  return (((std::uint64_t{left} << 32) | right) * kOdd) >> (64 - kJointBits);
}

template <class T>
std::uint64_t load(const char* from) {
  T word;
  std::memcpy(&word, from, sizeof(word));
  return word;
}

// The bytes of a piece of 1 to 16 bytes in two words: with the length, equal words mean equal
// bytes.
struct PieceKey {
  std::uint64_t low;
  std::uint64_t high;
};

PieceKey key_of(std::string_view piece) {
  const char* begin = piece.data();
  const std::size_t n = piece.size();
  if (n >= 8) return {load<std::uint64_t>(begin), load<std::uint64_t>(begin + n - 8)};
  if (n >= 4) return {load<std::uint32_t>(begin), load<std::uint32_t>(begin + n - 4)};
  const auto byte = [begin](std::size_t i) {
    return static_cast<std::uint64_t>(static_cast<unsigned char>(begin[i]));
  };
  return {byte(0) | byte(n / 2) << 8 | byte(n - 1) << 16, 0};
}

std::uint32_t last_code(std::string_view text) {
  return decode_utf8(text.data() + previous_utf8(text, text.size())).value;
}

}  // namespace

BpeScratch::BpeScratch() : recent(std::size_t{1} << kRecentBits) {}

BpeModel::BpeModel(const BpeSpec& spec)
    : alphabet_(spec.alphabet),
      unknown_id_(spec.unknown_id),
      fuse_unknown_(spec.fuse_unknown),
      ignore_merges_(spec.ignore_merges),
      byte_ids_(spec.byte_ids),
      has_all_bytes_(std::find(byte_ids_.begin(), byte_ids_.end(), -1) == byte_ids_.end()) {
  start_ids_.assign(alphabet_ == BpeAlphabet::kBytes ? 256 : 0x110000, -1);
  for (const VocabEntry& entry : spec.vocab) {
    if (alphabet_ == BpeAlphabet::kBytes) {
      if (entry.text.size() == 1) start_ids_[static_cast<unsigned char>(entry.text[0])] = entry.id;
    } else if (!entry.text.empty()) {
      const CodePoint first = decode_utf8(entry.text.data());
      if (static_cast<std::size_t>(first.length) == entry.text.size()) {
        start_ids_[first.value] = entry.id;
      }
    }
  }
  add_merges(spec);
  if (ignore_merges_) add_texts(spec);
  if (alphabet_ == BpeAlphabet::kCodePoints) find_joints(spec);
}

void BpeModel::add_merges(const BpeSpec& spec) {
  merges_.resize(std::bit_ceil(2 * spec.merges.size() + 2));
  for (const Merge& merge : spec.merges) {
    const std::uint64_t key = pair_key(merge.left, merge.right);
    std::size_t at = pair_hash(key) & (merges_.size() - 1);
    while (merges_[at].key != kFree && merges_[at].key != key) {
      at = (at + 1) & (merges_.size() - 1);
    }
    merges_[at] = {key, merge.rank, merge.merged};  // the last of equals holds
  }
}

void BpeModel::add_texts(const BpeSpec& spec) {
  texts_.resize(std::bit_ceil(2 * spec.vocab.size() + 2));
  for (const VocabEntry& entry : spec.vocab) {
    std::size_t at = text_hash(entry.text) & (texts_.size() - 1);
    while (texts_[at].id >= 0) {
      at = (at + 1) & (texts_.size() - 1);
    }
    texts_[at] = {static_cast<std::uint32_t>(text_bytes_.size()),
                  static_cast<std::uint32_t>(entry.text.size()), entry.id};
    text_bytes_ += entry.text;
  }
}

// A merge joins the last code point of its left part to the first of its right part. Parts that
// stand for bytes or for the unknown are not what their text says: with them nothing is cut.
void BpeModel::find_joints(const BpeSpec& spec) {
  std::int32_t max_id = 0;
  for (const VocabEntry& entry : spec.vocab) {
    max_id = std::max(max_id, entry.id);
  }
  std::vector<std::string_view> text_of(static_cast<std::size_t>(max_id) + 1);
  for (const VocabEntry& entry : spec.vocab) {
    text_of[static_cast<std::size_t>(entry.id)] = entry.text;
  }
  std::vector<bool> stands_in(text_of.size(), false);
  for (const std::int32_t id : byte_ids_) {
    if (id >= 0) stands_in[static_cast<std::size_t>(id)] = true;
  }
  if (unknown_id_ >= 0) stands_in[static_cast<std::size_t>(unknown_id_)] = true;
  joints_.assign((std::size_t{1} << kJointBits) / 64, 0);
  for (const Merge& merge : spec.merges) {
    const auto left = static_cast<std::size_t>(merge.left);
    const auto right = static_cast<std::size_t>(merge.right);
    if (stands_in[left] || stands_in[right] || text_of[left].empty() || text_of[right].empty()) {
      return;
    }
    const std::size_t bit =
        joint_bit(last_code(text_of[left]), decode_utf8(text_of[right].data()).value);
    joints_[bit / 64] |= std::uint64_t{1} << (bit % 64);
  }
  cuts_ = true;
}

bool BpeModel::may_join(std::uint32_t left, std::uint32_t right) const {
  if (!has_all_bytes_ && (start_ids_[left] < 0 || start_ids_[right] < 0)) return true;
  const std::size_t bit = joint_bit(left, right);
  return (joints_[bit / 64] >> (bit % 64) & 1) != 0;
}

const BpeModel::MergeSlot& BpeModel::merge_of(std::int32_t left, std::int32_t right) const {
  const std::uint64_t key = pair_key(left, right);
  std::size_t at = pair_hash(key) & (merges_.size() - 1);
  while (merges_[at].key != kFree && merges_[at].key != key) {
    at = (at + 1) & (merges_.size() - 1);
  }
  return merges_[at];
}

std::int32_t BpeModel::id_of(std::string_view text) const {
  std::size_t at = text_hash(text) & (texts_.size() - 1);
  while (texts_[at].id >= 0) {
    const TextSlot& slot = texts_[at];
    if (std::string_view(text_bytes_).substr(slot.offset, slot.length) == text) return slot.id;
    at = (at + 1) & (texts_.size() - 1);
  }
  return -1;
}

void BpeModel::encode(std::string_view piece, BpeScratch& scratch,
                      std::vector<std::int32_t>& out) const {
  if (piece.size() <= kMaxRecentBytes) {
    encode_short(piece, scratch, out);
    return;
  }
  const std::int32_t id = ignore_merges_ ? id_of(piece) : -1;
  if (id >= 0) {
    out.push_back(id);
  } else if (cuts_) {
    encode_cut(piece, scratch, out);
  } else {
    encode_whole(piece, scratch, out);
  }
}

void BpeModel::encode_short(std::string_view piece, BpeScratch& scratch,
                            std::vector<std::int32_t>& out) const {
  if (piece.empty()) return;
  const PieceKey key = key_of(piece);
  const std::uint64_t hash = (key.low ^ std::rotl(key.high * kOdd, 23) ^ piece.size()) * kOdd;
  BpeScratch::Entry& entry = scratch.recent[hash >> (64 - kRecentBits)];
  if (entry.length == piece.size() && entry.low == key.low && entry.high == key.high) {
    for (std::size_t i = 0; i < entry.num_ids; ++i) {
      out.push_back(entry.ids[i]);
    }
    return;
  }
  const std::size_t before = out.size();
  const std::int32_t id = ignore_merges_ ? id_of(piece) : -1;
  if (id >= 0) {
    out.push_back(id);
  } else {
    encode_whole(piece, scratch, out);
  }
  const std::size_t num_ids = out.size() - before;
  if (num_ids > entry.ids.size()) return;
  entry.low = key.low;
  entry.high = key.high;
  entry.length = static_cast<std::uint8_t>(piece.size());
  entry.num_ids = static_cast<std::uint8_t>(num_ids);
  std::copy_n(out.begin() + static_cast<std::ptrdiff_t>(before), num_ids, entry.ids.begin());
}

// Parts of a cut piece never are tokens of their own by ignore_merges: that rule is for the whole.
void BpeModel::encode_cut(std::string_view piece, BpeScratch& scratch,
                          std::vector<std::int32_t>& out) const {
  const auto encode_part = [&](std::string_view part) {
    if (part.size() <= kMaxRecentBytes && !ignore_merges_) {
      encode_short(part, scratch, out);
    } else {
      encode_whole(part, scratch, out);
    }
  };
  std::size_t begin = 0;
  CodePoint left = decode_utf8(piece.data());
  auto at = static_cast<std::size_t>(left.length);
  while (at < piece.size()) {
    const CodePoint right = decode_utf8(piece.data() + at);
    if (!may_join(left.value, right.value)) {
      encode_part(piece.substr(begin, at - begin));
      begin = at;
    }
    left = right;
    at += static_cast<std::size_t>(right.length);
  }
  encode_part(piece.substr(begin));
}

void BpeModel::encode_whole(std::string_view piece, BpeScratch& scratch,
                            std::vector<std::int32_t>& out) const {
  start_symbols(piece, scratch.ids);
  if (scratch.ids.size() <= kFewSymbols) {
    merge_few(scratch.ids);
  } else {
    merge_many(scratch);
  }
  out.insert(out.end(), scratch.ids.begin(), scratch.ids.end());
}

void BpeModel::start_symbols(std::string_view piece, std::vector<std::int32_t>& ids) const {
  ids.clear();
  bool pending = false;  // an unknown that the next known symbol puts out
  const auto flush = [&] {
    if (pending) ids.push_back(unknown_id_);
    pending = false;
  };
  for (std::size_t at = 0; at < piece.size();) {
    const CodePoint point = alphabet_ == BpeAlphabet::kBytes
                                ? CodePoint{static_cast<unsigned char>(piece[at]), 1}
                                : decode_utf8(piece.data() + at);
    const std::string_view bytes = piece.substr(at, static_cast<std::size_t>(point.length));
    at += bytes.size();
    const std::int32_t id = start_ids_[point.value];
    const auto byte_id = [this](char c) {
      return byte_ids_[static_cast<unsigned char>(c)];
    };
    if (id >= 0) {
      flush();
      ids.push_back(id);
    } else if (std::all_of(bytes.begin(), bytes.end(), [&](char c) { return byte_id(c) >= 0; })) {
      for (const char c : bytes) {
        ids.push_back(byte_id(c));  // Hugging Face leaves an unknown pending here, and so do we
      }
    } else if (unknown_id_ >= 0) {
      if (!fuse_unknown_) flush();
      pending = true;
    }
  }
  flush();
}

void BpeModel::merge_few(std::vector<std::int32_t>& ids) const {
  std::array<std::int32_t, kFewSymbols> ranks;
  std::size_t n = ids.size();
  for (std::size_t i = 0; i + 1 < n; ++i) {
    ranks[i] = merge_of(ids[i], ids[i + 1]).rank;
  }
  while (n > 1) {
    const auto last = ranks.begin() + static_cast<std::ptrdiff_t>(n - 1);
    const auto lowest = std::min_element(ranks.begin(), last);
    if (*lowest == kNoRank) break;
    const auto i = static_cast<std::size_t>(lowest - ranks.begin());
    ids[i] = merge_of(ids[i], ids[i + 1]).merged;
    std::copy(ids.begin() + static_cast<std::ptrdiff_t>(i) + 2,
              ids.begin() + static_cast<std::ptrdiff_t>(n),
              ids.begin() + static_cast<std::ptrdiff_t>(i) + 1);
    if (i + 2 < n) std::copy(lowest + 2, last, lowest + 1);
    --n;
    if (i + 1 < n) ranks[i] = merge_of(ids[i], ids[i + 1]).rank;
    if (i > 0) ranks[i - 1] = merge_of(ids[i - 1], ids[i]).rank;
  }
  ids.resize(n);
}

void BpeModel::merge_many(BpeScratch& scratch) const {
  std::vector<BpeScratch::Symbol>& symbols = scratch.symbols;
  std::vector<std::uint64_t>& heap = scratch.heap;
  const auto n = static_cast<std::int64_t>(scratch.ids.size());
  if (n >= kNoRank) {
    fail_user(
        "tokenizer: a piece of text has {} symbols, at most {} are supported; split the document",
        n, kNoRank - 1);
  }
  symbols.clear();
  heap.clear();
  const auto entry = [](std::int32_t rank, std::int64_t at) {
    return static_cast<std::uint64_t>(rank) << 32 | static_cast<std::uint64_t>(at);
  };
  for (std::int32_t i = 0; i < n; ++i) {
    const auto at = static_cast<std::size_t>(i);
    const std::int32_t next = i + 1 < n ? i + 1 : -1;
    const std::int32_t rank =
        next < 0 ? kNoRank : merge_of(scratch.ids[at], scratch.ids[at + 1]).rank;
    symbols.push_back({scratch.ids[at], rank, i - 1, next});
    if (rank != kNoRank) heap.push_back(entry(rank, i));
  }
  std::make_heap(heap.begin(), heap.end(), std::greater<>());
  const auto symbol = [&symbols](std::int32_t at) -> BpeScratch::Symbol& {
    return symbols[static_cast<std::size_t>(at)];
  };
  const auto update = [&](std::int32_t at) {
    BpeScratch::Symbol& left = symbol(at);
    left.rank = left.next < 0 ? kNoRank : merge_of(left.id, symbol(left.next).id).rank;
    if (left.rank == kNoRank) return;
    heap.push_back(entry(left.rank, at));
    std::push_heap(heap.begin(), heap.end(), std::greater<>());
  };
  while (!heap.empty()) {
    const auto at = static_cast<std::int32_t>(heap.front());
    const auto rank = static_cast<std::int32_t>(heap.front() >> 32);
    std::pop_heap(heap.begin(), heap.end(), std::greater<>());
    heap.pop_back();
    BpeScratch::Symbol& left = symbol(at);
    if (left.rank != rank) continue;  // its pair has changed, or it has gone
    BpeScratch::Symbol& right = symbol(left.next);
    left.id = merge_of(left.id, right.id).merged;
    left.next = right.next;
    right.rank = kNoRank;
    if (left.next >= 0) symbol(left.next).previous = at;
    if (left.previous >= 0) update(left.previous);
    update(at);
  }
  scratch.ids.clear();
  for (std::int32_t at = 0; at >= 0; at = symbol(at).next) {
    scratch.ids.push_back(symbol(at).id);
  }
}

}  // namespace orthant
