// Checkpoints of other programs, known by their files: they are refused by their program's name.
#pragma once

#include <string>

namespace orthant {

// A user error when `folder` is a checkpoint, or a directory of checkpoints, of Megatron-LM,
// DeepSpeed, or PyTorch's own kinds. Files are not opened. A folder that has a manifest.json or
// safetensors beside such files is not refused, nor one that is not there.
void refuse_foreign(const std::string& folder);

}  // namespace orthant
