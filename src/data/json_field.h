// A value of a JSON file together with the path that leads to it, so that every refusal names it.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <utility>

#include "base/check.h"
#include "base/json.h"

namespace orthant {

class Field {
 public:
  static constexpr std::int64_t kMaxId = (1 << 21) - 1;  // tables by id stay small

  // `value` outlives the field.
  Field(const Json& value, std::string name) : value_(&value), name_(std::move(name)) {}

  const Json& value() const { return *value_; }
  const std::string& name() const { return name_; }
  bool is_null() const { return value_->is_null(); }

  // Null when there is no such key.
  Field at(const std::string& key) const {
    static const Json kNull;
    const auto found = value_->is_object() ? value_->find(key) : value_->end();
    return {value_->is_object() && found != value_->end() ? *found : kNull, name_ + "." + key};
  }
  Field at(std::size_t i) const { return {(*value_)[i], fmt::format("{}[{}]", name_, i)}; }

  std::size_t size() const {
    if (!value_->is_array()) refuse("a list");
    return value_->size();
  }
  std::string text() const {
    if (!value_->is_string()) refuse("a text");
    return value_->get<std::string>();
  }
  std::string text_or(std::string_view when_absent) const {
    return is_null() ? std::string(when_absent) : text();
  }
  bool flag(bool when_absent) const {
    if (is_null()) return when_absent;
    if (!value_->is_boolean()) refuse("true or false");
    return value_->get<bool>();
  }
  std::int32_t id() const {
    const std::int64_t number = value_->is_number_integer() ? value_->get<std::int64_t>() : -1;
    if (number < 0 || number > kMaxId) refuse(fmt::format("an id from 0 to {}", kMaxId));
    return static_cast<std::int32_t>(number);
  }
  [[noreturn]] void refuse(std::string_view supported) const {
    fail_user("{} is {}; supported: {}", name_, found(), supported);
  }

 private:
  std::string found() const {
    if (value_->is_object()) return fmt::format("an object with {} keys", value_->size());
    if (value_->is_array()) return fmt::format("a list of {} values", value_->size());
    const std::string text = value_->dump(-1, ' ', false, Json::error_handler_t::replace);
    return text.size() > 80 ? text.substr(0, 77) + "..." : text;
  }

  const Json* value_;
  std::string name_;
};

}  // namespace orthant
