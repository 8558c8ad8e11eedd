// NCCL, loaded when the first call asks for it: communicators that no call blocks on.
#pragma once

#include <array>
#include <cstddef>
#include <mutex>
#include <string>

#include <nccl.h>

namespace orthant {

// The version that is loaded, "2.28.9". Throws a user error where there is none or it is too old.
std::string nccl_version();

std::array<std::byte, sizeof(ncclUniqueId)> make_nccl_id();

void check_nccl(ncclResult_t status, const char* asked);

// One communicator. NCCL's calls for it must not run beside each other, so callers hold mutex().
class NcclComm {
 public:
  // All `size` ranks with one id; none waits for the others here. At most `max_ctas`
  // multiprocessors are used by its kernels; 0: as NCCL likes.
  NcclComm(const std::array<std::byte, sizeof(ncclUniqueId)>& id, int size, int rank, int max_ctas);
  ~NcclComm();
  NcclComm(const NcclComm&) = delete;
  NcclComm& operator=(const NcclComm&) = delete;

  ncclComm_t get() const { return comm_; }
  // What was asked of it last has been queued. Never again where it is aborted or has a fault.
  bool is_ready();
  std::string fault();    // why it can do no more, as NCCL says; empty: it can
  bool has_lost_peers();  // that is why
  void abort() noexcept;  // its kernels end; without the others
  bool is_aborted() const { return comm_ == nullptr; }

 private:
  ncclResult_t state();

  ncclConfig_t config_ = NCCL_CONFIG_INITIALIZER;
  ncclComm_t comm_ = nullptr;
};

}  // namespace orthant

#define ORTHANT_NCCL(call) ::orthant::check_nccl((call), #call)
