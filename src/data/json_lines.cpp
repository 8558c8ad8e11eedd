// The parser calls back as it reads: no tree is built of values that nobody asked for.
#include "data/json_lines.h"

#include <algorithm>
#include <optional>
#include <utility>

#include "base/check.h"
#include "base/json.h"

namespace orthant {
namespace {

// Keeps the text under one key of the outermost object.
class TextFinder final : public nlohmann::json_sax<Json> {
 public:
  explicit TextFinder(const std::string& key) : key_(key) {}

  const std::optional<std::string>& text() const { return text_; }
  const std::string& error() const { return error_; }

  bool null() override { return other(); }
  bool boolean(bool /*value*/) override { return other(); }
  bool number_integer(number_integer_t /*value*/) override { return other(); }
  bool number_unsigned(number_unsigned_t /*value*/) override { return other(); }
  bool number_float(number_float_t /*value*/, const string_t& /*text*/) override { return other(); }
  bool binary(binary_t& /*value*/) override { return other(); }
  bool string(string_t& value) override {
    if (is_asked_) {
      text_ = std::move(value);
      is_asked_ = false;
    }
    return true;
  }
  bool start_object(std::size_t /*count*/) override { return open(); }
  bool start_array(std::size_t /*count*/) override {
    if (depth_ == 0) return open() && open();  // its elements are not those of an object
    return open();
  }
  bool end_object() override { return close(); }
  bool end_array() override { return close(); }
  bool key(string_t& name) override {
    is_asked_ = depth_ == 1 && name == key_;
    return true;
  }
  bool parse_error(std::size_t /*at*/, const std::string& /*token*/,
                   const nlohmann::detail::exception& error) override {
    error_ = error.what();
    return false;
  }

 private:
  // A value of another kind. Of equal keys the last holds.
  bool other() {
    if (is_asked_) text_.reset();
    is_asked_ = false;
    return true;
  }
  bool open() {
    ++depth_;
    return other();
  }
  bool close() {
    --depth_;
    return true;
  }

  const std::string& key_;
  std::optional<std::string> text_;
  std::string error_;
  int depth_ = 0;
  bool is_asked_ = false;
};

}  // namespace

void read_json_lines(std::string_view block, const std::string& key, std::int64_t first_line,
                     const std::function<void(std::string_view text, std::int64_t line)>& on_text,
                     const std::function<void(const std::string& why, std::int64_t line)>& on_bad) {
  std::int64_t line = first_line;
  for (std::size_t at = 0; at < block.size(); ++line) {
    const std::size_t end = std::min(block.find('\n', at), block.size());
    const std::string_view row = block.substr(at, end - at);
    at = end + 1;
    if (row.find_first_not_of(" \t\r") == std::string_view::npos) continue;
    TextFinder finder(key);
    Json::sax_parse(row.begin(), row.end(), &finder);
    if (!finder.error().empty()) {
      on_bad(fmt::format("this is not JSON ({}); every line must be one object", finder.error()),
             line);
    } else if (!finder.text().has_value()) {
      on_bad(
          fmt::format("there is no text under the key '{}'; give the key that holds the text", key),
          line);
    } else {
      on_text(*finder.text(), line);
    }
  }
}

}  // namespace orthant
