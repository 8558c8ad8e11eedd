// tokenizer.json: what its fields do, on a vocabulary of a few letters, and refusals by name.
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "base/json.h"
#include "data/regex.h"
#include "data/regex_dialect.h"
#include "data/tokenizer.h"
#include "tests/data/files.h"

namespace orthant {
namespace {

// Letters a to e, the blank of the byte alphabet, and two merges.
Json small_file() {
  return Json::parse(R"({
    "added_tokens": [],
    "normalizer": null,
    "pre_tokenizer": {"type": "ByteLevel", "add_prefix_space": false, "use_regex": true},
    "decoder": {"type": "ByteLevel"},
    "model": {"type": "BPE", "vocab": {"a": 0, "b": 1, "c": 2, "d": 3, "e": 4, "Ġ": 5, "ab": 6,
              "abc": 7, "bc": 8}, "merges": ["b c", ["a", "b"], ["ab", "c"]]}})");
}

class TokenizerFileTest : public testing::Test {
 protected:
  std::unique_ptr<Tokenizer> open(const Json& json) {
    return make_tokenizer(folder_.write("tokenizer.json", json.dump()));
  }
  std::vector<std::int32_t> ids(const Json& json, std::string_view text) {
    std::vector<std::int32_t> out;
    open(json)->encode(text, out);
    return out;
  }
  // The file with one value changed is refused with `part` in the message.
  void refuses(const std::string& pointer, const Json& value, const std::string& part) {
    Json json = small_file();
    json[Json::json_pointer(pointer)] = value;
    EXPECT_ERROR(open(json), part);
  }

