// chart_svg(): the schedule and the memory, drawn.
#include <algorithm>
#include <array>
#include <iterator>

#include "base/text.h"
#include "plan/pictures.h"

namespace orthant {
namespace {

constexpr double kLeft = 150;  // of what is drawn over time, px
constexpr double kWidth = 1080;
constexpr double kRow = 18;    // of the grid
constexpr double kPanel = 96;  // of one rank's memory
constexpr std::size_t kColumns = 540;

constexpr std::array<const char*, kNumMemClasses> kClassColors = {
    "#4c78a8", "#f58518", "#54a24b", "#e45756", "#b279a2", "#eeca3b", "#9d755d"};

std::string escaped(std::string_view text) {
  std::string out;
  for (const char c : text) {
    switch (c) {
      case '&': out += "&amp;"; break;
      case '<': out += "&lt;"; break;
      case '>': out += "&gt;"; break;
      case '"': out += "&quot;"; break;
      default: out += c;
    }
  }
  return out;
}

class Svg {
 public:
  void rect(double x, double y, double width, double height, std::string_view color,
            std::string_view title) {
    body_ += fmt::format(
        "<rect x=\"{:.2f}\" y=\"{:.2f}\" width=\"{:.2f}\" height=\"{:.2f}\" "
        "fill=\"{}\"",
        x, y, width, height, color);
    body_ += title.empty() ? "/>\n" : fmt::format("><title>{}</title></rect>\n", escaped(title));
  }
  void text(double x, double y, std::string_view text, std::string_view anchor = "start") {
    body_ += fmt::format("<text x=\"{:.2f}\" y=\"{:.2f}\" text-anchor=\"{}\">{}</text>\n", x, y,
                         anchor, escaped(text));
  }
  void area(const std::vector<std::pair<double, double>>& points, std::string_view color) {
    body_ += "<path fill=\"" + std::string(color) + "\" d=\"";
    for (std::size_t i = 0; i < points.size(); ++i) {
      body_ +=
          fmt::format("{}{:.1f} {:.1f}", i == 0 ? "M" : "L", points[i].first, points[i].second);
    }
    body_ += "Z\"/>\n";
  }
  std::string whole(double height) const {
    return fmt::format(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"{0:.0f}\" "
        "height=\"{1:.0f}\" viewBox=\"0 0 {0:.0f} {1:.0f}\" "
        "font-family=\"sans-serif\" font-size=\"11\">\n"
        "<rect width=\"100%\" height=\"100%\" fill=\"white\"/>\n{2}</svg>\n",
        kLeft + kWidth + 20, height, body_);
  }

 private:
  std::string body_;
};

constexpr const char* kMixed = "#7db39c";  // several actions in one bar

const char* color_of(char action) {
  switch (action) {
    case 'F': return "#7aa6d1";
    case 'B': return "#7fbf7b";
    case 'I': return "#a6d96a";
    case 'W': return "#d9c36a";
    default: return "#b79ac8";
  }
}

class Chart {
 public:
  Chart(const Plan& plan, const PipelineLanes& lanes) : plan_(plan), lanes_(lanes) {}

  std::string draw() {
    draw_header();
    draw_grid();
    draw_memory();
    return svg_.whole(y_ + 10);
  }

 private:
  double x_of(double seconds) const {
    return kLeft + (lanes_.makespan > 0 ? seconds / lanes_.makespan * kWidth : 0);
  }

  void draw_header() {
    const LayoutConfig& layout = plan_.config().layout;
    svg_.text(10, 20,
              fmt::format("{} ranks: tp {}, pp {}, dp {}; schedule {}, {} micro-batches a step",
                          layout.ranks, layout.tp, layout.pp, layout.dp(), layout.schedule,
                          rank_config(plan_.request.job).max_micros));
    svg_.text(10, 36,
              fmt::format("one step, ranks of tp 0 and dp 0; {}; idle share {:.1f} %",
                          lanes_.how_timed, plan_.bubble * 100));
    double x = kLeft;
    const std::pair<char, const char*> kinds[] = {{'F', "forward"},
                                                  {'B', "backward"},
                                                  {'I', "input gradient"},
                                                  {'W', "weight gradient"},
                                                  {0, "update"}};
    for (const auto& [kind, name] : kinds) {
      svg_.rect(x, 46, 10, 10, color_of(kind), "");
      svg_.text(x + 14, 55, name);
      x += 110;
    }
    y_ = 68;
  }

  void draw_grid() {
    for (std::size_t pp = 0; pp < lanes_.stages.size(); ++pp) {
      const StageLanes& stage = lanes_.stages[pp];
      svg_.text(kLeft - 8, y_ + 13, fmt::format("stage {} (rank {})", pp, stage.rank), "end");
      svg_.rect(kLeft, y_, kWidth, kRow - 2, "#eeeeee", "");
      draw_row(stage);
      y_ += kRow;
    }
    y_ += 14;
  }

  // Neighbours that are too narrow to be seen apart become one.
  void draw_row(const StageLanes& stage) {
    constexpr double kSeen = 1.5;
    constexpr double kHasName = 22;
    const std::vector<Bar>& bars = stage.computing;
    for (std::size_t i = 0; i < bars.size();) {
      const double x = x_of(bars[i].begin);
      double end = x_of(bars[i].end);
      std::string name = bar_name(plan_.world.tables, bars[i]);
      const char kind = bars[i].at.kind;
      std::size_t next = i + 1;
      const char* color = color_of(kind);
      while (kind != 0 && next < bars.size() && bars[next].at.kind != 0 && end - x < kSeen &&
             x_of(bars[next].begin) - end < 0.5) {
        end = x_of(bars[next].end);
        if (bars[next].at.kind != kind) color = kMixed;
        ++next;
      }
      if (next > i + 1) name += " .. " + bar_name(plan_.world.tables, bars[next - 1]);
      svg_.rect(x, y_, std::max(end - x - 0.4, 0.3), kRow - 2, color, name);
      if (end - x > kHasName) svg_.text(x + 3, y_ + 12, name);
      i = next;
    }
  }

