#include "cli/run_generators.h"

#include <memory>
#include <vector>

#include "base/check.h"
#include "base/text.h"
#include "comm/backends.h"
#include "mem/device.h"
#include "train/host_memory.h"
#include "train/library_memory.h"
#include "train/run_ranks.h"

namespace orthant {
namespace {

// Ranks of the host share its memory; those on GPUs have that of the first, as GPUs of a host are
// alike.
void require_memory(const std::vector<MemoryPlan>& plans, std::string_view device,
                    std::string_view advice) {
  const bool is_gpu = device == "cuda";
  const std::int64_t free_bytes =
      is_gpu ? available_gpu_bytes().front() - module_bytes(assumed_library_memory())
             : available_host_bytes();
  std::int64_t bytes = 0;
  std::int64_t params = 0;
  std::int64_t cache = 0;
  for (std::size_t r = 0; r < plans.size(); ++r) {
    if (is_gpu && gpu_of(static_cast<int>(r)) != 0) continue;
    bytes += plans[r].device_bytes();
    params += plans[r].find("params")->bytes;
    cache += plans[r].find("cache")->bytes;
  }
  if (bytes <= free_bytes) return;
  throw Error(Fault::kPlan,
              fmt::format("the model needs {} ({} for parameters, {} for keys and values), {} are "
                          "free; {} or use a machine with more memory",
                          format_bytes(bytes), format_bytes(params), format_bytes(cache),
                          format_bytes(free_bytes), advice));
}

}  // namespace

void run_generators(GeneratorConfig config, const TextModel& text, std::string_view advice,
                    const std::function<void(Generator& generator, int rank)>& body) {
  config.target = target_of(text.device);
  check_layout(config);
  std::vector<MemoryPlan> plans;
  plans.reserve(static_cast<std::size_t>(config.num_ranks()));
  for (int r = 0; r < config.num_ranks(); ++r) {
    plans.push_back(plan_generation(config, r));
  }
  require_memory(plans, text.device, advice);
  text.weights.source->verify({});
  ThreadWorld world(config.num_ranks(), LayoutConfig{}.deadline_s);
  run_rank_threads(world, [&](int r) {
    const std::unique_ptr<Device> device = make_device(text.device, gpu_of(r));
    const Backend backend{.device = *device,
                          .ops = text.device,
                          .join_world = [&](const CommParts& p) { return world.join(r, p); },
                          .num_threads = threads_per_rank(config.num_ranks())};
    Generator generator(config, backend, plans[static_cast<std::size_t>(r)]);
    generator.store().load(*text.weights.source);
    body(generator, r);
  });
}

}  // namespace orthant
