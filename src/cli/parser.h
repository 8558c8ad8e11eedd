// Parser: the command line of the program or of one command. Only parser.cpp includes the library
// behind it, which takes long to compile.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

namespace CLI {
class App;
class Option;
}  // namespace CLI

namespace orthant {

// One option or argument, for further words about it.
class CommandOption {
 public:
  explicit CommandOption(CLI::Option* option) : option_(option) {}
  CommandOption& required();
  CommandOption& show_default();  // in --help
  CommandOption& positive();
  CommandOption& not_negative();
  CommandOption& between(int low, int high);
  CommandOption& one_of(const std::vector<std::string>& values);
  CommandOption& expected(int words);

 private:
  CLI::Option* option_;
};

class Parser {
 public:
  Parser(const std::string& name, const std::string& help);
  ~Parser();
  Parser(const Parser&) = delete;
  Parser& operator=(const Parser&) = delete;

  Parser& add_command(const std::string& name, const std::string& help);
  void require_command();
  std::vector<std::string> command_names() const;

  // `value` outlives the parser; a name without dashes is an argument by place.
  CommandOption add_option(const std::string& name, std::string& value, const std::string& help);
  CommandOption add_option(const std::string& name, std::optional<std::string>& value,
                           const std::string& help);
  CommandOption add_option(const std::string& name, std::vector<std::string>& value,
                           const std::string& help);
  CommandOption add_option(const std::string& name, int& value, const std::string& help);
  CommandOption add_option(const std::string& name, std::int64_t& value, const std::string& help);
  CommandOption add_option(const std::string& name, std::uint64_t& value, const std::string& help);
  CommandOption add_option(const std::string& name, double& value, const std::string& help);
  void add_flag(const std::string& name, bool& value, const std::string& help);
  // Words that no option takes are not an error: they are left in `words`.
  void keep_extras(std::vector<std::string>& words);
  void footer(const std::string& text);
  // Called when the command is the one given and all its options have been read.
  void when_chosen(std::function<void()> callback);

  // Fills the values from the words after the program's name. Returns false when only help was
  // asked for, which is printed. Throws a user error.
  bool parse(const std::vector<std::string>& words);

 private:
  explicit Parser(CLI::App& app);

  std::unique_ptr<CLI::App> own_;  // the program's; null for a command
  CLI::App& app_;
  std::vector<std::unique_ptr<Parser>> commands_;
};

}  // namespace orthant
