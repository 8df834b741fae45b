// What a training step costs, operation by operation, read from a trace.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include <tandem/base/macros.h>
#include <tandem/base/trace.h>

namespace tandem { inline namespace v0 { namespace profile {

/// One line of the table.  Numbers are means per step.
struct StepRow {
  std::string phase;  ///< "forward", "backward", "optimizer" or "other"
  /// "linear"; "linear: copy" for what ran inside of it and is counted apart; in parentheses what is no operation.
  std::string op;
  std::string module;  ///< "" unless asked for
  double calls = 0;
  double ms = 0;  ///< without what ran inside and has its own lines, so that lines add up
  double flops = 0;
  double bytes = 0;
};

struct StepReport {
  int64_t steps = 0;  ///< the mean is over so many
  double step_ms = 0;
  std::vector<StepRow> rows;  ///< the dearest first; their ms add up to step_ms
};

struct StepReportOptions {
  int rank = 0;
  bool by_module = false;  ///< one line per operation and module instead of one per operation
};

/// The table of the spans of category "step" on the rank's own thread; the faster half of them, so that one that the
/// machine disturbed does not count.  Without steps the report is empty.
TANDEM_API StepReport step_report(const std::vector<TraceEvent>& events, StepReportOptions options = {});

/// What the processor can do at most.
struct MachineRates {
  double gflops = 0;
  double gb_per_s = 0;
};

/// The least time that the row's flops and bytes need, whichever takes longer, as a share of its time; 0 if it has neither.
TANDEM_API double roofline_share(const StepRow& row, MachineRates rates);

/// The report as text for people: a line per row and per phase, and their sum.
TANDEM_API std::string to_text(const StepReport& report, MachineRates rates);

}}}  // namespace tandem::v0::profile
