#include "hf/hf_keys.h"

#include "base/check.h"

namespace orthant {

const Json* HfKeys::find(const HfNames& names) const {
  const Json* found = nullptr;
  const char* found_name = nullptr;
  for (const char* name : names) {
    const auto at = object_.find(name);
    if (at == object_.end() || at->is_null()) continue;
    if (found != nullptr && *found != *at) {
      fail_user("{}: {}={} and {}={} are the same option with two values; remove one", source_,
                found_name, found->dump(), name, at->dump());
    }
    found = &*at;
    found_name = name;
  }
  return found;
}

void HfKeys::fail_type(const HfNames& names, const Json& found, const char* wanted) const {
  fail_user("{}: {}={} must be {}; correct it", source_, names.front(), found.dump(), wanted);
}

std::int64_t HfKeys::integer(const HfNames& names, std::int64_t otherwise) const {
  const Json* found = find(names);
  if (found == nullptr) return otherwise;
  if (!found->is_number_integer()) fail_type(names, *found, "an integer");
  return found->get<std::int64_t>();
}

double HfKeys::number(const HfNames& names, double otherwise) const {
  const Json* found = find(names);
  if (found == nullptr) return otherwise;
  if (!found->is_number()) fail_type(names, *found, "a number");
  return found->get<double>();
}

bool HfKeys::boolean(const HfNames& names, bool otherwise) const {
  const Json* found = find(names);
  if (found == nullptr) return otherwise;
  if (!found->is_boolean()) fail_type(names, *found, "true or false");
  return found->get<bool>();
}

std::string HfKeys::text(const HfNames& names, const std::string& otherwise) const {
  const Json* found = find(names);
  if (found == nullptr) return otherwise;
  if (!found->is_string()) fail_type(names, *found, "text");
  return found->get<std::string>();
}

std::vector<std::int64_t> HfKeys::integers(const HfNames& names) const {
  const Json* found = find(names);
  if (found == nullptr) return {};
  if (found->is_number_integer()) return {found->get<std::int64_t>()};
  if (!found->is_array()) fail_type(names, *found, "an integer or a list of integers");
  std::vector<std::int64_t> values;
  for (const Json& value : *found) {
    if (!value.is_number_integer()) fail_type(names, *found, "an integer or a list of integers");
    values.push_back(value.get<std::int64_t>());
  }
  return values;
}

std::vector<std::string> HfKeys::texts(const HfNames& names) const {
  const Json* found = find(names);
  if (found == nullptr) return {};
  if (!found->is_array()) fail_type(names, *found, "a list of texts");
  std::vector<std::string> values;
  for (const Json& value : *found) {
    if (!value.is_string()) fail_type(names, *found, "a list of texts");
    values.push_back(value.get<std::string>());
  }
  return values;
}

const Json* HfKeys::object(const HfNames& names) const {
  const Json* found = find(names);
  if (found != nullptr && !found->is_object()) fail_type(names, *found, "an object");
  return found;
}

void HfKeys::require(const char* name, bool wanted, const char* why) const {
  if (boolean({name}, wanted) != wanted) {
    fail_user("{}: {}={} is not computed: {}; use a model without it", source_, name, !wanted, why);
  }
}

}  // namespace orthant
