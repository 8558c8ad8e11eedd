#include "hf/hf_writer.h"

#include <algorithm>
#include <cstring>
#include <exception>
#include <filesystem>
#include <unordered_map>
#include <utility>
#include <vector>

#include "base/check.h"
#include "base/file.h"
#include "base/json.h"
#include "ckpt/safetensors.h"
#include "hf/hf_names.h"

namespace orthant {
namespace {

namespace fs = std::filesystem;

// Elements of a parameter that are held at once.
constexpr std::int64_t kBlock = std::int64_t{1} << 24;

class TensorWriter {
 public:
  TensorWriter(const ParamSource& source, std::span<const ParamSpec> params, DType dtype)
      : source_(source),
        dtype_(dtype) {
    if (dtype != DType::kF32 && dtype != DType::kBF16) {
      fail_user("weights in {} are not written for Hugging Face; use f32 or bf16", name_of(dtype));
    }
    for (const ParamSpec& param : params) {
      params_.emplace(param.name, &param);
    }
  }

  // One file of some tensors, synced; `path` is seen as it grows.
  void write_file(const std::string& path, std::span<const HfTensor> tensors,
                  const std::string& prefix) {
    std::vector<TensorSpec> specs;
    for (const HfTensor& tensor : tensors) {
      specs.push_back({.name = prefix + tensor.name, .dtype = dtype_, .shape = tensor.shape});
    }
    const SafetensorsLayout layout(std::move(specs));
    File file = create_safetensors(path, layout);
    for (const HfTensor& tensor : tensors) {
      const std::int64_t offset = layout.offset(prefix + tensor.name);
      for (const HfPart& part : tensor.parts) {
        write_part(file, offset, part);
      }
    }
    file.sync();
  }

 private:
  void write_part(File& file, std::int64_t offset, const HfPart& part) {
    const auto found = params_.find(part.param);
    ORTHANT_CHECK(found != params_.end(), "parameter '{}' is to be written, but was not given",
                  part.param);
    const bool is_transposed = part.col_stride != 1;
    const std::int64_t whole_rows = std::max<std::int64_t>(kBlock / part.cols, 1) * part.cols;
    const std::int64_t block = is_transposed ? whole_rows : kBlock;
    for (std::int64_t begin = 0; begin < part.count(); begin += block) {
      const std::int64_t count = std::min(block, part.count() - begin);
      values_.resize(static_cast<std::size_t>(count));
      source_.read(*found->second, StateKind::kWeight, part.first + begin, values_);
      if (is_transposed) {
        write_columns(file, offset, part, begin / part.cols, count / part.cols);
      } else {
        write_rows(file, offset, part, begin, count);
      }
    }
  }

  // values_ holds elements begin..begin+count-1 of the part; those of a row lie together.
  void write_rows(File& file, std::int64_t offset, const HfPart& part, std::int64_t begin,
                  std::int64_t count) {
    for (std::int64_t i = begin; i < begin + count;) {
      const std::int64_t row = i / part.cols;
      const std::int64_t end = std::min((row + 1) * part.cols, begin + count);
      run_.assign(values_.begin() + (i - begin), values_.begin() + (end - begin));
      write_run(file, offset, part.hf_first + row * part.row_stride + i - row * part.cols);
      i = end;
    }
  }

  // values_ holds whole rows; those of a column lie together in the file.
  void write_columns(File& file, std::int64_t offset, const HfPart& part, std::int64_t first_row,
                     std::int64_t rows) {
    ORTHANT_CHECK(part.row_stride == 1, "'{}' has strides {} and {}", part.param, part.row_stride,
                  part.col_stride);
    run_.resize(static_cast<std::size_t>(rows));
    for (std::int64_t col = 0; col < part.cols; ++col) {
      for (std::int64_t row = 0; row < rows; ++row) {
        run_[static_cast<std::size_t>(row)] =
            values_[static_cast<std::size_t>(row * part.cols + col)];
      }
      write_run(file, offset, part.hf_first + first_row + col * part.col_stride);
    }
  }

  void write_run(File& file, std::int64_t offset, std::int64_t first) {
    const std::int64_t at = offset + first * size_of(dtype_);
    if (dtype_ == DType::kF32) return file.write(std::as_bytes(std::span(run_)), at);
    narrow_.clear();
    for (const float value : run_) {
      narrow_.emplace_back(value);
    }
    file.write(std::as_bytes(std::span(narrow_)), at);
  }

