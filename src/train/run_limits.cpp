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
      {config.data.max_documents > 1 && config.document_limit() == 1,
       fmt::format("data.max_documents={} with device.kind='cuda' and precision.compute='{}'",
                   config.data.max_documents, config.precision.compute),
       "1, data.cross_documents=true, or precision.compute='fp32'"},
  };
  for (const Limit& limit : limits) {
    if (limit.is_asked) {
      fail_user("{} is not built into this version; use {}", limit.option, limit.instead);
    }
  }
}

}  // namespace orthant
