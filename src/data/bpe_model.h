// Byte-pair encoding of one piece of text: merges by rank, lowest first, leftmost on equal rank.
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace orthant {

struct VocabEntry {
  std::string text;
  std::int32_t id = 0;
};

struct Merge {
  std::int32_t left = 0;
  std::int32_t right = 0;
  std::int32_t merged = 0;
  std::int32_t rank = 0;
};

// What a BPE model starts from and how it treats what it does not know.
enum class BpeAlphabet { kBytes, kCodePoints };

struct BpeSpec {
  BpeAlphabet alphabet = BpeAlphabet::kBytes;
  std::vector<VocabEntry> vocab;           // text in bytes, also for kBytes
  std::vector<Merge> merges;               // by rank
  std::int32_t unknown_id = -1;            // -1: what is unknown is dropped
  bool fuse_unknown = false;               // neighbours that are unknown give one id
  bool ignore_merges = false;              // a piece that is in the vocabulary is one token
  std::array<std::int32_t, 256> byte_ids;  // of <0xNN>, for unknown code points; -1: none
};

// What one thread needs while it encodes: the recent short pieces and their ids, and work arrays.
struct BpeScratch {
  struct Entry {
    std::uint64_t low = 0;
    std::uint64_t high = 0;
    std::uint8_t length = 0;  // 0: free
    std::uint8_t num_ids = 0;
    std::array<std::int32_t, 3> ids{};
  };
  struct Symbol {
    std::int32_t id;
    std::int32_t rank;  // of the merge with the next one
    std::int32_t previous;
    std::int32_t next;
  };
  BpeScratch();

  std::vector<Entry> recent;
  std::vector<std::int32_t> ids;
  std::vector<Symbol> symbols;
  std::vector<std::uint64_t> heap;  // rank << 32 | position
};

class BpeModel {
 public:
  explicit BpeModel(const BpeSpec& spec);

  // Appends the ids of `piece`. The cost grows as n log n with its length, whatever it holds.
  void encode(std::string_view piece, BpeScratch& scratch, std::vector<std::int32_t>& out) const;

 private:
  static constexpr std::uint64_t kFree = ~0ull;
  static constexpr std::int32_t kNoRank = 0x7fffffff;
  struct MergeSlot {
    std::uint64_t key = kFree;
    std::int32_t rank = kNoRank;
    std::int32_t merged = -1;
  };
  struct TextSlot {
    std::uint32_t offset = 0;
    std::uint32_t length = 0;
    std::int32_t id = -1;
  };

  void add_merges(const BpeSpec& spec);
  void add_texts(const BpeSpec& spec);
  void find_joints(const BpeSpec& spec);

  const MergeSlot& merge_of(std::int32_t left, std::int32_t right) const;  // kNoRank: none
  std::int32_t id_of(std::string_view text) const;
  bool may_join(std::uint32_t left, std::uint32_t right) const;
  void encode_short(std::string_view piece, BpeScratch& scratch,
                    std::vector<std::int32_t>& out) const;
  void encode_cut(std::string_view piece, BpeScratch& scratch,
                  std::vector<std::int32_t>& out) const;
  void encode_whole(std::string_view piece, BpeScratch& scratch,
                    std::vector<std::int32_t>& out) const;
  void start_symbols(std::string_view piece, std::vector<std::int32_t>& ids) const;
  void merge_few(std::vector<std::int32_t>& ids) const;
  void merge_many(BpeScratch& scratch) const;

  BpeAlphabet alphabet_;
  std::int32_t unknown_id_;
  bool fuse_unknown_;
  bool ignore_merges_;
  bool cuts_ = false;  // long pieces are cut where no merge can join
  std::array<std::int32_t, 256> byte_ids_;
  bool has_all_bytes_;
  std::vector<std::int32_t> start_ids_;  // of a byte or of a code point; -1: unknown
  std::vector<MergeSlot> merges_;        // open addressing, a power of two
  std::vector<TextSlot> texts_;          // open addressing, a power of two; for ignore_merges
  std::string text_bytes_;
  std::vector<std::uint64_t> joints_;  // bits: hashes of code point pairs that some merge joins
};

}  // namespace orthant