  const ParamSource& source_;
  DType dtype_;
  std::unordered_map<std::string, const ParamSpec*> params_;
  std::vector<float> values_;
  std::vector<float> run_;
  std::vector<BFloat16> narrow_;
};

std::int64_t bytes_of(const HfTensor& tensor, DType dtype) {
  std::int64_t count = 1;
  for (const std::int64_t extent : tensor.shape) {
    count *= extent;
  }
  return count * size_of(dtype);
}

// Tensors in order, each file as full as its limit allows.
std::vector<std::span<const HfTensor>> split_files(const std::vector<HfTensor>& tensors,
                                                   const HfFolder& to) {
  std::vector<std::span<const HfTensor>> files;
  const std::span<const HfTensor> all(tensors);
  std::size_t begin = 0;
  std::int64_t bytes = 0;
  for (std::size_t i = 0; i < tensors.size(); ++i) {
    const std::int64_t more = bytes_of(tensors[i], to.dtype);
    if (i > begin && bytes + more > to.max_file_bytes) {
      files.push_back(all.subspan(begin, i - begin));
      begin = i;
      bytes = 0;
    }
    bytes += more;
  }
  files.push_back(all.subspan(begin));
  return files;
}

void write_weights(const fs::path& folder, const HfFolder& to, TensorWriter& writer) {
  const std::vector<HfTensor> tensors = hf_tensors(to.model);
  const std::vector<std::span<const HfTensor>> files = split_files(tensors, to);
  if (files.size() == 1) {
    return writer.write_file((folder / "model.safetensors").string(), tensors, "");
  }
  Json map = Json::object();
  std::int64_t total = 0;
  for (std::size_t i = 0; i < files.size(); ++i) {
    const std::string name = fmt::format("model-{:05}-of-{:05}.safetensors", i + 1, files.size());
    writer.write_file((folder / name).string(), files[i], "");
    for (const HfTensor& tensor : files[i]) {
      map[tensor.name] = name;
      total += bytes_of(tensor, to.dtype);
    }
  }
  const Json index = {{"metadata", {{"total_size", total}}}, {"weight_map", map}};
  write_file_atomically((folder / "model.safetensors.index.json").string(), index.dump(2) + "\n");
}

void rename_or_fail(const fs::path& from, const fs::path& to) {
  std::error_code error;
  fs::rename(from, to, error);
  if (error) {
    fail_run("cannot rename {} to {}: {}", from.string(), to.string(), error.message());
  }
  sync_folder(to.parent_path().string());
}

// Runs `write` and removes `partial` if it throws.
template <class Write>
void remove_on_failure(const fs::path& partial, const Write& write) {
  try {
    write();
  } catch (...) {
    std::error_code ignored;
    fs::remove_all(partial, ignored);
    throw;
  }
}

}  // namespace

void write_hf_folder(const HfFolder& to, const ParamSource& source,
                     std::span<const ParamSpec> params) {
  fs::path folder(to.folder);
  if (!folder.has_filename()) folder = folder.parent_path();  // "out/" is "out"
  const std::string config = hf_config_text(to.model, to.tokens, to.dtype);
  TensorWriter writer(source, params, to.dtype);
  std::error_code error;
  if (fs::exists(folder, error) && !(fs::is_directory(folder, error) && fs::is_empty(folder))) {
    fail_user("{} is there already and not an empty folder; nothing was written, give a new name",
              folder.string());
  }
  const fs::path partial = folder.string() + ".partial";
  fs::remove_all(partial, error);  // of a run that was killed
  fs::create_directories(partial, error);
  if (error) fail_user("cannot create the folder {}: {}", partial.string(), error.message());
  remove_on_failure(partial, [&] {
    write_weights(partial, to, writer);
    write_file_atomically((partial / "config.json").string(), config);
    rename_or_fail(partial, folder);
  });
}

void write_hf_tensors(const HfTensorFile& to, const ParamSource& source,
                      std::span<const ParamSpec> params) {
  const fs::path partial = to.path + ".partial";
  TensorWriter writer(source, params, to.dtype);
  const std::vector<HfTensor> tensors = hf_tensors(to.model);
  remove_on_failure(partial, [&] {
    writer.write_file(partial.string(), tensors, to.prefix);
    rename_or_fail(partial, to.path);
  });
}

}  // namespace orthant
