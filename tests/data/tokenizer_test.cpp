// Tokenizers: ids equal to Hugging Face's and SentencePiece's on the fixtures, and refusals by
// name.
#include "data/tokenizer.h"

#include <bit>
#include <ctime>
#include <filesystem>
#include <numeric>
#include <thread>

#include <gtest/gtest.h>

#include "base/check.h"
#include "base/file.h"
#include "base/json.h"
#include "data/regex.h"
#include "data/regex_dialect.h"
#include "data/sentencepiece_tokenizer.h"
#include "data/word_patterns.h"
#include "tests/data/files.h"
#include "tests/support/sha256.h"

namespace orthant {
namespace {

std::vector<std::int32_t> encode(const Tokenizer& tokenizer, std::string_view text) {
  std::vector<std::int32_t> ids;
  tokenizer.encode(text, ids);
  return ids;
}

// Of this thread: what other programs do on the machine does not count.
double cpu_seconds() {
  timespec time = {};
  ::clock_gettime(CLOCK_THREAD_CPUTIME_ID, &time);
  return static_cast<double>(time.tv_sec) + 1e-9 * static_cast<double>(time.tv_nsec);
}

std::string sha256_of_u16(const std::vector<std::int32_t>& ids) {
  std::vector<std::uint16_t> words(ids.begin(), ids.end());
  return Sha256::of(std::as_bytes(std::span(words)));
}

struct Named {
  std::string key;   // in expected.json
  std::string path;  // under shared
};

class TokenizerFixtures : public testing::TestWithParam<Named> {};

TEST_P(TokenizerFixtures, EveryCaseGivesTheExpectedIds) {
  SKIP_WITHOUT_SHARED(GetParam().path);
  const auto tokenizer = make_tokenizer(shared(GetParam().path));
  const Json expected = Json::parse(read_text_file(shared("fixtures/tokenizers/expected.json")));
  for (const Json& item : expected.at("cases")) {
    const auto text = item.at("text").get<std::string>();
    const auto ids = item.at(GetParam().key).get<std::vector<std::int32_t>>();
    EXPECT_EQ(encode(*tokenizer, text), ids) << Json(text).dump();
    // The Metaspace form cannot tell one leading blank from none.
    if (!text.starts_with(' ')) {
      EXPECT_EQ(tokenizer->decode(ids), text) << Json(text).dump();
    }
  }
}

TEST_P(TokenizerFixtures, TinyShakespeareGivesTheExpectedIds) {
  SKIP_WITHOUT_SHARED("data/tinyshakespeare.txt");
  const Json all = Json::parse(read_text_file(shared("fixtures/tokenizers/expected.json")));
  if (!all.at("tinyshakespeare").contains(GetParam().key)) GTEST_SKIP() << "no expected ids";
  const Json expected = all.at("tinyshakespeare").at(GetParam().key);
  const std::string text = read_text_file(shared("data/tinyshakespeare.txt"));
  const auto tokenizer = make_tokenizer(shared(GetParam().path));
  const std::vector<std::int32_t> ids = encode(*tokenizer, text);
  EXPECT_EQ(ids.size(), expected.at("count").get<std::size_t>());
  EXPECT_EQ(sha256_of_u16(ids), expected.at("sha256_of_little_endian_u16").get<std::string>());
  const auto first = expected.at("first").get<std::vector<std::int32_t>>();
  const auto last = expected.at("last").get<std::vector<std::int32_t>>();
  EXPECT_TRUE(std::equal(first.begin(), first.end(), ids.begin()));
  EXPECT_TRUE(std::equal(last.rbegin(), last.rend(), ids.rbegin()));
  EXPECT_EQ(tokenizer->decode(ids), text);
}

INSTANTIATE_TEST_SUITE_P(
    All, TokenizerFixtures,
    testing::Values(Named{"gpt2", "fixtures/tokenizers/gpt2"},
                    Named{"llama2_sentencepiece", "data/llama2/tokenizer.model"},
                    Named{"llama2_tokenizer_json", "fixtures/tokenizers/llama2/tokenizer.json"}),
    [](const auto& info) { return info.param.key; });

TEST(Tokenizer, BytesAreTheirOwnIds) {
  const auto tokenizer = make_tokenizer("bytes");
  std::string text(256, '\0');
  std::iota(text.begin(), text.end(), '\0');
  const std::vector<std::int32_t> ids = encode(*tokenizer, text);
  for (std::int32_t i = 0; i < 256; ++i) {
    EXPECT_EQ(ids[static_cast<std::size_t>(i)], i);
  }
  EXPECT_EQ(tokenizer->decode(ids), text);
  EXPECT_EQ(tokenizer->vocab_size(), 256);
  EXPECT_FALSE(tokenizer->end_of_document().has_value());
  EXPECT_ERROR(tokenizer->decode(std::vector<std::int32_t>{256}), "id 256 is not a byte");
}

TEST(Tokenizer, VocabularyAndEndOfDocumentAreTheFiles) {
  SKIP_WITHOUT_SHARED("fixtures/tokenizers/gpt2");
  const auto gpt2 = make_tokenizer(shared("fixtures/tokenizers/gpt2"));
  EXPECT_EQ(gpt2->vocab_size(), 50257);
  EXPECT_EQ(gpt2->end_of_document(), 50256);
  const auto llama2 = make_tokenizer(shared("data/llama2"));
  EXPECT_EQ(llama2->vocab_size(), 32000);
  EXPECT_EQ(llama2->end_of_document(), 2);
  EXPECT_ERROR(gpt2->decode(std::vector<std::int32_t>{50257}), "id 50257");
}

TEST(Tokenizer, ThreadsGetTheSameIds) {
  SKIP_WITHOUT_SHARED("fixtures/tokenizers/gpt2");
  const auto tokenizer = make_tokenizer(shared("fixtures/tokenizers/gpt2"));
  const std::string text = read_text_file(shared("data/tinyshakespeare.txt"));
  const std::vector<std::int32_t> expected = encode(*tokenizer, text);
  std::vector<std::vector<std::int32_t>> found(4);
  std::vector<std::thread> threads;
  threads.reserve(found.size());
  for (auto& ids : found) {
    threads.emplace_back([&] { tokenizer->encode(text, ids); });
  }
  for (std::thread& thread : threads) {
    thread.join();
  }
  for (const auto& ids : found) {
    EXPECT_EQ(ids, expected);
  }
}

TEST(Tokenizer, CutsWhereItIsSafeChangeNoId) {
  SKIP_WITHOUT_SHARED("fixtures/tokenizers/gpt2");
  const std::string text = read_text_file(shared("data/tinyshakespeare.txt")).substr(0, 100000);
  for (const std::string& spec : {std::string("bytes"), shared("fixtures/tokenizers/gpt2")}) {
    const auto tokenizer = make_tokenizer(spec);
    const std::vector<std::int32_t> whole = encode(*tokenizer, text);
    std::vector<std::int32_t> ids;
    std::string_view rest = text;
    int num_cuts = 0;
    while (!rest.empty()) {
      const std::size_t cut = tokenizer->safe_cut(rest, 80);
      tokenizer->encode(rest.substr(0, cut), ids);
      rest.remove_prefix(cut);
      ++num_cuts;
    }
    EXPECT_EQ(ids, whole);
    EXPECT_GT(num_cuts, 100);
  }
}

TEST(Tokenizer, LongPiecesTakeTimeThatIsNotQuadratic) {
  SKIP_WITHOUT_SHARED("fixtures/tokenizers/gpt2");
  for (const char* path :
       {"fixtures/tokenizers/gpt2", "fixtures/tokenizers/llama2", "data/llama2"}) {
    const auto tokenizer = make_tokenizer(shared(path));
    for (const std::string unit : {"a", "ab", " ", "\xE5\xA4\xA7", "<|"}) {
      std::string text;
      while (text.size() < 400000) {
        text += unit;
      }
      const double begin = cpu_seconds();
      const std::vector<std::int32_t> ids = encode(*tokenizer, text);
      EXPECT_LT(cpu_seconds() - begin, 2.0) << path << " '" << unit << "'";
      EXPECT_FALSE(ids.empty());
    }
  }
}

TEST(Tokenizer, TextThatIsNotUtf8IsRefused) {
  SKIP_WITHOUT_SHARED("fixtures/tokenizers/gpt2");
  const auto tokenizer = make_tokenizer(shared("fixtures/tokenizers/gpt2"));
  std::vector<std::int32_t> ids;
  EXPECT_ERROR(tokenizer->encode("good \xff bad", ids), "not UTF-8 at byte 5");
}

TEST(Tokenizer, SpecsThatNameNothingAreRefused) {
  const Folder folder;
  EXPECT_ERROR(make_tokenizer("no-such-file"), "there is no such file");
  EXPECT_ERROR(make_tokenizer(folder.path("")), "has no tokenizer.json and 0 .model files");
  EXPECT_ERROR(make_tokenizer(folder.write("a.txt", "x")), "must end in .json or .model");
  EXPECT_ERROR(make_tokenizer(folder.write("a.json", "{}")), "not a tokenizer.json");
  EXPECT_ERROR(make_tokenizer(folder.write("a.model", "junk")), "not a SentencePiece model");
}

// Parts of texts in which the patterns by hand and PCRE2's could differ.
const char* const kNastyParts[] = {"a",
                                   "Z",
                                   "'",
                                   "'s",
                                   "'S",
                                   "'ll",
                                   "'Ll",
                                   "'r",
                                   "'v",
                                   "'\xC5\xBF",
                                   "\xC5\xBF",
                                   "l",
                                   "e",
                                   " ",
                                   "  ",
                                   "\n",
                                   "\t",
                                   "1",
                                   "23",
                                   "4567",
                                   ".",
                                   "-!",
                                   "\r",
                                   "\r\n",
                                   " \n ",
                                   "\xC2\xA0",
                                   "\xC3\xA9",
                                   "\xE5\xA4\xA7",
                                   "\xE2\x80\x83",
                                   "\xE1\xA0\x8E",
                                   "\xF0\x9F\x98\x80",
                                   "\xE2\x85\xA7",
                                   "\xCC\x81",
                                   "\xC2\x85",
                                   "\x1c",
                                   "\xF0\x90\xB5\x90",
                                   "\xF0\xB1\x8D\x90",
                                   "\xF0\x90\xB5\x80"};

template <class MatchEnd>
void expect_cuts_as_regex(std::string_view pattern, MatchEnd&& match_end) {
  const Regex regex(pcre2_pattern(pattern, "test"), "test");
  RegexScratch scratch;
  std::uint32_t state = 12345;
  for (int i = 0; i < 3000; ++i) {
    std::string text;
    for (int j = 0; j < 80; ++j) {
      state = state * 1664525u + 1013904223u;
      text += kNastyParts[(state >> 16) % std::size(kNastyParts)];
    }
    for (std::size_t at = 0; at < text.size();) {
      const std::size_t end = match_end(text, at);
      const std::optional<TextRange> match = regex.find(text, at, scratch);
      ASSERT_TRUE(match.has_value());
      ASSERT_EQ(match->begin, at);
      ASSERT_EQ(match->end, end) << Json(text.substr(at, 20)).dump();
      at = end;
    }
  }
}

TEST(WordPatterns, ByHandCutAsTheRegexesDo) {
  const CharClasses classes;
  expect_cuts_as_regex(kGpt2Pattern, [&](std::string_view text, std::size_t at) {
    return gpt2_match_end(classes, text, at);
  });
  for (const int most_digits : {1, 3}) {
    expect_cuts_as_regex(most_digits == 3 ? kLlama3Pattern : kQwen2Pattern,
                         [&](std::string_view text, std::size_t at) {
                           return llama3_match_end(classes, text, at, most_digits);
                         });
  }
}

// Our encoder against SentencePiece's library on text that mixes everything.
TEST(SentencePiece, OursGivesTheIdsOfTheLibrary) {
  SKIP_WITHOUT_SHARED("data/llama2/tokenizer.model");
  const std::string path = shared("data/llama2/tokenizer.model");
  const auto ours = make_sentencepiece_tokenizer(path, SentencePieceEncoder::kOurs);
  const auto library = make_sentencepiece_tokenizer(path, SentencePieceEncoder::kLibrary);
  const std::vector<std::string> parts = {"a",
                                          " the",
                                          "ing",
                                          "'s",
                                          " ",
                                          "  ",
                                          "   ",
                                          "\n",
                                          "\t",
                                          "19",
                                          ".",
                                          "Hello",
                                          "\xE2\x96\x81",
                                          "\xC3\xA9",
                                          "\xE5\xA4\xA7\xE6\xA8\xA1",
                                          "\xF0\x9F\x98\x80",
                                          "<s>",
                                          "<unk>",
                                          "<0x41>",
                                          "\xE2\x80\x83",
                                          "\xCC\x81",
                                          " multiple",
                                          "    spaces",
                                          "tion",
                                          "x=",
                                          "\xD0\x9F\xD1\x80"};
  std::uint32_t state = 99;
  for (int i = 0; i < 2000; ++i) {
    std::string text;
    const auto random = [&state] {
      state = state * 1664525u + 1013904223u;
      return state >> 16;
    };
    const std::uint32_t num_parts = random() % 40;
    for (std::uint32_t j = 0; j < num_parts; ++j) {
      text += parts[random() % parts.size()];
    }
    ASSERT_EQ(encode(*ours, text), encode(*library, text)) << Json(text).dump();
  }
}

TEST(Tokenizer, SpeedOnOneCore) {
  SKIP_WITHOUT_SHARED("fixtures/tokenizers/gpt2");
  const std::string text = read_text_file(shared("data/tinyshakespeare.txt"));
  for (const char* path :
       {"fixtures/tokenizers/gpt2", "fixtures/tokenizers/llama2", "data/llama2"}) {
    const auto tokenizer = make_tokenizer(shared(path));
    std::vector<std::int32_t> ids;
    const double begin = cpu_seconds();
    for (int i = 0; i < 4; ++i) {
      ids.clear();
      tokenizer->encode(text, ids);
    }
    const double seconds = cpu_seconds() - begin;
    fmt::print("{}: {:.1f} MB/s of processor time\n", path,
               4e-6 * static_cast<double>(text.size()) / seconds);
  }
}

}  // namespace
}  // namespace orthant
