// Profiles a training step: one line per operation, forward and backward, with its time relative to the core's limits.
//
//     ./bazelw run //benchmarks:profile -- --case lenet
//
// "roof" is the shortest possible time divided by the measured time. The shortest possible time is the larger of flops
// divided by the peak rate of multiply-adds and bytes divided by the rate of copying memory. It exceeds 100 % if inputs
// were still in a cache.
#include <sys/resource.h>

#include <CLI/CLI.hpp>
#include <cstdio>
#include <string>
#include <vector>

#include <tandem/benchmarks/support/cases.h>
#include <tandem/benchmarks/support/peak.h>
#include <tandem/benchmarks/support/program.h>
#include <tandem/benchmarks/support/report.h>
#include <tandem/profile/step_report.h>

namespace {

namespace td = tandem;
using td::benchmarks::Json;

constexpr int kWarmup = 3;
constexpr int64_t kCopyBytes = int64_t{1} << 27;  // larger than the caches

struct Settings {
  std::string name = "mlp";
  std::string json, trace;
  int threads = 1, steps = 10;
  bool by_module = false;
};

/// Minor page faults of the process so far.
int64_t page_faults() {
  rusage usage{};
  getrusage(RUSAGE_SELF, &usage);
  return usage.ru_minflt;
}

Json to_json(const td::profile::StepRow& row, double step_ms, td::profile::MachineRates rates) {
  Json line = {{"phase", row.phase}, {"op", row.op}};
  if (!row.module.empty()) line["module"] = row.module;
  line["calls"] = row.calls;
  line["ms"] = row.ms;
  line["share"] = row.ms / step_ms;
  line["gflops"] = row.flops / row.ms * 1e-6;
  line["gb_per_s"] = row.bytes / row.ms * 1e-6;
  line["roofline"] = td::profile::roofline_share(row, rates);
  return line;
}

void run(const Settings& settings) {
  td::set_num_threads(settings.threads);
  td::manual_seed(1);
  const td::profile::MachineRates rates{settings.threads * td::benchmarks::fma_peak_gflops(),
                                        td::benchmarks::copy_gb_per_s(kCopyBytes)};
  td::benchmarks::TrainingCase training = td::benchmarks::make_case(settings.name);
  const td::benchmarks::Times untraced = td::benchmarks::time_calls([&] { training.step(); }, kWarmup, settings.steps);
  const int64_t faults = page_faults();
  td::start_trace();
  for (int i = 0; i < settings.steps; ++i) {
    const td::TraceSpan span("step", "step");
    training.step();
  }
  const std::vector<td::TraceEvent> events = td::stop_trace();
  const double faults_per_step = static_cast<double>(page_faults() - faults) / settings.steps;
  const td::profile::StepReport report = td::profile::step_report(events, {.by_module = settings.by_module});

  std::printf(
      "%s, %d thread%s, means of the %ld faster of %d steps; without tracing a step takes %.3f ms (minimum %.3f)\n",
      settings.name.c_str(), settings.threads, settings.threads == 1 ? "" : "s", static_cast<long>(report.steps),
      settings.steps, untraced.median_ms, untraced.min_ms);
  std::printf("peak of the core: %.1f GFLOP/s, copies %.1f GB/s; page faults per step: %.0f\n\n", rates.gflops,
              rates.gb_per_s, faults_per_step);
  std::fputs(td::profile::to_text(report, rates).c_str(), stdout);
  if (!settings.trace.empty()) {
    td::profile::write_chrome_trace(td::benchmarks::user_path(settings.trace), events);
  }
  if (settings.json.empty()) return;
  Json rows = Json::array();
  for (const auto& row : report.rows) rows.push_back(to_json(row, report.step_ms, rates));
  const Json document = {{"case", settings.name},
                         {"threads", settings.threads},
                         {"steps", report.steps},
                         {"step_ms", report.step_ms},
                         {"untraced_ms", untraced.median_ms},
                         {"fma_peak_gflops", rates.gflops},
                         {"copy_gb_per_s", rates.gb_per_s},
                         {"page_faults", faults_per_step},
                         {"cpu", td::benchmarks::cpu_model()},
                         {"rows", rows}};
  const std::string path = td::benchmarks::user_path(settings.json);
  std::ofstream file(path);
  file << document.dump(1) << "\n";
  file.close();
  TANDEM_CHECK(IoError, file.good(), "--json: cannot write '", path, "'");
}

}  // namespace

int main(int argc, char** argv) {
  CLI::App app("Profiles the operations of a training step");
  Settings s;
  app.add_option("--case", s.name)->check(CLI::IsMember(td::benchmarks::case_names()));
  app.add_option("--threads", s.threads, "threads of operations")->check(CLI::Range(1, 1024));
  app.add_option("--steps", s.steps, "traced steps; as many untraced steps are timed before")
      ->check(CLI::Range(1, 1000000));
  app.add_flag("--by-module", s.by_module, "one line per module and operation");
  app.add_option("--json", s.json, "write the table to this file");
  app.add_option("--trace", s.trace, "write the trace to this file, for ui.perfetto.dev");
  return td::benchmarks::run_program(app, argc, argv, [&] { run(s); });
}
