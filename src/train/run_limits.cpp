#include "train/run_limits.h"

#include "base/check.h"

namespace orthant {
namespace {

struct Limit {
  bool is_asked;
  std::string option;
  const char* instead;
};

}  // namespace

void check_built(const RunConfig& config) {
  const Limit limits[] = {
      {config.data.max_documents > 0,
       fmt::format("data.max_documents={}", config.data.max_documents), "0"},
  };
  for (const Limit& limit : limits) {
    if (limit.is_asked) {
      fail_user("{} is not built into this version; use {}", limit.option, limit.instead);
    }
  }
}

}  // namespace orthant
