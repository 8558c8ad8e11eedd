#include "comm/nccl/nccl_api.h"

#include <cstring>

#include <fmt/format.h>

#include "base/check.h"

namespace orthant {
namespace {

constexpr int kOldest = NCCL_VERSION(2, 19, 0);

std::string text_of_version(int version) {
  constexpr int kMajor = 10000;
  constexpr int kMinor = 100;
  return fmt::format("{}.{}.{}", version / kMajor, version / kMinor % kMinor, version % kMinor);
}

}  // namespace

void check_nccl(ncclResult_t status, const char* asked) {
  if (status == ncclSuccess || status == ncclInProgress) return;
  fail_run("nccl: {}: {}; NCCL_DEBUG=WARN makes it say more", asked, ncclGetErrorString(status));
}

std::string nccl_version() {
  int version = 0;
  ORTHANT_NCCL(ncclGetVersion(&version));
  if (version < kOldest) {
    fail_user(
        "NCCL {} is loaded, {} is the oldest that ranks on GPUs use; install a newer one, or name "
        "its "
        "folder in LD_LIBRARY_PATH",
        text_of_version(version), text_of_version(kOldest));
  }
  return text_of_version(version);
}

std::array<std::byte, sizeof(ncclUniqueId)> make_nccl_id() {
  ncclUniqueId id;
  ORTHANT_NCCL(ncclGetUniqueId(&id));
  std::array<std::byte, sizeof(ncclUniqueId)> bytes{};
  std::memcpy(bytes.data(), &id, sizeof(id));
  return bytes;
}

NcclComm::NcclComm(const std::array<std::byte, sizeof(ncclUniqueId)>& id, int size, int rank,
                   int max_ctas) {
  ncclUniqueId unique;
  std::memcpy(&unique, id.data(), sizeof(unique));
  config_.blocking = 0;
  if (max_ctas > 0) config_.maxCTAs = max_ctas;
  ORTHANT_NCCL(ncclCommInitRankConfig(&comm_, size, unique, rank, &config_));
}

// Finalizing would wait for the others, which may let theirs go in another order.
NcclComm::~NcclComm() {
  abort();
}

ncclResult_t NcclComm::state() {
  ncclResult_t state = ncclSuccess;
  const ncclResult_t asked = ncclCommGetAsyncError(comm_, &state);
  return asked == ncclSuccess ? state : asked;
}

bool NcclComm::is_ready() {
  return !is_aborted() && state() == ncclSuccess;
}

std::string NcclComm::fault() {
  const ncclResult_t found = is_aborted() ? ncclSuccess : state();
  return found == ncclSuccess || found == ncclInProgress ? "" : ncclGetErrorString(found);
}

bool NcclComm::has_lost_peers() {
  const ncclResult_t found = is_aborted() ? ncclSuccess : state();
  return found == ncclRemoteError || found == ncclSystemError;
}

void NcclComm::abort() noexcept {
  if (comm_ == nullptr) return;
  ncclCommAbort(comm_);
  comm_ = nullptr;
}

}  // namespace orthant