  Folder folder_;
};

using Ids = std::vector<std::int32_t>;

Json added(int id, const std::string& content, const Json& flags) {
  Json token = {{"id", id}, {"content", content}, {"normalized", false}, {"special", true}};
  if (!flags.is_null()) token.update(flags);
  return token;
}

TEST_F(TokenizerFileTest, MergesGoByRankAndThenFromTheLeft) {
  EXPECT_EQ(ids(small_file(), "abc"), (Ids{0, 8}));
  EXPECT_EQ(ids(small_file(), "abab d"), (Ids{6, 6, 5, 3}));
  // x is unknown and there is no unk_token: it is dropped before merging.
  EXPECT_EQ(ids(small_file(), "axb"), (Ids{6}));
  EXPECT_EQ(open(small_file())->vocab_size(), 9);
}

TEST_F(TokenizerFileTest, IgnoreMergesTakesAWholePieceFromTheVocabulary) {
  Json json = small_file();
  json["model"]["ignore_merges"] = true;
  EXPECT_EQ(ids(json, "abc"), (Ids{7}));
  EXPECT_EQ(ids(json, "abcd"), (Ids{0, 8, 3}));
}

TEST_F(TokenizerFileTest, UnknownsAreOneTokenEachOrFused) {
  Json json = small_file();
  json["pre_tokenizer"] = nullptr;
  json["model"]["unk_token"] = "e";
  EXPECT_EQ(ids(json, "axyb"), (Ids{0, 4, 4, 1}));
  json["model"]["fuse_unk"] = true;
  EXPECT_EQ(ids(json, "axyb"), (Ids{0, 4, 1}));
}

TEST_F(TokenizerFileTest, AddedTokensAreMatchedLeftmostAndLongest) {
  Json json = small_file();
  json["added_tokens"] = {added(9, "<a", {}), added(10, "<ab>", {}), added(11, "ab>c", {})};
  EXPECT_EQ(ids(json, "d<ab>c<ac"), (Ids{3, 10, 2, 9, 2}));
  EXPECT_EQ(open(json)->decode(Ids{3, 10, 2, 9, 2}), "d<ab>c<ac");
}

TEST_F(TokenizerFileTest, FlagsOfAddedTokensAreObeyed) {
  Json json = small_file();
  json["added_tokens"] = {added(9, "<l>", {{"lstrip", true}}), added(10, "<r>", {{"rstrip", true}}),
                          added(11, "dd", {{"single_word", true}})};
  EXPECT_EQ(ids(json, "a  <l> b"), (Ids{0, 9, 5, 1}));
  EXPECT_EQ(ids(json, "a <r>  b"), (Ids{0, 5, 10, 1}));
  EXPECT_EQ(ids(json, "a <r>  <l>b"), (Ids{0, 5, 10, 9, 1}));
  EXPECT_EQ(ids(json, "dd add dd"), (Ids{11, 5, 0, 3, 3, 5, 11}));
  EXPECT_EQ(ids(json, "dd\u200d"), (Ids{3, 3}));  // a joiner is part of a word
}

TEST_F(TokenizerFileTest, NormalizedTokensAreMatchedAfterTheNormalizer) {
  Json json = small_file();
  json["pre_tokenizer"] = nullptr;
  json["decoder"] = nullptr;
  json["normalizer"] = {{"type", "Replace"}, {"pattern", {{"String", "x"}}}, {"content", "d"}};
  json["added_tokens"] = {added(9, "ax", {{"normalized", true}}), added(10, "bx", {})};
  EXPECT_EQ(ids(json, "adaxbxbd"), (Ids{9, 9, 10, 1, 3}));
  EXPECT_EQ(open(json)->decode(Ids{9, 10}), "ad bx");
  // Of those that become equal a special one is taken, and of such the first.
  json["added_tokens"].push_back(added(11, "ad", {{"normalized", true}}));
  EXPECT_EQ(ids(json, "ad"), (Ids{9}));
  json["added_tokens"][0]["special"] = false;
  EXPECT_EQ(ids(json, "ad"), (Ids{11}));
}

TEST_F(TokenizerFileTest, EndOfDocumentIsTheConfigsOrAKnownName) {
  Json json = small_file();
  EXPECT_FALSE(open(json)->end_of_document().has_value());
  json["added_tokens"] = {added(9, "<|endoftext|>", {}), added(10, "<stop>", {})};
  EXPECT_EQ(open(json)->end_of_document(), 9);
  folder_.write("tokenizer_config.json", R"({"eos_token": {"content": "<stop>"}})");
  EXPECT_EQ(open(json)->end_of_document(), 10);
}

TEST_F(TokenizerFileTest, WhatIsNotSupportedIsRefusedByItsField) {
  refuses("/model/type", "WordPiece", "model.type is \"WordPiece\"; supported: \"BPE\"");
  refuses("/model/dropout", 0.1, "model.dropout is 0.1");
  refuses("/model/end_of_word_suffix", "</w>", "model.end_of_word_suffix");
  refuses("/model/continuing_subword_prefix", "##", "model.continuing_subword_prefix");
  refuses("/model/unk_token", "none", "model.unk_token is \"none\"");
  refuses("/model/merges/0", "b x", "model.merges[0]");
  refuses("/model/vocab/a", -1, "model.vocab['a'] is -1");
  refuses("/normalizer", {{"type", "BertNormalizer"}}, "normalizer.type is \"BertNormalizer\"");
  refuses("/pre_tokenizer/type", "Whitespace", "pre_tokenizer.type is \"Whitespace\"");
  refuses(
      "/pre_tokenizer",
      {{"type", "Sequence"}, {"pretokenizers", {{{"type", "ByteLevel"}}, {{"type", "Digits"}}}}},
      "pre_tokenizer.pretokenizers[1].type is \"Digits\"; supported: nothing behind ByteLevel");
  refuses("/pre_tokenizer",
          {{"type", "Split"}, {"behavior", "removed"}, {"pattern", {{"String", "x"}}}},
          "pre_tokenizer.behavior is \"removed\"");
  refuses("/pre_tokenizer",
          {{"type", "Metaspace"}, {"add_prefix_space", false}, {"prepend_scheme", "first"}},
          "pre_tokenizer.prepend_scheme is \"first\"; supported: never");
  refuses("/post_processor", {{"type", "Other"}}, "post_processor.type is \"Other\"");
  refuses("/model/byte_fallback", true, "model.byte_fallback is true");
  refuses("/model/vocab/a", 1 << 21, "supported: an id from 0 to 2097151");
  refuses("/decoder/type", "WordPiece", "decoder.type");
  refuses("/added_tokens/0", added(3, "a", {}), "added_tokens[0].id is 3");
  refuses("/added_tokens/0", added(20, "<x>", {}), "id is 20; supported: 9, the next free id");
}

TEST_F(TokenizerFileTest, FirstIsRefusedWhereSeveralPiecesCouldBeIt) {
  Json json = small_file();
  json["normalizer"] = {{"type", "NFKC"}};
  json["pre_tokenizer"] = {{"type", "Metaspace"}, {"prepend_scheme", "first"}};
  EXPECT_EQ(open(json)->vocab_size(), 9);
  json["added_tokens"] = {added(9, "<a>", {{"normalized", true}})};
  EXPECT_ERROR(open(json), "supported: no Metaspace with the prepend_scheme first");
}

TEST_F(TokenizerFileTest, NestedSequencesEndSomewhere) {
  Json nested = {{"type", "NFC"}};
  for (int i = 0; i < 2000; ++i) {
    nested = {{"type", "Sequence"}, {"normalizers", {nested}}};
  }
  refuses("/normalizer", nested, "supported: 8 Sequences in one another");
}

TEST_F(TokenizerFileTest, SplitHasEveryBehavior) {
  // The pieces, with '|' between them, of a text of the letters a to d.
  const auto pieces = [this](const char* behavior, bool inverts, std::string_view text) {
    Json json = small_file();
    json["pre_tokenizer"] = {{"type", "Split"},
                             {"behavior", behavior},
                             {"invert", inverts},
                             {"pattern", {{"Regex", "b|(?=d)"}}}};
    json["model"] = {{"type", "BPE"}, {"ignore_merges", true}, {"merges", Json::array()}};
    // Every piece that can come up is one token.
    std::vector<std::string> texts = {"a"};
    for (std::size_t begin = 0; begin < text.size(); ++begin) {
      for (std::size_t size = 1; begin + size <= text.size(); ++size) {
        const std::string piece(text.substr(begin, size));
        if (std::find(texts.begin(), texts.end(), piece) == texts.end()) texts.push_back(piece);
      }
    }
    for (std::size_t i = 0; i < texts.size(); ++i) {
      json["model"]["vocab"][texts[i]] = i;
    }
    std::string joined;
    for (const std::int32_t id : ids(json, text)) {
      joined += (joined.empty() ? "" : "|") + texts[static_cast<std::size_t>(id)];
    }
    return joined;
  };
  EXPECT_EQ(pieces("Isolated", false, "abbcdb"), "a|b|b|c|d|b");
  EXPECT_EQ(pieces("Isolated", true, "abbcdb"), "a|b|b|c|d|b");
  EXPECT_EQ(pieces("Removed", false, "abbcdb"), "a|c|d");
  EXPECT_EQ(pieces("Removed", true, "abbcdb"), "b|b|b");
  EXPECT_EQ(pieces("MergedWithPrevious", false, "abbcdb"), "ab|b|c|db");
  EXPECT_EQ(pieces("MergedWithNext", false, "abbcdb"), "a|b|bc|d|b");
  EXPECT_EQ(pieces("Contiguous", false, "abbcdb"), "a|bb|c|d|b");
}

TEST_F(TokenizerFileTest, NormalizersChangeTheText) {
  const auto with = [](const Json& normalizer) {
    Json json = small_file();
    json["pre_tokenizer"] = nullptr;
    json["normalizer"] = normalizer;
    json["model"]["vocab"]["\u00e9"] = 9;
    json["model"]["vocab"]["\u0301"] = 10;
    return json;
  };
  EXPECT_EQ(ids(with({{"type", "NFC"}}), "ae\xCC\x81"), (Ids{0, 9}));
  EXPECT_EQ(ids(with({{"type", "NFD"}}), "a\xC3\xA9"), (Ids{0, 4, 10}));
  EXPECT_EQ(ids(with({{"type", "NFKC"}}), "\xEF\xBD\x81"), (Ids{0}));
  EXPECT_EQ(ids(with({{"type", "Lowercase"}}), "AB"), (Ids{6}));
  const Json strip = {{"type", "Strip"}, {"strip_left", true}, {"strip_right", false}};
  EXPECT_EQ(ids(with(strip),
                " \n\xC2\xA0"
                "aĠ"),
            (Ids{0, 5}));
  const Json replace = {{"type", "Replace"}, {"pattern", {{"Regex", "[xy]+"}}}, {"content", "d"}};
  EXPECT_EQ(ids(with(replace), "axyxb"), (Ids{0, 3, 1}));
  EXPECT_EQ(ids(with({{"type", "Sequence"},
                      {"normalizers", {replace, {{"type", "Prepend"}, {"prepend", "e"}}}}}),
                "x"),
            (Ids{4, 3}));
}

TEST_F(TokenizerFileTest, TemplatesSayWhatIsPutAroundAText) {
  Json json = small_file();
  EXPECT_TRUE(open(json)->around_text().before.empty());
  json["post_processor"] = Json::parse(R"({"type": "Sequence", "processors": [
      {"type": "ByteLevel"},
      {"type": "TemplateProcessing",
       "single": [{"SpecialToken": {"id": "<s>", "type_id": 0}}, {"Sequence": {"id": "A", "type_id": 0}},
                  {"SpecialToken": {"id": "</s>", "type_id": 0}}],
       "pair": [], "special_tokens": {"<s>": {"id": "<s>", "ids": [1, 2], "tokens": []},
                                      "</s>": {"id": "</s>", "ids": [3], "tokens": []}}}]})");
  const TemplateIds around = open(json)->around_text();
  EXPECT_EQ(around.before, (Ids{1, 2}));
  EXPECT_EQ(around.after, (Ids{3}));
}

