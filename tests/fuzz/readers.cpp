#include "tests/fuzz/readers.h"

#include <algorithm>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <memory>

#include <fmt/format.h>
#include <unistd.h>

#include "base/check.h"
#include "ckpt/manifest.h"
#include "ckpt/safetensors.h"
#include "data/index_reader.h"
#include "data/indexed_dataset.h"
#include "data/indexed_dataset_writer.h"
#include "data/tokenizer.h"
#include "train/run_config.h"

namespace orthant::test {
namespace {

namespace fs = std::filesystem;

// A folder of this process in memory where there is such a place; gone with the object.
class Folder {
 public:
  Folder() {
    const char* place = fs::exists("/dev/shm") ? "/dev/shm" : "/tmp";
    path_ = fmt::format("{}/orthant-fuzz-{}", place, ::getpid());
    fs::create_directories(path_);
  }
  ~Folder() { fs::remove_all(path_); }
  Folder(const Folder&) = delete;
  Folder& operator=(const Folder&) = delete;

  std::string path(const std::string& name) const { return path_ + "/" + name; }
  std::string write(const std::string& name, std::string_view bytes) const {
    std::ofstream(path(name), std::ios::binary) << bytes;
    return path(name);
  }
  std::string content(const std::string& name) const {
    std::ifstream file(path(name), std::ios::binary);
    return {std::istreambuf_iterator<char>(file), {}};
  }

