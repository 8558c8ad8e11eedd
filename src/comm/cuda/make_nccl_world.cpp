// Whether NCCL is built in.
#include "base/check.h"
#include "comm/cuda/nccl_world.h"
#if defined(ORTHANT_HAS_NCCL)
#include "comm/nccl/nccl_carrier.h"
#endif

namespace orthant {

#if defined(ORTHANT_HAS_NCCL)

namespace {

class LoadedNccl final : public NcclWorld {
 public:
  LoadedNccl(cudaStream_t ops, QueueWatch& watch, bool rank_order)
      : version_(nccl_version()),
        parts_{.watch = watch, .comms = comms_, .ops = ops, .rank_order = rank_order} {}

  std::unique_ptr<DeviceCarrier> carrier(LinkedGroup group) override {
    return std::make_unique<NcclCarrier>(parts_, std::move(group));
  }
  void abort_all() noexcept override { comms_.abort_all(); }
  std::optional<BrokenLink> find_broken() override { return comms_.find_broken(); }
  std::string version() const override { return version_; }

 private:
  std::string version_;
  NcclComms comms_;
  NcclCarrier::Parts parts_;
};

}  // namespace

std::unique_ptr<NcclWorld> make_nccl_world(cudaStream_t ops, QueueWatch& watch, bool rank_order) {
  return std::make_unique<LoadedNccl>(ops, watch, rank_order);
}

#else

std::unique_ptr<NcclWorld> make_nccl_world(cudaStream_t /*ops*/, QueueWatch& /*watch*/,
                                           bool /*rank_order*/) {
  fail_user(
      "these ranks on GPUs need NCCL, since not all are on one host whose GPUs reach each other; "
      "it is not "
      "built into this binary: install nccl.h, and build again");
}

#endif

}  // namespace orthant
