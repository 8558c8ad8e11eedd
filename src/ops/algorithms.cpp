#include "ops/algorithms.h"

#include <algorithm>
#include <bit>
#include <charconv>
#include <cmath>
#include <limits>
#include <string_view>
#include <utility>

#include "base/check.h"
#include "base/json.h"

namespace orthant {
namespace {

constexpr const char* kFormat = "orthant-algorithms";
constexpr int kVersion = 1;
constexpr int kMostAlignment = 256;
constexpr std::size_t kWordDigits = 16;

std::string hex_of(const ChosenAlgorithm& chosen) {
  std::string text;
  for (const std::uint64_t word : chosen.words) {
    text += fmt::format("{:016x}", word);
  }
  return text;
}

constexpr std::array kGeluNames = {"none", "forward", "gradient"};

// Without "gelu" where there is none.
std::string product_text(const ProductProblem& problem, const ChosenAlgorithm& chosen) {
  OrderedJson json = {{"m", problem.m},
                      {"n", problem.n},
                      {"k", problem.k},
                      {"type", name_of(problem.type)},
                      {"result", name_of(problem.result)},
                      {"transposes_a", problem.transposes_a},
                      {"transposes_b", problem.transposes_b},
                      {"adds", problem.adds}};
  if (problem.gelu != ProductGelu::kNone) {
    json["gelu"] = kGeluNames.at(static_cast<std::size_t>(problem.gelu));
  }
  json["bias_alignment"] = problem.bias_alignment;
  json["d_alignment"] = problem.d_alignment;
  json["a_alignment"] = problem.a_alignment;
  json["b_alignment"] = problem.b_alignment;
  json["ms"] = chosen.ms;
  json["algorithm"] = hex_of(chosen);
  return json.dump();
}

// What a JSON object must have; errors name the key.
class Reader {
 public:
  Reader(const OrderedJson& json, const std::string& path) : json_(json), path_(path) {}

  std::int64_t number(const char* key, std::int64_t least) const {
    const OrderedJson& value = json_.at(key);
    const bool is_large =
        value.is_number_unsigned() &&
        value.get<std::uint64_t>() > std::uint64_t{std::numeric_limits<std::int64_t>::max()};
    if (!value.is_number_integer() || is_large || value.get<std::int64_t>() < least) refuse(key);
    return value.get<std::int64_t>();
  }
  int small_number(const char* key) const {
    const std::int64_t value = number(key, 0);
    if (value > std::numeric_limits<int>::max()) refuse(key);
    return static_cast<int>(value);
  }
  int alignment(const char* key) const {
    const std::int64_t value = number(key, 1);
    if (value > kMostAlignment || !std::has_single_bit(static_cast<std::uint64_t>(value))) {
      refuse(key);
    }
    return static_cast<int>(value);
  }
  DType type(const char* key) const {
    const std::string name = text(key);
    for (const DType type : {DType::kF32, DType::kBF16, DType::kF16}) {
      if (name == name_of(type)) return type;
    }
    refuse(key);
  }
  ProductGelu gelu(const char* key) const {
    if (!json_.contains(key)) return ProductGelu::kNone;
    const auto at = std::find(kGeluNames.begin(), kGeluNames.end(), text(key));
    if (at == kGeluNames.end()) refuse(key);
    return static_cast<ProductGelu>(at - kGeluNames.begin());
  }
  bool flag(const char* key) const { return json_.at(key).get<bool>(); }
  std::string text(const char* key) const { return json_.at(key).get<std::string>(); }
  double milliseconds(const char* key) const {
    const auto value = json_.at(key).get<double>();
    if (!std::isfinite(value) || value < 0) refuse(key);
    return value;
  }
  std::array<std::uint64_t, 8> words(const char* key) const {
    std::array<std::uint64_t, 8> words{};
    const std::string digits = text(key);
    if (digits.size() != words.size() * kWordDigits) refuse(key);
    const char* at = digits.data();
    for (std::uint64_t& word : words) {
      const auto parsed = std::from_chars(at, at + kWordDigits, word, 16);
      if (parsed.ec != std::errc() || parsed.ptr != at + kWordDigits) refuse(key);
      at += kWordDigits;
    }
    return words;
  }

 private:
  [[noreturn]] void refuse(const char* key) const {
    fail_user("{} is damaged: \"{}\": {} cannot be; remove it, and products are timed again", path_,
              key, json_.at(key).dump(-1, ' ', false, OrderedJson::error_handler_t::replace));
  }

