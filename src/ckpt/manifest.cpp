#include "ckpt/manifest.h"

#include <charconv>

#include "base/check.h"
#include "base/json.h"

namespace orthant {
namespace {

constexpr const char* kFormat = "orthant-checkpoint";

std::uint64_t parse_checksum(const std::string& text, const std::string& path) {
  std::uint64_t sum = 0;
  const char* end = text.data() + text.size();
  const auto parsed = std::from_chars(text.data(), end, sum, 16);
  if (text.empty() || parsed.ec != std::errc() || parsed.ptr != end) {
    fail_user("{} is damaged: '{}' is no checksum; remove this checkpoint or name another", path,
              text);
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

std::vector<Manifest::Blend> parse_blends(const OrderedJson& json) {
  std::vector<Manifest::Blend> blends;
  for (const OrderedJson& blend : json) {
    Manifest::Blend& parsed = blends.emplace_back();
    parsed.position = blend.at("position").get<std::int64_t>();
    for (const OrderedJson& weight : blend.at("weights")) {
      parsed.weights.emplace_back(weight.at("prefix").get<std::string>(),
                                  weight.at("weight").get<double>());
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
    Manifest manifest{.step = json.at("step"),
                      .updates = json.at("updates"),
                      .loss_scale = json.value("loss_scale", 1.0),
                      .good_steps = json.value("good_steps", std::int64_t{0}),
                      .skipped = json.value("skipped", std::int64_t{0}),
                      .position = json.at("position"),
                      .tokens = json.at("tokens"),
                      .blends = {},
                      .model = {},
                      .files = {}};
    if (json.contains("blends")) manifest.blends = parse_blends(json.at("blends"));
    for (const auto& [key, value] : json.at("model").items()) {
      manifest.model.emplace_back(key, value.get<std::string>());
    }
    for (const OrderedJson& file : json.at("files")) {
      manifest.files.emplace_back(file.at("name"), file.at("bytes"));
    }
    if (json.contains("checksums")) {
      for (const auto& [name, sum] : json.at("checksums").items()) {
        manifest.checksums[name] = parse_checksum(sum.get<std::string>(), path);
      }
    }
    return manifest;
  } catch (const OrderedJson::exception& error) {
    fail_user("{} is damaged: {}; remove this checkpoint or name another", path, error.what());
  }
}

}  // namespace orthant
