// The time of a training step by operation, computed from a trace.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include <tandem/base/macros.h>
#include <tandem/base/trace.h>

namespace tandem { inline namespace v0 { namespace profile {

/// One row of the table. Numbers are means per step.
struct StepRow {
  std::string phase;  ///< "forward", "backward", "optimizer" or "other"
  /// The operation, such as "linear". An operation inside another one has its own row, "linear: copy". Time outside
  /// of operations has a name in parentheses, such as "(between operations)".
  std::string op;
  std::string module;  ///< "" unless StepReportOptions::by_module is set
  double calls = 0;    ///< number of spans
  double ms = 0;       ///< self time in milliseconds: spans inside this one are counted in their own rows
  double flops = 0;    ///< floating-point operations
  double bytes = 0;    ///< bytes read and written
};

/// The table of a training step.
struct StepReport {
  int64_t steps = 0;          ///< number of steps in the mean
  double step_ms = 0;         ///< mean milliseconds per step
  std::vector<StepRow> rows;  ///< by descending ms; the sum of their ms is step_ms
};

/// Options of step_report.
struct StepReportOptions {
  int rank = 0;            ///< whose spans are used
  bool by_module = false;  ///< one row per operation and module, instead of one per operation
};

/// Reports the spans of category "step" on the compute thread of options.rank. Only the faster half of the steps is
/// used (rounded up), because other processes may slow down single steps. Without steps the report is empty.
TANDEM_API StepReport step_report(const std::vector<TraceEvent>& events, StepReportOptions options = {});

/// The peak rates of the machine.
struct MachineRates {
  double gflops = 0;    ///< 1e9 floating-point operations per second
  double gb_per_s = 0;  ///< memory bandwidth, 1e9 bytes per second
};

/// The fraction of the roofline that the row reaches: max(flops / (gflops * 1e9), bytes / (gb_per_s * 1e9)) / seconds.
/// 0 if the row has no time, or neither flops nor bytes. The rates must be positive.
TANDEM_API double roofline_share(const StepRow& row, MachineRates rates);

/// The report as a text table: a line per row, a line per phase, and the sum. `share` is of the step's time, `roof` is
/// roofline_share.
TANDEM_API std::string to_text(const StepReport& report, MachineRates rates);

}}}  // namespace tandem::v0::profile