  // All stages, or the ends of many.
  std::vector<std::size_t> shown_stages() const {
    constexpr std::size_t kAll = 8;
    constexpr std::size_t kEnd = 4;
    std::vector<std::size_t> shown;
    const std::size_t count = lanes_.stages.size();
    for (std::size_t pp = 0; pp < count; ++pp) {
      if (count <= kAll || pp < kEnd || pp + kEnd >= count) shown.push_back(pp);
    }
    return shown;
  }

  void draw_memory() {
    std::int64_t most = 1;
    for (const std::size_t pp : shown_stages()) {
      most = std::max(most, plan_.memory.of(lanes_.stages[pp].rank).whole.device_bytes());
    }
    svg_.text(10, y_ + 10, "memory over the step");
    double x = kLeft;
    for (std::size_t i = 0; i < kClassColors.size(); ++i) {
      svg_.rect(x, y_ + 1, 10, 10, kClassColors[i], "");
      svg_.text(x + 14, y_ + 10, name_of(static_cast<MemClass>(i)));
      x += 110;
    }
    y_ += 20;
    for (const std::size_t pp : shown_stages()) {
      draw_panel(pp, most);
    }
  }

  // The fullest moment of every column of time.
  std::vector<ClassBytes> columns_of(const StageLanes& stage) const {
    const std::vector<ClassBytes> marks = trace_memory(rank_config(plan_.request.job), stage.rank);
    const std::vector<Instruction>& list = plan_.world.of(stage.rank).list;
    std::vector<ClassBytes> columns(kColumns);
    const auto total = [](const ClassBytes& classes) {
      std::int64_t sum = 0;
      for (const std::int64_t bytes : classes) {
        sum += bytes;
      }
      return sum;
    };
    const auto column = [&](double seconds) {
      const double share = lanes_.makespan > 0 ? seconds / lanes_.makespan : 0;
      return std::min(kColumns - 1, static_cast<std::size_t>(share * kColumns));
    };
    std::size_t from = 0;
    for (std::size_t i = 0; i < list.size(); ++i) {
      const std::size_t to = column(stage.ends[i]);
      const auto first = static_cast<std::size_t>(list[i].entry);
      const std::size_t last =
          i + 1 < list.size() ? static_cast<std::size_t>(list[i + 1].entry) : marks.size();
      for (std::size_t entry = first; entry < last; ++entry) {
        for (std::size_t c = from; c <= to; ++c) {
          if (total(marks[entry]) > total(columns[c])) columns[c] = marks[entry];
        }
      }
      from = to;
    }
    for (std::size_t c = from + 1; c < kColumns; ++c) {
      columns[c] = marks.back();
    }
    return columns;
  }

  void draw_panel(std::size_t pp, std::int64_t most) {
    const StageLanes& stage = lanes_.stages[pp];
    const std::int64_t peak = plan_.memory.of(stage.rank).whole.device_bytes();
    svg_.text(kLeft - 8, y_ + 14, fmt::format("stage {} (rank {})", pp, stage.rank), "end");
    svg_.text(kLeft - 8, y_ + 30, fmt::format("peak {}", format_bytes(peak)), "end");
    svg_.rect(kLeft, y_, kWidth, kPanel - 8, "#f6f6f6", "");
    const std::vector<ClassBytes> columns = columns_of(stage);
    std::vector<std::int64_t> base(kColumns);
    for (std::size_t what = 0; what < kClassColors.size(); ++what) {
      std::vector<std::pair<double, double>> upper;
      std::vector<std::pair<double, double>> lower;
      bool is_there = false;
      for (std::size_t c = 0; c < kColumns; ++c) {
        const auto y = [&](std::int64_t bytes) {
          return y_ + (kPanel - 8) * (1 - static_cast<double>(bytes) / static_cast<double>(most));
        };
        const double left = kLeft + kWidth * static_cast<double>(c) / kColumns;
        const double right = kLeft + kWidth * static_cast<double>(c + 1) / kColumns;
        const std::int64_t top = base[c] + columns[c][what];
        is_there = is_there || columns[c][what] > 0;
        upper.insert(upper.end(), {{left, y(top)}, {right, y(top)}});
        lower.insert(lower.end(), {{left, y(base[c])}, {right, y(base[c])}});
        base[c] = top;
      }
      upper.insert(upper.end(), lower.rbegin(), lower.rend());
      if (is_there) svg_.area(upper, kClassColors[what]);
    }
    y_ += kPanel;
  }

  const Plan& plan_;
  const PipelineLanes& lanes_;
  Svg svg_;
  double y_ = 0;
};

}  // namespace

std::string chart_svg(const Plan& plan, const PipelineLanes& lanes) {
  return Chart(plan, lanes).draw();
}

std::string chart_html(const Plan& plan, const PipelineLanes& lanes) {
  return "<!DOCTYPE html>\n<html lang=\"en\"><head><meta charset=\"utf-8\"/>"
         "<title>orthant plan</title></head>\n<body>\n" +
         chart_svg(plan, lanes) + "</body></html>\n";
}

}  // namespace orthant
