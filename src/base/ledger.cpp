#include "base/ledger.h"

namespace orthant {

bool same(const Entry& a, const Entry& b) {
  return a.what == b.what && a.where == b.where && a.lane == b.lane && a.at == b.at &&
         a.cost == b.cost && a.fingerprint == b.fingerprint && a.message_bytes == b.message_bytes &&
         a.group_size == b.group_size && a.peer == b.peer && a.starts == b.starts &&
         a.waits_for == b.waits_for && a.after == b.after;
}

}  // namespace orthant
