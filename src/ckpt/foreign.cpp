#include "ckpt/foreign.h"

#include <algorithm>
#include <filesystem>
#include <system_error>
#include <vector>

#include <fmt/format.h>

#include "base/check.h"

namespace orthant {
namespace {

namespace fs = std::filesystem;

bool matches(const std::string& name, std::string_view begin, std::string_view end) {
  return name.size() >= begin.size() + end.size() && name.starts_with(begin) && name.ends_with(end);
}

struct Kind {
  const char* program;
  const char* way;  // to a folder that can be read
  bool (*has)(const std::string& name);
};

// Names by each program's writer: Megatron-LM's checkpointing.py (legacy and torch_dist formats),
// DeepSpeed's engine.py, torch.distributed.checkpoint's FileSystemWriter, and torch.save.
constexpr Kind kKinds[] = {
    {"DeepSpeed", "run its zero_to_fp32.py with --safe_serialization",
     [](const std::string& name) {
       return matches(name, "", "_model_states.pt") || matches(name, "", "_optim_states.pt") ||
              name == "zero_to_fp32.py";
     }},
    {"Megatron-LM", "convert it with Megatron Bridge or its tools/checkpoint",
     [](const std::string& name) {
       return name == "latest_checkpointed_iteration.txt" || name == "model_optim_rng.pt" ||
              name == "distrib_optim.pt";
     }},
    {"torch.distributed.checkpoint", "gather it and save it with transformers",
     [](const std::string& name) {
       return name == ".metadata" || matches(name, "__", ".distcp");
     }},
    {"torch.save", "load it and save it with transformers",
     [](const std::string& name) {
       return matches(name, "pytorch_model", ".bin") || matches(name, "", ".pth");
     }},
};

std::vector<fs::path> entries_of(const fs::path& folder) {
  std::vector<fs::path> entries;
  std::error_code none;
  for (fs::directory_iterator at(folder, none), end; !none && at != end; at.increment(none)) {
    entries.push_back(at->path());
  }
  std::sort(entries.begin(), entries.end());
  return entries;
}

bool is_readable(const std::vector<fs::path>& entries) {
  return std::any_of(entries.begin(), entries.end(), [](const fs::path& entry) {
    return entry.filename() == "manifest.json" || entry.extension() == ".safetensors";
  });
}

// The folder and those in it, two levels deep: iter_0000100/mp_rank_00/model_optim_rng.pt.
void look(const fs::path& folder, int levels, std::vector<fs::path>& files) {
  const std::vector<fs::path> entries = entries_of(folder);
  if (is_readable(entries)) return;
  files.insert(files.end(), entries.begin(), entries.end());
  std::error_code none;
  for (const fs::path& entry : entries) {
    if (levels > 0 && fs::is_directory(entry, none)) look(entry, levels - 1, files);
  }
}

}  // namespace

void refuse_foreign(const std::string& folder) {
  constexpr int kLevels = 2;
  if (is_readable(entries_of(folder))) return;
  std::vector<fs::path> files;
  look(folder, kLevels, files);
  for (const Kind& kind : kKinds) {
    const auto found = std::find_if(files.begin(), files.end(), [&kind](const fs::path& file) {
      return kind.has(file.filename().string());
    });
    if (found == files.end()) continue;
    fail_user(
        "{} is a checkpoint of {} (it has {}), which is not read; {}, and give the folder with "
        "config.json and safetensors as model.weights or to convert",
        folder, kind.program, found->lexically_relative(folder).string(), kind.way);
  }
}

}  // namespace orthant
