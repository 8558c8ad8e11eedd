// Reads the protocol buffer of a SentencePiece model and lists the merges that its scores mean: two
// neighbours merge when together they are a piece, best score first, leftmost on equal scores.
#include "data/sentencepiece_bpe.h"

#include <algorithm>
#include <bit>
#include <functional>
#include <string>
#include <unordered_map>
#include <vector>

#include "data/unicode.h"

namespace orthant {
namespace {

enum PieceType {
  kNormal = 1,
  kUnknown = 2,
  kControl = 3,
  kUserDefined = 4,
  kUnused = 5,
  kByte = 6
};

struct Piece {
  std::string text;
  float score = 0;
  std::uint64_t type = kNormal;
};

struct Settings {
  std::uint64_t algorithm = 1;  // 2: BPE
  std::uint64_t byte_fallback = 0;
  std::uint64_t space_is_suffix = 0;
  std::uint64_t add_dummy_prefix = 1;
  std::uint64_t remove_extra_spaces = 1;
  std::uint64_t escape_spaces = 1;
  bool has_charsmap = false;
};

struct WireField {
  std::uint64_t number = 0;
  std::uint64_t value = 0;  // of a varint or of four or eight bytes
  std::string_view bytes;
};

// The fields of one message. Stops at anything that is no protocol buffer.
class WireReader {
 public:
  explicit WireReader(std::string_view rest) : rest_(rest) {}

  bool next(WireField& field) {
    std::uint64_t tag = 0;
    if (rest_.empty() || !varint(tag)) return false;
    field = {tag >> 3, 0, {}};
    switch (tag & 7) {
      case 0: return varint(field.value);
      case 1: return take(8, field);
      case 2: {
        std::uint64_t size = 0;
        return varint(size) && take(size, field);
      }
      case 5: return take(4, field);
      default: return false;
    }
  }

 private:
  bool varint(std::uint64_t& value) {
    value = 0;
    for (int shift = 0; shift < 64 && !rest_.empty(); shift += 7) {
      const auto byte = static_cast<unsigned char>(rest_.front());
      rest_.remove_prefix(1);
      value |= std::uint64_t{byte & 0x7Fu} << shift;
      if (byte < 0x80) return true;
    }
    return false;
  }

  bool take(std::uint64_t size, WireField& field) {
    if (size > rest_.size()) return false;
    field.bytes = rest_.substr(0, size);
    rest_.remove_prefix(size);
    for (std::size_t i = 0; i < field.bytes.size() && i < 8; ++i) {
      field.value |= std::uint64_t{static_cast<unsigned char>(field.bytes[i])} << (8 * i);
    }
    return true;
  }

  std::string_view rest_;
};

Piece read_piece(std::string_view message) {
  Piece piece;
  WireReader reader(message);
  for (WireField field; reader.next(field);) {
    if (field.number == 1) piece.text = std::string(field.bytes);
    if (field.number == 2)
      piece.score = std::bit_cast<float>(static_cast<std::uint32_t>(field.value));
    if (field.number == 3) piece.type = field.value;
  }
  return piece;
}

void read_model(std::string_view serialized, std::vector<Piece>& pieces, Settings& settings) {
  WireReader reader(serialized);
  for (WireField part; reader.next(part);) {
    if (part.number == 1) pieces.push_back(read_piece(part.bytes));
    WireReader fields(part.bytes);
    for (WireField field; part.number == 2 && fields.next(field);) {  // trainer_spec
      if (field.number == 3) settings.algorithm = field.value;
      if (field.number == 24) settings.space_is_suffix = field.value;
      if (field.number == 35) settings.byte_fallback = field.value;
    }
    for (WireField field; part.number == 3 && fields.next(field);) {  // normalizer_spec
      if (field.number == 2) settings.has_charsmap = !field.bytes.empty();
      if (field.number == 3) settings.add_dummy_prefix = field.value;
      if (field.number == 4) settings.remove_extra_spaces = field.value;
      if (field.number == 5) settings.escape_spaces = field.value;
    }
  }
}

bool is_plain(const Settings& settings) {
  return settings.algorithm == 2 && settings.space_is_suffix == 0 && !settings.has_charsmap &&
         settings.remove_extra_spaces == 0 && settings.escape_spaces == 1;
}

// Where the code points of `text` end, the last one excepted.
std::vector<std::size_t> inner_bounds(std::string_view text) {
  std::vector<std::size_t> bounds;
  for (std::size_t at = 0; at < text.size();) {
    at += static_cast<std::size_t>(decode_utf8(text.data() + at).length);
    if (at < text.size()) bounds.push_back(at);
  }
  return bounds;
}

class SpecBuilder {
 public:
  explicit SpecBuilder(const std::vector<Piece>& pieces) : pieces_(pieces) {}

