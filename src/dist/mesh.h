// Mesh: which rank is where, and the groups along its axes. Innermost axis first: tp, cp, ep, dp,
// pp; an axis of size 1 is unused, so that context and expert parallelism fit later.
#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <span>
#include <string_view>
#include <vector>

#include "base/ledger.h"
#include "comm/communicator.h"
#include "dist/layout.h"

namespace orthant {

enum class Axis : std::uint8_t { kTp, kCp, kEp, kDp, kPp };
inline constexpr int kNumAxes = 5;

// A rank's coordinates. rank = tp + tp_size * (dp + dp_size * pp) while cp and ep are 1.
struct MeshShape {
  std::array<int, kNumAxes> sizes = {1, 1, 1, 1, 1};
  int size(Axis axis) const { return sizes[static_cast<std::size_t>(axis)]; }
  int ranks() const;
  std::array<int, kNumAxes> coords_of(int rank) const;
  int rank_of(const std::array<int, kNumAxes>& coords) const;
};
MeshShape mesh_shape(const LayoutConfig& layout);

class Mesh {
 public:
  // Every key-value head is held by `kv_copies` neighbouring tp ranks.
  Mesh(const MeshShape& shape, Communicator& world, int kv_copies = 1);

  // Of the group whose calls a ledger has on `lane`.
  static std::string_view group_name(Lane lane);

  int rank() const { return rank_; }
  int coord(Axis axis) const { return coords_[static_cast<std::size_t>(axis)]; }
  int size(Axis axis) const { return shape_.size(axis); }
  const MeshShape& shape() const { return shape_; }
  bool is_first_stage() const { return coord(Axis::kPp) == 0; }
  bool is_last_stage() const { return coord(Axis::kPp) == size(Axis::kPp) - 1; }

  Communicator& world() const { return world_; }
  Communicator& tp() const { return *tp_; }
  Communicator& dp() const { return *dp_; }
  // The tp ranks that hold the same part of a parameter: all of tp, or those of a key-value head.
  Communicator& holders(int copies) const;
  // Activations and gradients travel on separate communicators.
  Communicator& pp_acts() const { return *pp_acts_; }
  Communicator& pp_grads() const { return *pp_grads_; }
  Communicator& model() const { return *model_; }  // tp and pp: the ranks that hold one whole model
  Communicator& ends() const {
    return *ends_;
  }  // first and last stage, for tied embeddings; only they may use it

 private:
  std::vector<int> members_along(std::span<const Axis> axes) const;
  std::vector<int> neighbours_in_tp(int count) const;
  void connect();

  MeshShape shape_;
  int rank_;
  std::array<int, kNumAxes> coords_;
  Communicator& world_;
  std::unique_ptr<Communicator> tp_, kv_, dp_, pp_acts_, pp_grads_, model_, ends_;
};

}  // namespace orthant
