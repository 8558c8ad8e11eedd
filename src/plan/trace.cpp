// trace_json() and the files of pictures.
#include "base/check.h"
#include "base/file.h"
#include "base/json.h"
#include "plan/pictures.h"

namespace orthant {
namespace {

constexpr double kMicros = 1e6;  // a trace counts microseconds

class Trace {
 public:
  void name(int process, int thread, const char* what, const std::string& name) {
    add({{"ph", "M"},
         {"pid", process},
         {"tid", thread},
         {"name", what},
         {"args", {{"name", name}}}});
  }
  void bar(int process, int thread, const Bar& bar, const std::string& name, OrderedJson args) {
    add({{"ph", "X"},
         {"pid", process},
         {"tid", thread},
         {"ts", bar.begin * kMicros},
         {"dur", (bar.end - bar.begin) * kMicros},
         {"name", name},
         {"args", std::move(args)}});
  }
  std::string whole() const {
    return "{\"displayTimeUnit\": \"ms\", \"traceEvents\": [\n" + text_ + "\n]}\n";
  }

 private:
  void add(const OrderedJson& event) {
    if (!text_.empty()) text_ += ",\n";
    text_ += event.dump();
  }
  std::string text_;
};

bool ends_well(const std::string& name, std::initializer_list<const char*> endings) {
  for (const char* ending : endings) {
    if (name.ends_with(ending)) return true;
  }
  return name.empty();
}

}  // namespace

std::string trace_json(const Plan& plan, const PipelineLanes& lanes) {
  Trace trace;
  for (std::size_t pp = 0; pp < lanes.stages.size(); ++pp) {
    const StageLanes& stage = lanes.stages[pp];
    const int process = static_cast<int>(pp);
    trace.name(process, 0, "process_name", fmt::format("stage {}, rank {}", pp, stage.rank));
    trace.name(process, 0, "thread_name", "compute");
    for (const Bar& bar : stage.computing) {
      trace.bar(process, 0, bar, bar_name(plan.world.tables, bar), OrderedJson::object());
    }
    int thread = 0;
    for (const CommLane& lane : stage.comms) {
      trace.name(process, ++thread, "thread_name", lane.group);
      for (const Bar& bar : lane.calls) {
        trace.bar(process, thread, bar, std::string(bar.what),
                  {{"bytes", bar.bytes},
                   {"action", bar_name(plan.world.tables, bar)},
                   {"place", plan.world.tables.name(bar.place)}});
      }
    }
  }
  return trace.whole();
}

void check_picture_names(const std::string& chart, const std::string& trace) {
  if (!ends_well(chart, {".svg", ".html"})) {
    fail_user("--chart={}: it is an .svg or an .html file; name one", chart);
  }
  if (!ends_well(trace, {".json"})) {
    fail_user("--trace={}: it is a .json file; name one", trace);
  }
  if (!chart.empty()) require_file_can_be_made(chart, "--chart");
  if (!trace.empty()) require_file_can_be_made(trace, "--trace");
}

void write_pictures(const Plan& plan, const std::string& chart, const std::string& trace) {
  if (chart.empty() && trace.empty()) return;
  const PipelineLanes lanes = lanes_of(plan);
  if (!chart.empty()) {
    write_file_atomically(
        chart, chart.ends_with(".svg") ? chart_svg(plan, lanes) : chart_html(plan, lanes));
  }
  if (!trace.empty()) write_file_atomically(trace, trace_json(plan, lanes));
}

}  // namespace orthant
