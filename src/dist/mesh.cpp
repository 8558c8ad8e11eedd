#include "dist/mesh.h"

#include <algorithm>
#include <string>
#include <utility>

#include "base/check.h"

namespace orthant {
namespace {

// The communicators of a rank. The world is lane 0.
enum GroupLane { kTpLane = 1, kDpLane, kPpActsLane, kPpGradsLane, kModelLane, kEndsLane, kKvLane };
constexpr std::array<std::string_view, kKvLane + 1> kGroupNames = {
    "world", "tp", "dp", "pp_acts", "pp_grads", "model", "ends", "kv"};

}  // namespace

int MeshShape::ranks() const {
  int product = 1;
  for (const int size : sizes) {
    product *= size;
  }
  return product;
}

std::array<int, kNumAxes> MeshShape::coords_of(int rank) const {
  ORTHANT_CHECK(rank >= 0 && rank < ranks(), "rank {} is not in a mesh of {}", rank, ranks());
  std::array<int, kNumAxes> coords{};
  for (std::size_t axis = 0; axis < coords.size(); ++axis) {
    coords[axis] = rank % sizes[axis];
    rank /= sizes[axis];
  }
  return coords;
}

int MeshShape::rank_of(const std::array<int, kNumAxes>& coords) const {
  int rank = 0;
  for (std::size_t axis = coords.size(); axis-- > 0;) {
    ORTHANT_CHECK(coords[axis] >= 0 && coords[axis] < sizes[axis],
                  "coordinate {} of mesh axis {} is not below {}", coords[axis], axis, sizes[axis]);
    rank = rank * sizes[axis] + coords[axis];
  }
  return rank;
}

MeshShape mesh_shape(const LayoutConfig& layout) {
  MeshShape shape;
  shape.sizes[static_cast<std::size_t>(Axis::kTp)] = layout.tp;
  shape.sizes[static_cast<std::size_t>(Axis::kDp)] = layout.dp();
  shape.sizes[static_cast<std::size_t>(Axis::kPp)] = layout.pp;
  return shape;
}

std::string_view Mesh::group_name(Lane lane) {
  return kGroupNames.at(static_cast<std::size_t>(lane) -
                        static_cast<std::size_t>(Lane::kFirstComm));
}

Mesh::Mesh(const MeshShape& shape, Communicator& world, int kv_copies)
    : shape_(shape),
      rank_(world.rank()),
      coords_(),
      world_(world) {
  ORTHANT_CHECK(world.size() == shape.ranks(), "a mesh of {} ranks is laid over a world of {}",
                shape.ranks(), world.size());
  coords_ = shape.coords_of(rank_);
  const auto subgroup = [&](std::vector<int> members, GroupLane lane) {
    return world.subgroup(std::string(kGroupNames[lane]), std::move(members), lane);
  };
  const auto make = [&](std::initializer_list<Axis> axes, GroupLane lane) {
    return subgroup(members_along(axes), lane);
  };
  tp_ = make({Axis::kTp}, kTpLane);
  dp_ = make({Axis::kDp}, kDpLane);
  pp_acts_ = make({Axis::kPp}, kPpActsLane);
  pp_grads_ = make({Axis::kPp}, kPpGradsLane);
  model_ = make({Axis::kTp, Axis::kPp}, kModelLane);

  if (kv_copies > 1 && kv_copies < size(Axis::kTp)) {
    kv_ = subgroup(neighbours_in_tp(kv_copies), kKvLane);
  }

  std::vector<int> ends = {rank_};
  if (size(Axis::kPp) > 1 && (is_first_stage() || is_last_stage())) {
    const std::vector<int>& stages = pp_acts_->members();
    ends = {stages.front(), stages.back()};
  }
  ends_ = subgroup(std::move(ends), kEndsLane);
  connect();
}

// Sums of gradients and of activations are large; the others are seldom, and those of the world and
// of a model are of losses, votes and norms. What a rank is connected to, connections_of() counts.
void Mesh::connect() {
  constexpr std::int64_t kMiB = std::int64_t{1} << 20;
  constexpr std::int64_t kLittle = 4 * kMiB;
  tp_->reserve_scratch(64 * kMiB);
  dp_->reserve_scratch(128 * kMiB);
  for (Communicator* group : {&world_, model_.get(), ends_.get(), kv_.get()}) {
    if (group != nullptr) group->reserve_scratch(kLittle);
  }
  world_.expect_few_values();
  model_->expect_few_values();
  for (Communicator* group :
       {tp_.get(), dp_.get(), &world_, model_.get(), ends_.get(), kv_.get()}) {
    if (group != nullptr) group->connect();
  }
  if (tp_->size() == 2) tp_->connect_ring();  // two send each other what more would sum together
  for (Communicator* group : {pp_acts_.get(), pp_grads_.get()}) {
    group->reserve_scratch(1);
    group->connect_ring();
  }
}

Communicator& Mesh::holders(int copies) const {
  Communicator& group = kv_ != nullptr && kv_->size() == copies ? *kv_ : *tp_;
  ORTHANT_CHECK(group.size() == copies, "no group of {} ranks holds a part of a parameter", copies);
  return group;
}

// World ranks of the run of `count` tp ranks that this one lies in.
std::vector<int> Mesh::neighbours_in_tp(int count) const {
  const std::vector<int>& all = tp_->members();
  const auto first = all.begin() + coord(Axis::kTp) / count * count;
  return {first, first + count};
}

// The world ranks that differ from this one along `axes` only, ascending.
std::vector<int> Mesh::members_along(std::span<const Axis> axes) const {
  std::array<int, kNumAxes> first = coords_;
  for (const Axis axis : axes) {
    first[static_cast<std::size_t>(axis)] = 0;
  }
  std::vector<int> members = {shape_.rank_of(first)};
  int stride = shape_.ranks();
  for (std::size_t axis = kNumAxes; axis-- > 0;) {
    stride /= shape_.sizes[axis];
    const bool is_along =
        std::find(axes.begin(), axes.end(), static_cast<Axis>(axis)) != axes.end();
    if (!is_along) continue;
    std::vector<int> more;
    more.reserve(members.size() * static_cast<std::size_t>(shape_.sizes[axis]));
    for (const int member : members) {
      for (int i = 0; i < shape_.sizes[axis]; ++i) {
        more.push_back(member + i * stride);
      }
    }
    members = std::move(more);
  }
  return members;
}

}  // namespace orthant
