// Times one training step: zero_grad, forward, backward, optimizer.
//
//     ./bazelw run //benchmarks:train_step -- --case mlp --threads 1 --steps 20
#include <CLI/CLI.hpp>
#include <iostream>
#include <string>
#include <vector>

#include <tandem/benchmarks/support/cases.h>
#include <tandem/benchmarks/support/report.h>

namespace {

void run(const std::string& name, int threads, int steps, tandem::benchmarks::Report& report) {
  tandem::set_num_threads(threads);
  tandem::manual_seed(1);
  tandem::benchmarks::TrainingCase training = tandem::benchmarks::make_case(name);
  const tandem::benchmarks::Times times = tandem::benchmarks::time_calls([&] { training.step(); }, 3, steps);
  report.line({{"case", name},
               {"threads", threads},
               {"step_ms", times.median_ms},
               {"min_ms", times.min_ms},
               {"items_per_s", static_cast<double>(training.items_per_step) * 1e3 / times.median_ms},
               {"rss_mb", tandem::benchmarks::peak_resident_mb()}});
}

}  // namespace

int main(int argc, char** argv) {
  CLI::App app("Times training steps");
  std::vector<std::string> cases{"mlp"};
  std::string json;
  int threads = 1, steps = 20;
  app.add_option("--case", cases, "one or several, separated by commas")
      ->delimiter(',')
      ->check(CLI::IsMember(tandem::benchmarks::case_names()));
  app.add_option("--threads", threads, "of the one process")->check(CLI::Range(1, 1024));
  app.add_option("--steps", steps, "timed steps, after three that are not")->check(CLI::Range(1, 1000000));
  app.add_option("--json", json, "append the lines to this file too");
  try {
    app.parse(argc, argv);
    tandem::benchmarks::Report report(json);
    for (const std::string& name : cases) run(name, threads, steps, report);
  } catch (const CLI::ParseError& error) {
    return app.exit(error, std::cout, std::cerr) == 0 ? 0 : 2;
  } catch (const tandem::Error& error) {
    std::cerr << error.what() << "\n";
    return 2;
  }
}
