// Times one training step: zero_grad, forward, backward, optimizer.
//
//     ./bazelw run //benchmarks:train_step -- --case mlp --threads 1 --steps 20
//     ./bazelw run --config=cuda //benchmarks:train_step -- --case gpt2-124m-64 --device cuda --amp
#include <CLI/CLI.hpp>
#include <cmath>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include <tandem/benchmarks/support/cases.h>
#include <tandem/benchmarks/support/program.h>
#include <tandem/benchmarks/support/report.h>
#include <tandem/profile/step_report.h>
#include <tandem/tensor/gpu_trace_clock.h>

namespace {

namespace tb = tandem::benchmarks;

constexpr int kWarmup = 3;
constexpr int kLosses = 10;  // untimed steps with --losses

struct Settings {
  std::vector<std::string> cases{"mlp"};
  std::string json, save, load;
  std::string device = "cpu";
  int threads = 1, steps = 20;
  bool losses = false, amp = false, tf32 = false, graph = false, operations = false;
};

/// Adds the time of each operation in a step, as the mean of the faster half of a few traced steps; measured with
/// events on a GPU, with the host's clock on a CPU. The times add up to "operations_ms".
void add_operations(tb::TrainingCase& training, tandem::Device device, tb::Json& line) {
  constexpr int kTracedSteps = 5;
  tandem::start_trace(device.is_cpu() ? nullptr : std::make_shared<tandem::cuda::GpuSpanClock>(device));
  for (int i = 0; i < kTracedSteps; ++i) {
    const tandem::TraceSpan span("step", "step");
    training.step();
  }
  const tandem::profile::StepReport report = tandem::profile::step_report(tandem::stop_trace());
  line["operations_ms"] = report.step_ms;
  line["operations"] = tb::Json::array();
  for (const tandem::profile::StepRow& row : report.rows) {
    line["operations"].push_back({{"phase", row.phase},
                                  {"op", row.op},
                                  {"count", row.calls},
                                  {"ms", std::round(row.ms * 1e4) / 1e4},
                                  {"flops", row.flops},
                                  {"bytes", row.bytes}});
  }
}

void run(const std::string& name, const Settings& settings, tb::Report& report) {
  tandem::set_num_threads(settings.threads);
  tandem::manual_seed(1);
  tb::TrainingCase training = tb::make_case(name);
  if (!settings.load.empty()) tb::load_case(training, tb::user_path(settings.load));
  const tandem::Device device(settings.device);
  tb::move_case(training, device);
  tandem::cuda::set_allow_tf32(settings.tf32);
  if (settings.amp) training.autocast_dtype = tandem::kBFloat16;
  std::vector<double> losses;
  const double lr = training.optimizer->lr();
  if (settings.losses) training.optimizer->set_lr(training.compared_lr);
  for (int i = 0; i < (settings.losses ? kLosses : kWarmup); ++i) losses.push_back(training.step().item());
  training.optimizer->set_lr(lr);
  std::optional<tandem::cuda::Graph> graph;
  if (settings.graph) graph.emplace(device).capture([&] { training.step(); });
  const auto step = [&] {
    graph ? graph->replay() : static_cast<void>(training.step());
    if (!device.is_cpu()) tandem::cuda::synchronize(device);
  };
  const tb::Times times = tb::time_calls(step, 0, settings.steps);
  tb::Json line = {{"case", name},
                   {"device", settings.device},
                   {"matmul_precision", settings.amp    ? "bfloat16"
                                        : settings.tf32 ? "tf32"
                                                        : "float32"},
                   {"graph", settings.graph},
                   {"threads", settings.threads},
                   {"step_ms", times.median_ms},
                   {"min_ms", times.min_ms},
                   {"items_per_s", static_cast<double>(training.items_per_step) * 1e3 / times.median_ms},
                   {"rss_mb", tb::peak_resident_mb()}};
  if (settings.losses) line["losses"] = losses;
  if (settings.operations) add_operations(training, device, line);
  report.line(std::move(line));
}

}  // namespace

int main(int argc, char** argv) {
  CLI::App app("Times training steps");
  Settings s;
  app.add_option("--case", s.cases, "training cases, separated by commas")
      ->delimiter(',')
      ->check(CLI::IsMember(tb::case_names()));
  app.add_option("--threads", s.threads, "threads of operations")->check(CLI::Range(1, 1024));
  app.add_option("--device", s.device, "device of model and data")->check(CLI::IsMember({"cpu", "cuda"}));
  app.add_flag("--amp", s.amp, "autocast: matrix products and convolutions in bfloat16");
  app.add_flag("--tf32", s.tf32, "float32 matrix products of a GPU in TF32");
  app.add_flag("--graph", s.graph, "capture a step as a CUDA graph and time its replay");
  app.add_option("--steps", s.steps, "timed steps, after a few untimed steps")->check(CLI::Range(1, 1000000));
  app.add_option("--json", s.json, "also append the lines to this file");
  app.add_flag("--losses", s.losses, "report the losses of the first ten steps, which are not timed");
  app.add_flag("--operations", s.operations, "report the time of each operation, measured with events on a GPU");
  app.add_option("--load", s.load, "start from the weights and data in this file");
  app.add_option("--save", s.save, "write the case's weights and data to this file and exit");
  return tb::run_program(app, argc, argv, [&] {
    if (!s.save.empty()) {
      tandem::manual_seed(1);
      tb::save_case(tb::make_case(s.cases.front()), tb::user_path(s.save));
      return;
    }
    tb::Report report(s.json);
    for (const std::string& name : s.cases) run(name, s, report);
  });
}
