// Pictures of a plan: files that open anywhere, without a reference to anything outside of them.
#pragma once

#include <string>

#include "plan/lanes.h"

namespace orthant {

// The schedule as a grid over time, and the memory of the ranks over one step by class.
std::string chart_svg(const Plan& plan, const PipelineLanes& lanes);
std::string chart_html(const Plan& plan, const PipelineLanes& lanes);

// A Chrome trace (chrome://tracing, Perfetto): a process for each pipeline rank, lanes for
// computing and for each group.
std::string trace_json(const Plan& plan, const PipelineLanes& lanes);

// Writes what the endings of the names say: .svg, .html; a trace is .json. Empty: not wanted. Other
// endings are user errors, found by check_picture_names before any work.
void check_picture_names(const std::string& chart, const std::string& trace);
void write_pictures(const Plan& plan, const std::string& chart, const std::string& trace);

}  // namespace orthant
