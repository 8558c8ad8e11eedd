#include "ckpt/manifest.h"

#include <charconv>
#include <cmath>

#include "base/check.h"
#include "base/json.h"

namespace orthant {
namespace {

constexpr const char* kFormat = "orthant-checkpoint";
constexpr std::int64_t kMostSteps = 1'000'000'000;  // of a run file, too

[[noreturn]] void fail_damaged(const std::string& path, const std::string& what) {
  fail_user("{} is damaged: {}; remove this checkpoint or name another", path, what);
}

std::uint64_t parse_checksum(const std::string& text, const std::string& path) {
  std::uint64_t sum = 0;
  const char* end = text.data() + text.size();
  const auto parsed = std::from_chars(text.data(), end, sum, 16);
  if (text.empty() || parsed.ec != std::errc() || parsed.ptr != end) {
    fail_damaged(path, fmt::format("'{}' is no checksum", text));
  }
  return sum;
}

OrderedJson blends_json(const std::vector<Manifest::Blend>& blends) {
  OrderedJson json = OrderedJson::array();
  for (const Manifest::Blend& blend : blends) {
    OrderedJson weights = OrderedJson::array();
    for (const auto& [prefix, weight] : blend.weights) {
      weights.push_back({{"prefix", prefix}, {"weight", weight}});
    }
    json.push_back({{"position", blend.position}, {"weights", std::move(weights)}});
  }
  return json;
}

bool is_power_of_two(double number) {
  int exponent = 0;
  return number > 0 && std::frexp(number, &exponent) == 0.5;
}

// Files of a checkpoint lie in its folder.
std::string parse_file_name(const std::string& name, const std::string& path) {
  if (name.empty() || name == "." || name == ".." || name.find('/') != std::string::npos) {
    fail_damaged(path, fmt::format("'{}' is no file of its folder", name));
  }
  return name;
}

// Each begins behind the one before it, and weighs nothing below 0.
std::vector<Manifest::Blend> parse_blends(const OrderedJson& json, const std::string& path) {
  std::vector<Manifest::Blend> blends;
  for (const OrderedJson& blend : json) {
    Manifest::Blend& parsed = blends.emplace_back();
    parsed.position = count_at(blend, "position");
    if (blends.size() > 1 && parsed.position <= blends[blends.size() - 2].position) {
      fail_damaged(path, fmt::format("a blend begins at position {}, no later than the one before",
                                     parsed.position));
    }
    double sum = 0;
    for (const OrderedJson& weight : blend.at("weights")) {
      parsed.weights.emplace_back(weight.at("prefix").get<std::string>(),
                                  weight.at("weight").get<double>());
      const double number = parsed.weights.back().second;
      if (!(number >= 0)) fail_damaged(path, fmt::format("a blend has the weight {}", number));
      sum += number;
    }
    if (!(sum > 0 && std::isfinite(sum))) {
      fail_damaged(path, fmt::format("the weights of a blend sum to {}", sum));
    }
  }
  return blends;
}

}  // namespace

std::string manifest_text(const Manifest& manifest) {
  OrderedJson json = {
      {"format", kFormat},           {"version", Manifest::kVersion}, {"step", manifest.step},
      {"updates", manifest.updates}, {"position", manifest.position}, {"tokens", manifest.tokens}};
  if (manifest.loss_scale != 1) {
    json["loss_scale"] = manifest.loss_scale;
    json["good_steps"] = manifest.good_steps;
    json["skipped"] = manifest.skipped;
  }
  if (!manifest.blends.empty()) json["blends"] = blends_json(manifest.blends);
  OrderedJson model = OrderedJson::object();
  for (const auto& [key, value] : manifest.model) {
    model[key] = value;
  }
  json["model"] = std::move(model);
  OrderedJson files = OrderedJson::array();
  for (const auto& [name, bytes] : manifest.files) {
    files.push_back({{"name", name}, {"bytes", bytes}});
  }
  json["files"] = std::move(files);
  OrderedJson checksums = OrderedJson::object();
  for (const auto& [name, sum] : manifest.checksums) {
    checksums[name] = fmt::format("{:016x}", sum);
  }
  if (!checksums.empty()) json["checksums"] = std::move(checksums);
  return json.dump(1) + "\n";
}

Manifest parse_manifest(const std::string& text, const std::string& path) {
  try {
    const OrderedJson json = OrderedJson::parse(text);
    if (json.at("format") != kFormat || json.at("version") != Manifest::kVersion) {
      fail_user("{} is not a checkpoint manifest of version {}", path, Manifest::kVersion);
    }
    const auto count_or_0 = [&json](const char* key) {
      return json.contains(key) ? count_at(json, key) : 0;
    };
    Manifest manifest{.step = count_at(json, "step", kMostSteps),
                      .updates = count_at(json, "updates", kMostSteps),
                      .loss_scale = json.value("loss_scale", 1.0),
                      .good_steps = count_or_0("good_steps"),
                      .skipped = count_or_0("skipped"),
                      .position = count_at(json, "position"),
                      .tokens = count_at(json, "tokens"),
                      .blends = {},
                      .model = {},
                      .files = {}};
    if (manifest.updates > manifest.step) {
      fail_damaged(path, fmt::format("{} steps made {} updates", manifest.step, manifest.updates));
    }
    if (!is_power_of_two(manifest.loss_scale)) {
      fail_damaged(path, fmt::format("loss_scale is {}, no power of two", manifest.loss_scale));
    }
    if (json.contains("blends")) manifest.blends = parse_blends(json.at("blends"), path);
    if (!manifest.blends.empty() && manifest.blends.back().position > manifest.position) {
      fail_damaged(path, fmt::format("a blend begins at position {}, the training was at {}",
                                     manifest.blends.back().position, manifest.position));
    }
    for (const auto& [key, value] : json.at("model").items()) {
      manifest.model.emplace_back(key, value.get<std::string>());
    }
    for (const OrderedJson& file : json.at("files")) {
      manifest.files.emplace_back(parse_file_name(file.at("name"), path), count_at(file, "bytes"));
    }
    if (json.contains("checksums")) {
      for (const auto& [name, sum] : json.at("checksums").items()) {
        manifest.checksums[name] = parse_checksum(sum.get<std::string>(), path);
      }
    }
    return manifest;
  } catch (const OrderedJson::exception& error) {
    // What the library says begins with a number of its own.
    const std::string said = error.what();
    const std::size_t end = said.find("] ");
    fail_damaged(path, end == std::string::npos ? said : said.substr(end + 2));
  }
}

}  // namespace orthant
