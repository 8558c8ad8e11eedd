// safetensors: Hugging Face's own files byte for byte, every rule of the format broken once, and
// parts written by several writers.
#include "ckpt/safetensors.h"

#include <cstring>
#include <filesystem>
#include <fstream>

#include <gtest/gtest.h>
#include <unistd.h>

#include "base/check.h"

namespace orthant {
namespace {

namespace fs = std::filesystem;

class Safetensors : public testing::Test {
 protected:
  void SetUp() override {
    const auto* info = testing::UnitTest::GetInstance()->current_test_info();
    folder_ = fs::temp_directory_path() /
              fmt::format("orthant-{}-{}-{}", info->test_suite_name(), info->name(), ::getpid());
    fs::create_directories(folder_);
  }
  void TearDown() override { fs::remove_all(folder_); }

  std::string path(const std::string& name) const { return (folder_ / name).string(); }

  std::string write(const std::string& name, const std::string& content) const {
    std::ofstream(path(name), std::ios::binary) << content;
    return path(name);
  }

  fs::path folder_;
};

std::string framed(const std::string& json, const std::string& data) {
  const std::uint64_t length = json.size();
  std::string text(8, '\0');
  std::memcpy(text.data(), &length, 8);
  return text + json + data;
}

std::string user_error(const std::string& path) {
  try {
    const SafetensorsFile file(path);
  } catch (const Error& error) {
    EXPECT_EQ(error.fault(), Fault::kUser) << error.what();
    return error.what();
  }
  return "no error";
}

std::vector<std::string> fixtures() {
  std::vector<std::string> paths;
  const fs::path folder = ORTHANT_SOURCE_DIR "/../shared/fixtures";
  for (const char* model : {"gpt2-tiny", "bloom-tiny", "llama-tiny"}) {
    for (const char* name : {"model.safetensors", "expected.safetensors"}) {
      if (fs::exists(folder / model / name)) paths.push_back((folder / model / name).string());
    }
  }
  return paths;
}

TEST_F(Safetensors, ReadsAFileMadeByHand) {
  const std::string file = write(
      "a", framed(R"({"__metadata__":{"format":"pt"},"b":{"data_offsets":[4,4],"shape":[0,7],)"
                  R"("dtype":"I64"},"a":{"dtype":"BF16","shape":[],"data_offsets":[4,6]},)"
                  R"("c":{"dtype":"F4","shape":[2,2,1,1,2],"data_offsets":[0,4]}}   )",
                  "abcdef"));
  const SafetensorsFile opened(file);
  EXPECT_EQ(opened.metadata(), (SafetensorsMetadata{{"format", "pt"}}));
  ASSERT_EQ(opened.entries().size(), 3u);
  EXPECT_EQ(opened.entries()[0].name, "c");
  EXPECT_EQ(opened.entries()[0].shape, (std::vector<std::int64_t>{2, 2, 1, 1, 2}));
  EXPECT_EQ(dtype_of(opened.entries()[0]), std::nullopt);
  ASSERT_NE(opened.find("a"), nullptr);
  EXPECT_EQ(dtype_of(*opened.find("a")), DType::kBF16);
  const auto data = opened.data(*opened.find("a"));
  EXPECT_EQ(std::string(reinterpret_cast<const char*>(data.data()), data.size()), "ef");
  EXPECT_TRUE(opened.data(*opened.find("b")).empty());
  EXPECT_EQ(opened.find("d"), nullptr);
}

TEST_F(Safetensors, AFileWithoutTensorsIsWhole) {
  const SafetensorsFile opened(write("a", framed("{}", "")));
  EXPECT_TRUE(opened.entries().empty());
  EXPECT_EQ(opened.data_offset(), 10);
}

TEST_F(Safetensors, LayoutEqualsTheReferenceWriterByteForByte) {
  if (fixtures().empty()) GTEST_SKIP() << "the fixtures are not on this machine";
  for (const std::string& path : fixtures()) {
    const SafetensorsFile file(path);
    std::vector<TensorSpec> specs;
    for (const TensorEntry& entry : file.entries()) {
      const auto dtype = dtype_of(entry);
      ASSERT_TRUE(dtype.has_value()) << path << " " << entry.name;
      specs.insert(specs.begin(), {entry.name, *dtype, entry.shape});
    }
    const SafetensorsLayout layout(specs, file.metadata());
    EXPECT_EQ(layout.entries(), file.entries()) << path;
    EXPECT_EQ(layout.file_bytes(), static_cast<std::int64_t>(fs::file_size(path)));
    std::string head(layout.header().size(), '\0');
    std::ifstream(path, std::ios::binary).read(head.data(), std::ssize(head));
    EXPECT_EQ(layout.header(), head) << path;
  }
}

TEST_F(Safetensors, LayoutSortsByTypeThenName) {
  const std::vector<TensorSpec> specs = {{"a", DType::kU8, {3}},  {"b", DType::kBF16, {1}},
                                         {"d", DType::kF32, {}},  {"c", DType::kF32, {2, 2}},
                                         {"e", DType::kI64, {1}}, {"f", DType::kF64, {0}},
                                         {"g", DType::kF16, {1}}, {"h", DType::kI32, {1}}};
  const SafetensorsLayout layout(specs, {});
  std::string order;
  for (const TensorEntry& entry : layout.entries()) {
    order += entry.name;
    EXPECT_EQ(layout.offset(entry.name), std::ssize(layout.header()) + entry.begin);
  }
  EXPECT_EQ(order, "efcdhbga");
  EXPECT_EQ(layout.header().size() % 8, 0u);
  EXPECT_EQ(layout.header().find("__metadata__"), std::string::npos);
  const SafetensorsLayout given(specs, {}, TensorOrder::kGiven);
  EXPECT_EQ(given.entries()[0].name, "a");
  EXPECT_EQ(given.entries()[1].begin, 3);
}

TEST_F(Safetensors, PartsWrittenByTwoWritersMakeOneFile) {
  const SafetensorsLayout layout({{"w", DType::kF32, {4}}, {"b", DType::kF32, {2}}},
                                 {{"quote\"d", "line\nbreak"}});
  const float w[] = {1, 2, 3, 4};
  const float b[] = {5, 6};
  { File first = create_safetensors(path("a"), layout); }
  File second(path("a"), File::Mode::kWrite);
  second.write(std::as_bytes(std::span(w).subspan(2)), layout.offset("w") + 8);
  File third(path("a"), File::Mode::kWrite);
  third.write(std::as_bytes(std::span(w).first(2)), layout.offset("w"));
  third.write(std::as_bytes(std::span(b)), layout.offset("b"));
  const SafetensorsFile opened(path("a"));
  EXPECT_EQ(opened.metadata().at("quote\"d"), "line\nbreak");
  EXPECT_EQ(std::memcmp(opened.data(*opened.find("w")).data(), w, sizeof w), 0);
  EXPECT_EQ(std::memcmp(opened.data(*opened.find("b")).data(), b, sizeof b), 0);
}

TEST_F(Safetensors, WritesTensorsOfOneProcess) {
  float w[] = {1, 2, 3, 4, 5, 6};
  std::int64_t i[] = {7};
  const std::vector<NamedTensor> tensors = {
      {"w", {reinterpret_cast<std::byte*>(w), {2, 3}, DType::kF32}},
      {"i", {reinterpret_cast<std::byte*>(i), {}, DType::kI64}}};
  write_safetensors(path("a"), tensors);
  const SafetensorsFile opened(path("a"));
  EXPECT_EQ(opened.metadata().at("format"), "pt");
  EXPECT_EQ(opened.entries()[0].name, "i");
  EXPECT_EQ(opened.find("w")->shape, (std::vector<std::int64_t>{2, 3}));
  EXPECT_EQ(std::memcmp(opened.data(*opened.find("w")).data(), w, sizeof w), 0);
  EXPECT_FALSE(fs::exists(path("a.partial")));
  EXPECT_THROW(write_safetensors(path("none/a"), tensors), Error);
}

TEST_F(Safetensors, ALayoutThatCannotBeWrittenIsRefused) {
  EXPECT_THROW(SafetensorsLayout({{"a", DType::kF32, {1}}, {"a", DType::kF32, {1}}}), Error);
  EXPECT_THROW(SafetensorsLayout({{"__metadata__", DType::kF32, {1}}}), Error);
  EXPECT_THROW(SafetensorsLayout({{"\xff", DType::kF32, {1}}}), Error);
  EXPECT_THROW(SafetensorsLayout({{"a", DType::kF32, {-1, -1}}}), Error);
  const std::int64_t huge = std::int64_t{1} << 59;
  EXPECT_THROW(SafetensorsLayout({{"a", DType::kU8, {huge}}, {"b", DType::kF32, {huge}}}), Error);
  EXPECT_THROW(SafetensorsLayout({}).offset("a"), Error);
}

struct Broken {
  const char* rule;
  std::string content;
  const char* message;  // a part of it
};

std::string one(const std::string& entry, const std::string& data = "abcd") {
  return framed("{\"t\":" + entry + "}", data);
}

std::vector<Broken> broken_frames() {
  const std::string good = R"({"dtype":"U8","shape":[4],"data_offsets":[0,4]})";
  std::string lying = one(good);
  lying[3] = '\x01';  // 16 MiB
  std::string giant = one(good);
  giant[7] = '\x7f';
  return {
      {"empty file", "", "has 0 bytes, a safetensors file at least 8"},
      {"cut length", "\x10\x00\x00", "a safetensors file at least 8"},
      {"header longer than the file", lying, "the file has 57 after it"},
      {"header over the limit", giant, "at most 100000000 are allowed"},
      {"no header", framed("", ""), "does not begin with '{'"},
      {"space first", framed(" {}", ""), "does not begin with '{'"},
      {"list", framed("[]", ""), "does not begin with '{'"},
      {"not JSON", framed("{\"t\":", ""), "is not JSON at its byte"},
      {"two objects", framed("{}{}", ""), "is not JSON at its byte"},
      {"not UTF-8", framed("{\"\xff\":1}", ""), "is not JSON at its byte"},
      {"zero padding", framed(std::string("{}\0\0", 4), ""), "is not JSON at its byte"},
      {"nesting bomb", framed("{\"t\":" + std::string(1000000, '['), ""), "has a list where"},
      {"object bomb",
       framed(
           [] {
             std::string text;
             for (int i = 0; i < 100000; ++i) {
               text += "{\"shape\":";
             }
             return text;
           }(),
           ""),
       "has an object where"},
      {"data missing", one(good, "abc"), "ends at byte 4 of the data, but the file holds 3"},
      {"data too long", one(good, "abcde"), "no tensor covers the last 1 bytes"},
      {"data without tensor", framed("{}", "a"), "no tensor covers the last 1 bytes"},
  };
}

std::vector<Broken> broken_entries() {
  return {
      {"entry is a number", one("3"), "tensor 't' has the number 3 where an object must be"},
      {"entry is null", one("null"), "has null where an object must be"},
      {"entry is a list", one("[]"), "has a list where an object must be"},
      {"no dtype", one(R"({"shape":[4],"data_offsets":[0,4]})"), "'t' has no dtype"},
      {"no shape", one(R"({"dtype":"U8","data_offsets":[0,4]})"), "'t' has no shape"},
      {"no offsets", one(R"({"dtype":"U8","shape":[4]})"), "'t' has no data_offsets"},
      {"unknown dtype", one(R"({"dtype":"f32","shape":[1],"data_offsets":[0,4]})"),
       "has the type 'f32', which the format does not know"},
      {"dtype number", one(R"({"dtype":1,"shape":[4],"data_offsets":[0,4]})"),
       "has the number 1 where the name of a type must be"},
      {"dtype list", one(R"({"dtype":["U8"],"shape":[4],"data_offsets":[0,4]})"),
       "has a list where the name of a type must be"},
      {"negative dimension", one(R"({"dtype":"U8","shape":[-4],"data_offsets":[0,4]})"),
       "has the negative number -4 where a dimension must be"},
      {"fractional dimension", one(R"({"dtype":"U8","shape":[4.0],"data_offsets":[0,4]})"),
       "has the number 4.0 where a dimension must be"},
      {"shape text", one(R"({"dtype":"U8","shape":"4","data_offsets":[0,4]})"),
       "has text where a list of dimensions must be"},
      {"nested shape", one(R"({"dtype":"U8","shape":[[4]],"data_offsets":[0,4]})"),
       "has a list where a dimension must be"},
      {"one offset", one(R"({"dtype":"U8","shape":[4],"data_offsets":[4]})"), "has 1 data_offsets"},
      {"three offsets", one(R"({"dtype":"U8","shape":[4],"data_offsets":[0,2,4]})"),
       "has 3 data_offsets"},
      {"offsets object", one(R"({"dtype":"U8","shape":[4],"data_offsets":{}})"),
       "has an object where a pair of offsets must be"},
      {"offsets reversed", one(R"({"dtype":"U8","shape":[4],"data_offsets":[4,0]})"),
       "the end must not lie before the begin"},
      {"offset over int64",
       one(R"({"dtype":"U8","shape":[4],"data_offsets":[0,18446744073709551615]})"),
       "the largest is 9223372036854775807"},
      {"unknown key", one(R"({"dtype":"U8","shape":[4],"data_offsets":[0,4],"scale":1})"),
       "has the key 'scale'"},
      {"key twice", one(R"({"dtype":"U8","dtype":"U8","shape":[4],"data_offsets":[0,4]})"),
       "has dtype twice"},
      {"shape against offsets", one(R"({"dtype":"F32","shape":[2],"data_offsets":[0,4]})"),
       "F32 [2] takes 8 bytes, but its data_offsets [0, 4] give 4"},
      {"shape overflows",
       one(R"({"dtype":"U8","shape":[4294967296,4294967296,4],"data_offsets":[0,4]})"),
       "has more bytes than can be counted"},
      {"size overflows to a fit",
       one(R"({"dtype":"F32","shape":[4611686018427387905],"data_offsets":[0,4]})"),
       "has more bytes than can be counted"},
      {"ends inside a byte", one(R"({"dtype":"F4","shape":[7],"data_offsets":[0,4]})"),
       "ends inside a byte"},
  };
}

std::vector<Broken> broken_files() {
  const std::string a = R"("a":{"dtype":"U8","shape":[2],"data_offsets":[0,2]})";
  const std::string hole = R"("b":{"dtype":"U8","shape":[1],"data_offsets":[3,4]})";
  const std::string overlap = R"("b":{"dtype":"U8","shape":[3],"data_offsets":[1,4]})";
  const std::string late = R"("b":{"dtype":"U8","shape":[2],"data_offsets":[2,4]})";
  const std::string empty = R"("b":{"dtype":"U8","shape":[0],"data_offsets":[1,1]})";
  return {
      {"tensor twice", framed("{" + a + "," + a + "}", "ab"), "has the tensor 'a' twice"},
      {"hole", framed("{" + a + "," + hole + "}", "abcd"),
       "no tensor covers bytes 2 to 2 of the data, before tensor 'b'"},
      {"hole at the begin", framed("{" + late + "}", "abcd"), "no tensor covers bytes 0 to 1"},
      {"overlap", framed("{" + a + "," + overlap + "}", "abcd"),
       "tensor 'b' begins at byte 1 of the data, inside tensor 'a'"},
      {"empty tensor inside", framed("{" + a + "," + empty + "}", "ab"), "inside tensor 'a'"},
      {"same bytes twice",
       framed("{" + a + R"(,"b":{"dtype":"I8","shape":[2],"data_offsets":[0,2]}})", "ab"),
       "inside tensor"},
      {"metadata number", framed(R"({"__metadata__":{"a":1}})", ""),
       "__metadata__ has the number 1 where text must be"},
      {"metadata object", framed(R"({"__metadata__":{"a":{}}})", ""),
       "__metadata__ has an object where text must be"},
      {"metadata null", framed(R"({"__metadata__":null})", ""),
       "__metadata__ has null where an object must be"},
      {"metadata twice", framed(R"({"__metadata__":{},"__metadata__":{}})", ""),
       "has __metadata__ twice"},
      {"metadata key twice", framed(R"({"__metadata__":{"a":"1","a":"1"}})", ""),
       "has the key 'a' twice"},
  };
}

TEST_F(Safetensors, EveryBrokenRuleIsOneUserErrorWithThePath) {
  int number = 0;
  for (const auto& list : {broken_frames(), broken_entries(), broken_files()}) {
    for (const Broken& broken : list) {
      const std::string file = write(fmt::format("broken-{}", number++), broken.content);
      const std::string message = user_error(file);
      EXPECT_NE(message.find(broken.message), std::string::npos)
          << broken.rule << ": " << message.substr(0, 400);
      EXPECT_EQ(message.find(file), 0u) << broken.rule << ": " << message.substr(0, 400);
    }
  }
  EXPECT_NE(user_error(path("absent")).find(path("absent")), std::string::npos);
  EXPECT_NE(user_error(folder_.string()).find(folder_.string()), std::string::npos);
}

TEST_F(Safetensors, NoTruncationOfAGoodFileIsAccepted) {
  const std::string good = one(R"({"dtype":"U8","shape":[4],"data_offsets":[0,4]})");
  for (std::size_t bytes = 0; bytes < good.size(); ++bytes) {
    EXPECT_NE(user_error(write("cut", good.substr(0, bytes))), "no error") << bytes;
  }
  EXPECT_EQ(user_error(write("whole", good)), "no error");
}

}  // namespace
}  // namespace orthant