  // False when a piece is of a kind that ours does not have.
  bool run(BpeSpec& spec) {
    spec.alphabet = BpeAlphabet::kCodePoints;
    spec.fuse_unknown = true;
    spec.byte_ids.fill(-1);
    std::size_t num_bytes = 0;
    for (std::size_t i = 0; i < pieces_.size(); ++i) {
      const Piece& piece = pieces_[i];
      const auto id = static_cast<std::int32_t>(i);
      if (piece.text.empty() || find_invalid_utf8(piece.text) != std::string_view::npos)
        return false;
      if (piece.type == kUserDefined || piece.type == kUnused) return false;
      if (piece.type == kUnknown) spec.unknown_id = id;
      if (piece.type == kByte && num_bytes < 256)
        spec.byte_ids[num_bytes++] = id;  // in their order
      if (piece.type != kNormal) continue;
      spec.vocab.push_back({piece.text, id});
      ids_.emplace(piece.text, id);
      scores_.push_back(piece.score);
    }
    std::sort(scores_.begin(), scores_.end(), std::greater<>());
    scores_.erase(std::unique(scores_.begin(), scores_.end()), scores_.end());
    for (const VocabEntry& entry : spec.vocab) {
      if (!add_merges(entry, spec)) return false;
    }
    return spec.unknown_id >= 0 && (num_bytes == 0 || num_bytes == 256);
  }

 private:
  // False when a code point of the piece is no piece: the library would still merge it.
  bool add_merges(const VocabEntry& entry, BpeSpec& spec) const {
    const std::string_view text = entry.text;
    const float score = pieces_[static_cast<std::size_t>(entry.id)].score;
    const auto rank = std::lower_bound(scores_.begin(), scores_.end(), score, std::greater<>());
    const std::vector<std::size_t> bounds = inner_bounds(text);
    std::size_t begin = 0;
    for (const std::size_t bound : bounds) {
      if (!ids_.contains(std::string(text.substr(begin, bound - begin)))) return false;
      begin = bound;
      const auto left = ids_.find(std::string(text.substr(0, bound)));
      const auto right = ids_.find(std::string(text.substr(bound)));
      if (left == ids_.end() || right == ids_.end()) continue;
      spec.merges.push_back({left->second, right->second, entry.id,
                             static_cast<std::int32_t>(rank - scores_.begin())});
    }
    return ids_.contains(std::string(text.substr(begin)));
  }

  const std::vector<Piece>& pieces_;
  std::unordered_map<std::string, std::int32_t> ids_;
  std::vector<float> scores_;  // the different ones, best first
};

}  // namespace

std::optional<SentencePieceBpe> read_sentencepiece_bpe(std::string_view serialized) {
  std::vector<Piece> pieces;
  Settings settings;
  read_model(serialized, pieces, settings);
  SentencePieceBpe bpe;
  bpe.adds_space = settings.add_dummy_prefix != 0;
  if (!is_plain(settings) || !SpecBuilder(pieces).run(bpe.model)) return std::nullopt;
  if (settings.byte_fallback == 0) bpe.model.byte_ids.fill(-1);
  return bpe;
}

}  // namespace orthant
