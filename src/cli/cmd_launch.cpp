// orthant launch: ranks as processes of this host.
#include <memory>

#include "base/check.h"
#include "cli/commands.h"
#include "comm/launcher.h"

namespace orthant {

void add_launch(Parser& app, Command& chosen) {
  Parser& command = app.add_command(
      "launch", "starts ranks as processes of this host: launch -n N -- train RUN.toml ...");
  struct Arguments {
    int num_ranks = 0;
    std::vector<std::string> words;
  };
  const auto arguments = std::make_shared<Arguments>();
  command.add_option("-n,--ranks", arguments->num_ranks, "processes to start: layout.ranks")
      .required()
      .positive();
  command.add_option("COMMAND", arguments->words,
                     "behind --: train, eval or bench, with its own arguments");
  command.when_chosen([arguments, &chosen] {
    chosen = [arguments] {
      const std::string word = arguments->words.empty() ? "" : arguments->words.front();
      if (word != "train" && word != "eval" && word != "bench") {
        fail_user(
            "launch starts ranks of train, eval and bench, '{}' was asked; as in orthant launch -n "
            "8 -- train RUN.toml",
            word);
      }
      // What is wrong with the words is said once, not by every rank.
      Command unused;
      const auto ended = parse_command_line(arguments->words, unused);
      return ended ? *ended : launch_ranks(arguments->num_ranks, arguments->words);
    };
  });
}

}  // namespace orthant
