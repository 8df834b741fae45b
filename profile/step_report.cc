#include <tandem/profile/step_report.h>

#include <algorithm>
#include <map>
#include <tuple>

#include <tandem/base/format.h>

namespace tandem { inline namespace v0 { namespace profile {

namespace {

/// A span of the step and its enclosing span.
struct Span {
  const TraceEvent* event;
  Span* parent;             // null for the step itself
  int64_t children_ns = 0;  // total time of the direct children
  std::string phase, op;
};

constexpr const char* kPhases[] = {"forward", "backward", "optimizer", "other"};

/// Operations, copies, and the nodes of a backward pass, which are reported under the name of their operation.
bool is_operation(const TraceEvent& event, const Span* parent) {
  if (event.category == "op" || event.category == "copy") return true;
  return event.category == "backward" && parent != nullptr && parent->event->category == "backward";
}

std::string phase_of(const TraceEvent& event, const Span& parent) {
  if (event.category == "forward" || event.category == "backward" || event.category == "optimizer") {
    return parent.parent == nullptr ? event.category : parent.phase;
  }
  if (event.category != "op" && event.category != "copy") return "other";
  return parent.parent == nullptr ? "forward" : parent.phase;
}

/// "<outermost operation>: <innermost operation>", or one name if they are the same.
std::string op_of(const TraceEvent& event, const Span& parent) {
  if (is_operation(event, &parent)) {
    const std::string outer = parent.op.substr(0, parent.op.find(": "));
    return outer.empty() || outer[0] == '(' || outer == event.name ? event.name : outer + ": " + event.name;
  }
  if (event.category == "forward") return "(between operations)";
  if (event.category == "backward") return "(engine)";
  if (event.category == "optimizer") return event.name;
  return "(" + event.name + ")";
}

/// The spans of the rank's compute thread; a span comes before the spans inside it.
std::vector<const TraceEvent*> nested_order(const std::vector<TraceEvent>& events, int rank) {
  std::vector<const TraceEvent*> result;
  // Spans are recorded when they end, so of two spans with equal times the later record is the outer one.
  for (auto event = events.rbegin(); event != events.rend(); ++event) {
    if (event->category == "algorithm") continue;  // its time is part of the operation's
    if (event->rank == rank && event->thread == 0 && event->end_ns > event->begin_ns) result.push_back(&*event);
  }
  std::stable_sort(result.begin(), result.end(), [](const TraceEvent* a, const TraceEvent* b) {
    return a->begin_ns != b->begin_ns ? a->begin_ns < b->begin_ns : a->end_ns > b->end_ns;
  });
  return result;
}

using Rows = std::map<std::tuple<std::string, std::string, std::string>, StepRow>;

void add(const Span& span, bool by_module, Rows& rows) {
  const TraceEvent& event = *span.event;
  const std::string module = by_module ? event.category == "forward" ? event.name : event.module : "";
  StepRow& row = rows[{span.phase, span.op, module}];
  row.phase = span.phase;
  row.op = span.op;
  row.module = module;
  row.calls += 1;
  row.ms += static_cast<double>(event.end_ns - event.begin_ns - span.children_ns) * 1e-6;
  row.flops += static_cast<double>(event.num_flops);
  row.bytes += static_cast<double>(event.num_bytes);
}

/// Adds the spans of one step to the rows. The first span is the step itself.
void add_step(const TraceEvent* const* begin, const TraceEvent* const* end, bool by_module, Rows& rows) {
  std::vector<Span> spans;
  spans.reserve(static_cast<size_t>(end - begin));  // `parent` points into the vector
  spans.push_back({*begin, nullptr, 0, "other", "(outside of operations)"});
  Span* innermost = &spans.front();
  for (auto event = begin + 1; event != end; ++event) {
    while (innermost->parent != nullptr && (*event)->end_ns > innermost->event->end_ns) {
      innermost = innermost->parent;
    }
    innermost->children_ns += (*event)->end_ns - (*event)->begin_ns;
    spans.push_back({*event, innermost, 0, phase_of(**event, *innermost), op_of(**event, *innermost)});
    innermost = &spans.back();
  }
  for (const Span& span : spans) add(span, by_module, rows);
}

std::string line(const char* phase, const std::string& op, const std::string& module, const StepRow& row,
                 double step_ms, MachineRates rates) {
  const auto spaces = [](const std::string& text, size_t width) {
    return std::string(width - std::min(width, text.size()), ' ');
  };
  const auto right = [&](const std::string& text, size_t width) { return spaces(text, width) + text; };
  const auto left = [&](const std::string& text, size_t width) { return text + spaces(text, width); };
  const double roofline = roofline_share(row, rates);
  std::string text = left(phase, 10) + left(op, 40) + right(format_fixed(row.calls, 0), 6) +
                     right(format_fixed(row.ms, 3), 11) + right(format_fixed(100 * row.ms / step_ms, 1), 7) + " %" +
                     right(row.flops > 0 ? format_fixed(row.flops / row.ms * 1e-6, 1) : "", 9) +
                     right(row.bytes > 0 ? format_fixed(row.bytes / row.ms * 1e-6, 1) : "", 9) +
                     right(roofline > 0 ? format_fixed(100 * roofline, 0) + " %" : "", 8) + "  " + module;
  text.erase(text.find_last_not_of(' ') + 1);
  return text + "\n";
}

}  // namespace

StepReport step_report(const std::vector<TraceEvent>& events, StepReportOptions options) {
  const std::vector<const TraceEvent*> spans = nested_order(events, options.rank);
  struct Step {
    size_t begin, end;
    int64_t ns;
  };
  std::vector<Step> steps;
  for (size_t i = 0; i < spans.size(); ++i) {
    if (spans[i]->category != "step") continue;
    size_t end = i + 1;
    while (end < spans.size() && spans[end]->end_ns <= spans[i]->end_ns) ++end;
    steps.push_back({i, end, spans[i]->end_ns - spans[i]->begin_ns});
    i = end - 1;
  }
  StepReport report;
  if (steps.empty()) return report;
  std::stable_sort(steps.begin(), steps.end(), [](const Step& a, const Step& b) { return a.ns < b.ns; });
  steps.resize((steps.size() + 1) / 2);
  Rows rows;
  for (const Step& step : steps)
    add_step(&spans[step.begin], &spans[step.begin] + (step.end - step.begin), options.by_module, rows);
  report.steps = static_cast<int64_t>(steps.size());
  const double scale = 1.0 / static_cast<double>(steps.size());
  for (const Step& step : steps) report.step_ms += scale * static_cast<double>(step.ns) * 1e-6;
  for (auto& [key, row] : rows) {
    for (double* value : {&row.calls, &row.ms, &row.flops, &row.bytes}) *value *= scale;
    report.rows.push_back(std::move(row));
  }
  std::stable_sort(report.rows.begin(), report.rows.end(),
                   [](const StepRow& a, const StepRow& b) { return a.ms > b.ms; });
  return report;
}

double roofline_share(const StepRow& row, MachineRates rates) {
  if (row.ms <= 0) return 0;
  return std::max(row.flops / rates.gflops, row.bytes / rates.gb_per_s) * 1e-6 / row.ms;
}

std::string to_text(const StepReport& report, MachineRates rates) {
  std::string text =
      "phase     operation                                calls         ms    share     GF/s     GB/s    roof\n";
  StepRow total;
  for (const StepRow& row : report.rows) {
    text += line(row.phase.c_str(), row.op, row.module, row, report.step_ms, rates);
  }
  text += "\n";
  for (const char* phase : kPhases) {
    StepRow sum;
    for (const StepRow& row : report.rows) {
      if (row.phase != phase) continue;
      sum.calls += row.calls;
      sum.ms += row.ms;
      sum.flops += row.flops;
      sum.bytes += row.bytes;
    }
    if (sum.calls > 0) text += line(phase, "all", "", sum, report.step_ms, rates);
    total.calls += sum.calls;
    total.ms += sum.ms;
    total.flops += sum.flops;
    total.bytes += sum.bytes;
  }
  return text + line("step", "", "", total, report.step_ms, rates);
}

}}}  // namespace tandem::v0::profile