  const OrderedJson& json_;
  const std::string& path_;
};

AlgorithmPlace parse_place(const Reader& json) {
  return {.gpu = json.text("gpu"),
          .capability = json.small_number("capability"),
          .multiprocessors = json.small_number("multiprocessors"),
          .cublaslt = json.number("cublaslt", 0),
          .workspace_bytes = json.number("workspace_bytes", 0)};
}

ProductProblem parse_problem(const Reader& json) {
  return {
      .m = json.number("m", 1),
      .n = json.number("n", 1),
      .k = json.number("k", 1),
      .type = json.type("type"),
      .result = json.type("result"),
      .transposes_a = json.flag("transposes_a"),
      .transposes_b = json.flag("transposes_b"),
      .adds = json.flag("adds"),
      .gelu = json.gelu("gelu"),
      .bias_alignment =
          json.small_number("bias_alignment") == 0 ? 0 : json.alignment("bias_alignment"),
      .d_alignment = json.alignment("d_alignment"),
      .a_alignment = json.alignment("a_alignment"),
      .b_alignment = json.alignment("b_alignment"),
  };
}

AlgorithmTable parse(const OrderedJson& json, const std::string& path) {
  if (json.at("format") != kFormat || json.at("version") != kVersion) {
    fail_user("{} is not a file of algorithms of version {}; name another", path, kVersion);
  }
  AlgorithmTable table;
  for (const OrderedJson& place_json : json.at("places")) {
    const AlgorithmPlace place = parse_place(Reader(place_json, path));
    const auto [at, is_new] = table.try_emplace(place);
    if (!is_new) fail_user("{} is damaged: it has a place twice; remove it", path);
    for (const OrderedJson& product : place_json.at("products")) {
      const Reader reader(product, path);
      const ChosenAlgorithm chosen{.words = reader.words("algorithm"),
                                   .ms = reader.milliseconds("ms")};
      if (!at->second.emplace(parse_problem(reader), chosen).second) {
        fail_user("{} is damaged: it has a product twice; remove it", path);
      }
    }
  }
  return table;
}

const ChosenAlgorithm* find_in(const AlgorithmTable& table, const AlgorithmPlace& place,
                               const ProductProblem& problem) {
  const auto products = table.find(place);
  if (products == table.end()) return nullptr;
  const auto at = products->second.find(problem);
  return at == products->second.end() ? nullptr : &at->second;
}

// A place without products goes too.
void erase(AlgorithmTable& table, const AlgorithmPlace& place, const ProductProblem& problem) {
  const auto at = table.find(place);
  if (at == table.end()) return;
  at->second.erase(problem);
  if (at->second.empty()) table.erase(at);
}

}  // namespace

std::string algorithms_text(const AlgorithmTable& table) {
  std::string text =
      fmt::format("{{\n \"format\": \"{}\",\n \"version\": {},\n \"places\": [", kFormat, kVersion);
  const char* before_place = "\n";
  for (const auto& [place, products] : table) {
    text += fmt::format(
        "{}  {{\"gpu\": {}, \"capability\": {}, \"multiprocessors\": {}, \"cublaslt\": {}, "
        "\"workspace_bytes\": {}, \"products\": [",
        std::exchange(before_place, ",\n"), OrderedJson(place.gpu).dump(), place.capability,
        place.multiprocessors, place.cublaslt, place.workspace_bytes);
    const char* before_product = "\n";
    for (const auto& [problem, chosen] : products) {
      text += std::exchange(before_product, ",\n");
      text += "   " + product_text(problem, chosen);
    }
    text += "]}";
  }
  return text + "]\n}\n";
}

AlgorithmTable parse_algorithms(const std::string& text, const std::string& path) {
  try {
    return parse(OrderedJson::parse(text), path);
  } catch (const OrderedJson::exception& error) {
    fail_user("{} is damaged: {}; remove it, and products are timed again", path, error.what());
  }
}

std::optional<ChosenAlgorithm> Algorithms::find(const AlgorithmPlace& place,
                                                const ProductProblem& problem) const {
  const std::lock_guard lock(mutex_);
  for (const AlgorithmTable* table : {&settled_, &news_}) {
    if (const ChosenAlgorithm* found = find_in(*table, place, problem)) return *found;
  }
  return std::nullopt;
}

ChosenAlgorithm Algorithms::choose(const AlgorithmPlace& place, const ProductProblem& problem,
                                   const ChosenAlgorithm& chosen) {
  const std::lock_guard lock(mutex_);
  if (const ChosenAlgorithm* found = find_in(settled_, place, problem)) return *found;
  return news_[place].emplace(problem, chosen).first->second;
}

void Algorithms::refuse(const AlgorithmPlace& place, const ProductProblem& problem,
                        const ChosenAlgorithm& found) {
  const std::lock_guard lock(mutex_);
  for (AlgorithmTable* table : {&settled_, &news_}) {
    const ChosenAlgorithm* known = find_in(*table, place, problem);
    if (known != nullptr && *known == found) erase(*table, place, problem);
  }
}

AlgorithmTable Algorithms::news() const {
  const std::lock_guard lock(mutex_);
  return news_;
}

void Algorithms::learn(const AlgorithmTable& table) {
  for (const auto& [place, products] : table) {
    for (const auto& [problem, chosen] : products) {
      choose(place, problem, chosen);
    }
  }
}

AlgorithmTable Algorithms::settled() const {
  const std::lock_guard lock(mutex_);
  return settled_;
}

void Algorithms::settle(const AlgorithmTable& table) {
  const std::lock_guard lock(mutex_);
  for (const auto& [place, products] : table) {
    for (const auto& [problem, chosen] : products) {
      for (const AlgorithmTable* of : {&settled_, &news_}) {
        const ChosenAlgorithm* known = find_in(*of, place, problem);
        if (known != nullptr && known->words != chosen.words) ++edition_;
      }
      settled_[place].insert_or_assign(problem, chosen);
      erase(news_, place, problem);
    }
  }
}

}  // namespace orthant
