// The keys of a config.json, read with their types checked. Included by .cpp files only.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "base/json.h"

namespace orthant {

// A key has several names where transformers knows aliases; null counts as absent.
using HfNames = std::vector<const char*>;

class HfKeys {
 public:
  HfKeys(const Json& object, std::string source) : object_(object), source_(std::move(source)) {}

  const std::string& source() const { return source_; }
  bool has(const HfNames& names) const { return find(names) != nullptr; }
  std::int64_t integer(const HfNames& names, std::int64_t otherwise) const;
  double number(const HfNames& names, double otherwise) const;
  bool boolean(const HfNames& names, bool otherwise) const;
  std::string text(const HfNames& names, const std::string& otherwise) const;
  std::vector<std::int64_t> integers(const HfNames& names) const;  // one or a list; empty if absent
  std::vector<std::string> texts(const HfNames& names) const;      // empty if absent
  const Json* object(const HfNames& names) const;                  // null if absent

  // Refuses `name` unless it is absent or `wanted`; `why` says what is computed instead.
  void require(const char* name, bool wanted, const char* why) const;

 private:
  const Json* find(const HfNames& names) const;  // null if absent; aliases must agree
  [[noreturn]] void fail_type(const HfNames& names, const Json& found, const char* wanted) const;

  const Json& object_;
  std::string source_;
};

}  // namespace orthant