 private:
  std::string path_;
};

// A dataset is two files: the bytes of the index's length, the index, the tokens.
std::string joined(const std::string& index, const std::string& tokens) {
  const auto size = static_cast<std::uint16_t>(index.size());
  std::string bytes(sizeof(size), '\0');
  std::memcpy(bytes.data(), &size, sizeof(size));
  return bytes + index + tokens;
}

void read_dataset(std::string_view bytes) {
  std::uint16_t size = 0;
  std::memcpy(&size, bytes.data(), std::min(sizeof(size), bytes.size()));
  bytes.remove_prefix(std::min(sizeof(size), bytes.size()));
  const Folder folder;
  folder.write("set.idx", bytes.substr(0, size));
  folder.write("set.bin", bytes.substr(std::min<std::size_t>(size, bytes.size())));
  const IndexedDataset set(folder.path("set"));
  std::vector<std::int32_t> tokens(
      static_cast<std::size_t>(std::min<std::int64_t>(set.num_tokens(), 64)));
  set.copy_tokens(set.num_tokens() - static_cast<std::int64_t>(tokens.size()), tokens);
  set.token_range();
  if (set.num_tokens() > 0) set.document_of(set.num_tokens() - 1);
  DatasetStream stream(folder.path("set"));
  for (std::int64_t i = 0; i < stream.num_documents(); ++i) {
    stream.next_document([](std::span<const std::byte> /*tokens*/) {}, [] {});
  }
  stream.check_end();
}

std::vector<std::string> whole_datasets() {
  std::vector<std::string> all;
  for (const TokenType type : {TokenType::kU16, TokenType::kI32}) {
    const Folder folder;
    IndexedDatasetWriter writer(folder.path("set"), type);
    for (int document = 0; document < 3; ++document) {
      for (int sequence = 0; sequence < document; ++sequence) {
        writer.append(std::vector<std::int32_t>{1, 2, 3 + sequence});
        writer.end_sequence();
      }
      writer.end_document();
    }
    writer.commit();
    all.push_back(joined(folder.content("set.idx"), folder.content("set.bin")));
  }
  return all;
}

void read_safetensors(std::string_view bytes) {
  const Folder folder;
  const SafetensorsFile file(folder.write("a.safetensors", bytes));
  for (const TensorEntry& entry : file.entries()) {
    const auto data = file.data(entry);
    ORTHANT_CHECK(static_cast<std::int64_t>(data.size()) == entry.bytes(),
                  "tensor {}: {} of {} bytes", entry.name, data.size(), entry.bytes());
    ORTHANT_CHECK(std::count(data.begin(), data.end(), std::byte{0}) >= 0, "unreadable");
    dtype_of(entry);
  }
}

std::vector<std::string> whole_safetensors() {
  std::vector<std::string> all;
  for (const int tensors : {0, 1, 3}) {
    const Folder folder;
    std::vector<TensorSpec> specs;
    specs.reserve(static_cast<std::size_t>(tensors));
    for (int i = 0; i < tensors; ++i) {
      specs.push_back({.name = fmt::format("h.{}.weight", i),
                       .dtype = i == 1 ? DType::kBF16 : DType::kF32,
                       .shape = std::vector<std::int64_t>(static_cast<std::size_t>(i), 2)});
    }
    create_safetensors(folder.path("a"), SafetensorsLayout(specs));
    all.push_back(folder.content("a"));
  }
  return all;
}

void read_tokenizer(std::string_view bytes) {
  const Folder folder;
  const auto tokenizer = make_tokenizer(folder.write("tokenizer.json", bytes));
  constexpr std::string_view kText = "Hello, w\u00f6rld! 1234 \u4f60\u597d\n\n  <s>it's \U0001f600";
  std::vector<std::int32_t> ids;
  tokenizer->encode(kText, ids);
  tokenizer->decode(ids);
  tokenizer->safe_cut(kText, kText.size() / 2);
}

std::vector<std::string> whole_tokenizers() {
  return {
      R"({"model":{"type":"BPE","vocab":{"H":0,"e":1,"He":2,"l":3,"ll":4,"o":5,"Ġ":6},)"
      R"("merges":["H e","l l"]},"pre_tokenizer":{"type":"ByteLevel","add_prefix_space":false,)"
      R"("trim_offsets":true,"use_regex":true},"decoder":{"type":"ByteLevel"},)"
      R"("added_tokens":[{"id":7,"content":"<s>","special":true,"lstrip":false,"rstrip":false,)"
      R"("normalized":false,"single_word":false}]})",
      R"({"normalizer":{"type":"Sequence","normalizers":[{"type":"Prepend","prepend":"▁"},)"
      R"({"type":"Replace","pattern":{"String":" "},"content":"▁"}]},"model":{"type":"BPE",)"
      R"("unk_token":"<unk>","byte_fallback":true,"fuse_unk":true,"vocab":{"<unk>":0,"▁":1,"H":2,)"
      R"("i":3,"Hi":4,"▁Hi":5},"merges":[["H","i"],["▁","Hi"]]}})",
      R"({"normalizer":{"type":"NFC"},"pre_tokenizer":{"type":"Sequence","pretokenizers":[)"
      R"({"type":"Split","pattern":{"Regex":"\\p{N}{1,3}| ?\\p{L}+|\\s+"},"behavior":"Isolated",)"
      R"("invert":false},{"type":"ByteLevel","add_prefix_space":false,"use_regex":false}]},)"
      R"("model":{"type":"BPE","ignore_merges":true,"vocab":{"a":0,"b":1,"ab":2},)"
      R"("merges":["a b"]}})"};
}

void read_manifest(std::string_view bytes) {
  manifest_text(parse_manifest(std::string(bytes), "manifest.json"));
}

std::vector<std::string> whole_manifests() {
  Manifest manifest;
  manifest.step = 7;
  manifest.position = 5;
  manifest.blends = {{.position = 3, .weights = {{"a", 0.5}, {"b", 1.5}}}};
  manifest.model = {{"family", "gpt2"}, {"hidden", "64"}};
  manifest.files = {{"weights.safetensors", 1234}};
  manifest.checksums = {{"weights.safetensors/h.0.weight", 5}};
  return {manifest_text(Manifest{}), manifest_text(manifest)};
}

void read_run_file(std::string_view bytes) {
  const RunConfig config = parse_run_config(bytes, "run.toml", {});
  to_toml(config);
}

std::vector<std::string> whole_run_files() {
  const std::string small =
      "[model]\nfamily = \"llama\"\nhidden = 64\nlayers = 2\nheads = 4\nkv_heads = 2\nffn = 96\n"
      "vocab = 509\nmax_positions = 32\n";
  return {small, to_toml(parse_run_config(small, "run.toml", {})),
          small +
              "[layout]\nranks = 4\ntp = 2\npp = 2\nschedule = \"1f1b\"\nstages = [1, 1]\n"
              "[train]\nglobal_batch = 8\nbatch_ramp = [[1, 4], [5, 8]]\n"};
}

constexpr Reader kReaders[] = {
    {"idx", read_dataset, whole_datasets},
    {"safetensors", read_safetensors, whole_safetensors},
    {"tokenizer", read_tokenizer, whole_tokenizers},
    {"toml", read_run_file, whole_run_files},
    {"manifest", read_manifest, whole_manifests},
};

}  // namespace

std::span<const Reader> readers() {
  return kReaders;
}

const Reader& find_reader(std::string_view name) {
  const auto found = std::find_if(std::begin(kReaders), std::end(kReaders),
                                  [name](const Reader& reader) { return reader.name == name; });
  if (found == std::end(kReaders)) fail_user("there is no reader '{}'", name);
  return *found;
}

bool accepts(const Reader& reader, std::string_view bytes) {
  try {
    reader.read(bytes);
    return true;
  } catch (const Error& error) {
    if (error.fault() != Fault::kUser) throw;
    return false;
  }
}

}  // namespace orthant::test