TEST(Regex, OnigurumaSyntaxIsTranslatedOrRefused) {
  const auto translate = [](const char* pattern) {
    return pcre2_pattern(pattern, "field");
  };
  EXPECT_EQ(translate("[^(a|[.,!])]+"), "[^(a|.,!)]+");  // BLOOM's nested class
  EXPECT_EQ(translate("a\\.x"), "a\\.x");
  EXPECT_TRUE(translate("\\p{Lu}").starts_with("[\\p{Lu}\\x{1C89}-\\x{1C89}"))
      << translate("\\p{Lu}");
  EXPECT_TRUE(translate("[^\\p{Sm}a]").ends_with("a]"));
  EXPECT_TRUE(translate("\\w").ends_with("\\x{B2}\\x{B3}\\x{B9}\\x{BC}-\\x{BE}]"));
  EXPECT_FALSE(translate("[\\w]").ends_with("\\x{BE}]"));
  EXPECT_EQ(translate("a$"), "a(?=\\n|\\z)");
  EXPECT_ERROR(translate("\\p{Greek}"), "field: the pattern \\p{Greek} has the property Greek");
  EXPECT_ERROR(translate("[\\S]"), "a negated set in a class");
  EXPECT_ERROR(translate("a{,2}"), "a repeat without a least count");
  EXPECT_ERROR(translate("\\ba"), "\\b");
  EXPECT_ERROR(translate("[a&&b]"), "an intersection");
  EXPECT_ERROR(translate("a{2}+"), "a repeat of a repeat");
  EXPECT_ERROR(Regex("(a", "field"), "field: the pattern (a is wrong");
}

}  // namespace
}  // namespace orthant
