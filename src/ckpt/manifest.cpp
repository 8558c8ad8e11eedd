#include "ckpt/manifest.h"

#include "base/check.h"
#include "base/json.h"

namespace orthant {
namespace {

constexpr const char* kFormat = "orthant-checkpoint";

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
                      .model = {},
                      .files = {}};
    for (const auto& [key, value] : json.at("model").items()) {
      manifest.model.emplace_back(key, value.get<std::string>());
    }
    for (const OrderedJson& file : json.at("files")) {
      manifest.files.emplace_back(file.at("name"), file.at("bytes"));
    }
    return manifest;
  } catch (const OrderedJson::exception& error) {
    fail_user("{} is damaged: {}; remove this checkpoint or name another", path, error.what());
  }
}

}  // namespace orthant
