// Times data-parallel training steps, alternating with the same steps without communication on all ranks.
//
//     ./bazelw run //benchmarks:ddp -- --case mlp --world 2
//
// With --shard, undivided steps alternate with those of the level: a median of the ratios of pairs.
#include <CLI/CLI.hpp>
#include <algorithm>
#include <chrono>
#include <memory>
#include <string>
#include <vector>

#include <tandem/benchmarks/support/cases.h>
#include <tandem/benchmarks/support/program.h>
#include <tandem/benchmarks/support/report.h>

namespace td = tandem;

namespace {

constexpr int kWarmup = 3;
constexpr int kRounds = 5;  // local and data-parallel steps alternate, so that changes of clock speed affect both

/// Mean of `value` over the ranks.
double mean_over_ranks(double value, td::distributed::ProcessGroup& group) {
  const td::Tensor t = td::from_vector<double>({value}, {1});
  group.all_reduce(t, td::distributed::ReduceOp::kAvg);
  return t.item();
}

std::vector<double> timed_steps(td::benchmarks::TrainingCase& training, int count,
                                td::distributed::ProcessGroup& group) {
  group.barrier();
  std::vector<double> times;
  for (int i = 0; i < count; ++i) {
    const auto start = std::chrono::steady_clock::now();
    training.step();
    times.push_back(std::chrono::duration<double, std::milli>(std::chrono::steady_clock::now() - start).count());
  }
  return times;
}

void run(td::distributed::Context& context, const std::string& name, int steps,
         const std::vector<std::string>& compress, td::benchmarks::Report* report) {
  td::set_num_threads(1);
  td::manual_seed(1);
  td::benchmarks::TrainingCase training = td::benchmarks::make_case(name);
  td::distributed::ProcessGroup& group = *context.group();
  td::distributed::GradientReducer reducer(training.model->named_parameters(), training.model->named_buffers(),
                                           context.group(), {.hooks = td::benchmarks::make_hooks(compress)});
  const int per_round = std::max(steps / kRounds, 1);
  std::vector<double> local, ddp;
  double exposed_ms = 0, comm_ms = 0;
  for (int i = 0; i < kWarmup; ++i) training.step();
  for (int round = 0; round < kRounds; ++round) {
    {
      const td::HookHandle no_sync = reducer.no_sync();
      for (const double t : timed_steps(training, per_round, group)) local.push_back(t);
    }
    training.step();
    reducer.reset_report();
    for (const double t : timed_steps(training, per_round + 1, group)) ddp.push_back(t);
    exposed_ms += reducer.report().exposed_ms / kRounds;
    comm_ms += reducer.report().comm_ms / kRounds;
  }
  const double local_ms = mean_over_ranks(td::benchmarks::median(local), group);
  const double ddp_ms = mean_over_ranks(td::benchmarks::median(ddp), group);
  exposed_ms = mean_over_ranks(exposed_ms, group);
  comm_ms = mean_over_ranks(comm_ms, group);
  if (report == nullptr) return;
  report->line({{"case", name},
                {"world", context.world_size()},
                {"compress", compress},
                {"local_ms", local_ms},
                {"ddp_ms", ddp_ms},
                {"exposed_ms", exposed_ms},
                {"stolen_ms", ddp_ms - local_ms - exposed_ms},
                {"comm_ms", comm_ms}});
}

void compare_with(td::distributed::Context& context, const std::string& name, int steps, td::distributed::Shard level,
                  td::benchmarks::Report* report) {
  td::set_num_threads(1);
  struct Side {
    td::benchmarks::TrainingCase training;
    td::DistributedDataParallel<td::nn::Module> ddp;
    Side(const std::string& name, td::distributed::Context& context, td::distributed::Shard shard)
        : training((td::manual_seed(1), td::benchmarks::make_case(name))),
          ddp(*training.model, context.group(), {.shard = shard}) {}
  };
  Side whole(name, context, td::distributed::Shard::kNone), divided(name, context, level);
  std::vector<double> whole_ms, divided_ms, ratios;
  for (int i = 0; i < kWarmup; ++i) {
    whole.training.step();
    divided.training.step();
  }
  for (int i = 0; i < steps; ++i) {
    whole_ms.push_back(timed_steps(whole.training, 1, *context.group())[0]);
    divided_ms.push_back(timed_steps(divided.training, 1, *context.group())[0]);
    ratios.push_back(divided_ms.back() / whole_ms.back());
  }
  if (report == nullptr) return;
  report->line({{"case", name},
                {"world", context.world_size()},
                {"shard", to_string(level)},
                {"none_ms", td::benchmarks::median(whole_ms)},
                {"shard_ms", td::benchmarks::median(divided_ms)},
                {"ratio", td::benchmarks::median(ratios)}});
}

struct Settings {
  std::vector<std::string> cases{"mlp"};
  std::vector<std::string> compress{"none"};
  std::string json;
  std::string shard = "none";
  int world = 2;
  int steps = 40;
};

void declare(CLI::App& app, Settings& s) {
  app.add_option("--case", s.cases, "training cases, separated by commas")
      ->delimiter(',')
      ->check(CLI::IsMember(td::benchmarks::case_names()));
  app.add_option("--world", s.world, "ranks, one process each")->check(CLI::Range(1, 64));
  app.add_option("--steps", s.steps, "timed steps of each kind")->check(CLI::Range(1, 1000000));
  app.add_option("--compress", s.compress, "chain of communication hooks: fp16, bf16, power_sgd")
      ->delimiter(',')
      ->check(CLI::IsMember({"none", "fp16", "bf16", "power_sgd"}));
  app.add_option("--shard", s.shard, "compare a level with undivided steps")
      ->check(CLI::IsMember({"none", "optimizer", "gradients", "parameters"}));
  app.add_option("--json", s.json, "also append the lines to this file");
}

TANDEM_RANK_MAIN(ddp) {
  CLI::App app;
  Settings settings;
  declare(app, settings);
  app.parse(std::vector<std::string>(args.rbegin(), args.rend()));  // CLI11 expects the arguments in reverse order
  std::unique_ptr<td::benchmarks::Report> report;
  if (context.rank() == 0) report = std::make_unique<td::benchmarks::Report>(settings.json);
  context.group()->barrier();  // Report measures rank 0's peak while the other ranks wait here
  for (const std::string& name : settings.cases) {
    using td::distributed::Shard;
    if (settings.shard == "none") run(context, name, settings.steps, settings.compress, report.get());
    for (const Shard level : {Shard::kOptimizer, Shard::kGradients, Shard::kParameters}) {
      if (settings.shard == to_string(level)) compare_with(context, name, settings.steps, level, report.get());
    }
  }
}

}  // namespace

int main(int argc, char** argv) {
  if (const auto status = td::distributed::rank_main_entry(argc, argv)) return *status;
  CLI::App app("Times data-parallel training steps");
  Settings settings;
  declare(app, settings);
  return td::benchmarks::run_program(
      app, argc, argv,
      [&] { td::distributed::spawn(settings.world, "ddp", std::vector<std::string>(argv + 1, argv + argc)); }, 1);
}
