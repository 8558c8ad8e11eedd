#include "cli/parser.h"

#include <cstdlib>
#include <limits>
#include <utility>

#include <CLI/CLI.hpp>

#include "base/check.h"

namespace orthant {
namespace {

// Not a number where the whole word is none.
double number_of(const std::string& word) {
  char* end = nullptr;
  const double number = std::strtod(word.c_str(), &end);
  const bool is_whole = !word.empty() && end == word.c_str() + word.size();
  return is_whole ? number : std::numeric_limits<double>::quiet_NaN();
}

}  // namespace

CommandOption& CommandOption::required() {
  option_->required();
  return *this;
}
CommandOption& CommandOption::show_default() {
  option_->capture_default_str();
  return *this;
}
CommandOption& CommandOption::positive() {
  option_->check([](const std::string& word) {
    return number_of(word) > 0 ? "" : word + " must be a number above 0";
  });
  return *this;
}
CommandOption& CommandOption::not_negative() {
  option_->check([](const std::string& word) {
    return number_of(word) >= 0 ? "" : word + " must be a number, 0 or more";
  });
  return *this;
}
CommandOption& CommandOption::between(int low, int high) {
  option_->check(CLI::Range(low, high));
  return *this;
}
CommandOption& CommandOption::one_of(const std::vector<std::string>& values) {
  option_->check(CLI::IsMember(values));
  return *this;
}
CommandOption& CommandOption::expected(int words) {
  option_->expected(words);
  return *this;
}

Parser::Parser(const std::string& name, const std::string& help)
    : own_(std::make_unique<CLI::App>(help, name)),
      app_(*own_) {}
Parser::Parser(CLI::App& app) : app_(app) {}
Parser::~Parser() = default;

Parser& Parser::add_command(const std::string& name, const std::string& help) {
  commands_.push_back(std::unique_ptr<Parser>(new Parser(*app_.add_subcommand(name, help))));
  return *commands_.back();
}
void Parser::require_command() {
  app_.require_subcommand(1);
}
std::vector<std::string> Parser::command_names() const {
  std::vector<std::string> names;
  for (const auto& command : commands_) {
    names.push_back(command->app_.get_name());
  }
  return names;
}

CommandOption Parser::add_option(const std::string& name, std::string& value,
                                 const std::string& help) {
  return CommandOption(app_.add_option(name, value, help));
}
CommandOption Parser::add_option(const std::string& name, std::optional<std::string>& value,
                                 const std::string& help) {
  return CommandOption(app_.add_option(name, value, help));
}
CommandOption Parser::add_option(const std::string& name, std::vector<std::string>& value,
                                 const std::string& help) {
  return CommandOption(app_.add_option(name, value, help));
}
CommandOption Parser::add_option(const std::string& name, int& value, const std::string& help) {
  return CommandOption(app_.add_option(name, value, help));
}
CommandOption Parser::add_option(const std::string& name, std::int64_t& value,
                                 const std::string& help) {
  return CommandOption(app_.add_option(name, value, help));
}
CommandOption Parser::add_option(const std::string& name, std::uint64_t& value,
                                 const std::string& help) {
  return CommandOption(app_.add_option(name, value, help));
}
CommandOption Parser::add_option(const std::string& name, double& value, const std::string& help) {
  return CommandOption(app_.add_option(name, value, help));
}
void Parser::add_flag(const std::string& name, bool& value, const std::string& help) {
  app_.add_flag(name, value, help);
}

void Parser::keep_extras(std::vector<std::string>& words) {
  app_.allow_extras();
  // The final callback is the command's own.
  app_.parse_complete_callback([this, &words] { words = app_.remaining(); });
}
void Parser::footer(const std::string& text) {
  app_.footer(text);
}
void Parser::when_chosen(std::function<void()> callback) {
  app_.final_callback(std::move(callback));
}

bool Parser::parse(const std::vector<std::string>& words) {
  try {
    app_.parse(std::vector<std::string>(words.rbegin(), words.rend()));  // the library's order
  } catch (const CLI::ParseError& error) {
    if (error.get_exit_code() == 0) {
      app_.exit(error);  // prints the help
      return false;
    }
    const std::string text = error.what();
    fail_user("{}", text.substr(0, text.find('\n')));
  }
  return true;
}

}  // namespace orthant
