// Schedule files: what is read, and that every fault is named with its line.
#include "pipeline/schedule_file.h"

#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "base/check.h"
#include "tests/pipeline/hand_made.h"

namespace orthant {
namespace {

std::string refusal(const std::string& text, int ranks) {
  try {
    (void)parse_schedule_file(text, "s.txt", ranks);
  } catch (const Error& error) {
    EXPECT_EQ(error.fault(), Fault::kUser) << error.what();
    return error.what();
  }
  return "nothing was thrown";
}

TEST(ScheduleFiles, HoldAPlacementAndALineForEachRank) {
  const ScheduleFile file = parse_schedule_file(
      "# two ranks\n\nplacement v   # there and back\n"
      "rank 0: F0 F1 F0.1 B0.1 F1.1 B1.1 B0 B1\r\n"
      "\trank 1: F0 F0.1 F1 F1.1 B0.1 B0 B1.1 B1  # the turn\n",
      "s.txt", 2);
  const HandMade made = v_2x2();
  EXPECT_EQ(file.compute, made.compute);
  EXPECT_EQ(file.num_micros, 2);
  EXPECT_EQ(file.placement.part_at(0, 1), 3);
}

TEST(ScheduleFiles, HoldWhatGeneratorsMake) {
  for (const ScheduleChoice& choice : choices_of(3, {2})) {
    const Schedule compute = make_schedule(choice, 4);
    std::string text = "placement ";
    text += choice.name == "zero_bubble_v" ? "v\n"
            : choice.name == "interleaved" ? "looped 2\n"
                                           : "straight\n";
    for (std::size_t rank = 0; rank < compute.size(); ++rank) {
      text += fmt::format("rank {}: {}\n", rank, to_text(compute[rank]));
    }
    const ScheduleChoice file = {"file", 3, 1, "s.txt", text};
    EXPECT_EQ(make_schedule(file, 4), compute);
    EXPECT_EQ(placement_of(file).num_parts(), placement_of(choice).num_parts());
    EXPECT_THROW(make_schedule(file, 5), Error);
  }
}

TEST(ScheduleFiles, FaultsAreNamedWithTheirLine) {
  struct Case {
    std::string text;
    int ranks;
    std::string found;
  };
  for (const Case& c : std::vector<Case>{
           {"rank 0: F0 B0", 1, "line 1: 'rank' is found; the first line names the placement"},
           {"", 1, "s.txt has no line 'placement"},
           {"placement u", 1, "line 1: 'u' is found; a placement is 'straight', 'looped N' or 'v'"},
           {"placement looped", 1, "'looped' takes the parts of a rank, 1 to 64"},
           {"placement looped 0", 1, "'0' is found; 'looped' takes"},
           {"placement v 2", 1, "'2' is found; nothing follows the placement"},
           {"placement straight\nF0 B0", 1, "line 2: 'F0' is found; a line is 'rank N:'"},
           {"placement straight\n\nrank 1: F0 B0", 1,
            "line 3: '1:' is found; here comes 'rank 0:'"},
           {"placement straight\nrank 0: F0 X0 B0", 1, "line 2: schedule text: 'X0' is no action"},
           {"placement straight\nrank 0: F0 sendF0 B0", 1, "line 2: 'sendF0' is found; messages"},
           {"placement straight\nrank 0: F0 B0", 2, "s.txt has 1 ranks, layout.pp=2"},
           {"placement straight\nrank 0: F0 B0\nrank 1: F0", 2, "line 3: schedule: rank 1: B0 is"},
           {"placement straight\nrank 0: F0.1 B0.1", 1, "rank 0 at F0.1: the rank has 1 chunks"},
           {"placement straight\nrank 0: F1 F0 B0 B1", 1,
            "line 2: schedule: rank 0 at F0: forwards"},
           {"placement straight\nrank 0: F0 F99 B0", 1, "line 2: schedule: F99 in a schedule of 3"},
           {"placement straight\nrank 0: F0 B0 F1 B1\nrank 1: F0 F1 B0 B1", 2,
            "line 2: schedule: these ranks can never go on"}}) {
    const std::string found = refusal(c.text, c.ranks);
    EXPECT_NE(found.find(c.found), std::string::npos) << found;
    EXPECT_TRUE(found.starts_with("layout.schedule_file=s.txt ")) << found;
  }
}

}  // namespace
}  // namespace orthant
