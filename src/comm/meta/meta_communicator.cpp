// MetaCommunicator: a group of any size without peers. Calls are checked and recorded in the base
// class; nothing moves.
#include <memory>
#include <numeric>
#include <string>
#include <utility>
#include <vector>

#include "comm/backends.h"

namespace orthant {
namespace {

class MetaCommunicator final : public Communicator {
 public:
  using Communicator::Communicator;

  std::unique_ptr<Communicator> subgroup(std::string name, std::vector<int> members,
                                         int lane) override {
    const int position = position_of(members);
    return std::make_unique<MetaCommunicator>(std::move(name), std::move(members), position, lane,
                                              parts());
  }

 private:
  void do_start(const Call& /*call*/, Token /*token*/) override {}
  void do_wait(const Call& /*call*/, Token /*token*/) override {}
};

}  // namespace

std::unique_ptr<Communicator> make_meta_world(int rank, int size, const CommParts& parts) {
  std::vector<int> members(static_cast<std::size_t>(size));
  std::iota(members.begin(), members.end(), 0);
  return std::make_unique<MetaCommunicator>("world", std::move(members), rank, 0, parts);
}

}  // namespace orthant
