// Times collectives among ranks of one host: the program starts the ranks itself.
//
//     ./bazelw run //benchmarks:collectives -- --world 2 --bytes 4096,1048576 --memory heap,arena --json out.json
#include <algorithm>
#include <chrono>
#include <iostream>
#include <memory>
#include <string>
#include <vector>

#include <CLI/CLI.hpp>

#include <tandem/benchmarks/support/report.h>
#include <tandem/tandem.h>
#include <tandem/tensor/chores.h>

namespace {

namespace td = tandem;
using td::distributed::Context;
using td::distributed::ProcessGroup;
using Clock = std::chrono::steady_clock;

struct Settings {
  std::vector<std::string> ops{"all_reduce"};
  std::vector<std::string> memories{"heap", "arena"};
  std::vector<int64_t> sizes{4096, 65536, 1 << 20, 4 << 20, 25 << 20};
  std::string backend = "shm";
  std::string dtype = "float32";
  std::string json;
  int world = 2;
  int repeats = 5;
  int steps = 0;
};

void declare(CLI::App& app, Settings& s) {
  app.add_option("--op", s.ops, "all_reduce, broadcast, all_gather, barrier")
      ->delimiter(',')
      ->check(CLI::IsMember({"all_reduce", "broadcast", "all_gather", "barrier"}));
  app.add_option("--world", s.world, "number of ranks")->check(CLI::Range(1, 64));
  app.add_option("--backend", s.backend, "shm: ranks are processes; threads: ranks are threads")
      ->check(CLI::IsMember({"shm", "threads"}));
  app.add_option("--memory", s.memories, "heap, arena (of the group)")
      ->delimiter(',')
      ->check(CLI::IsMember({"heap", "arena"}));
  app.add_option("--dtype", s.dtype)->check(CLI::IsMember({"float32", "float64", "float16", "bfloat16", "int32"}));
  app.add_option("--bytes", s.sizes, "size of each rank's input")->delimiter(',')->check(CLI::NonNegativeNumber);
  app.add_option("--repeats", s.repeats, "the median of so many series is shown")->check(CLI::Range(1, 1000000));
  app.add_option("--steps", s.steps, "calls in a series; 0 = by size")->check(CLI::NonNegativeNumber);
  app.add_option("--json", s.json, "append the lines to this file too");
}

td::DType dtype_named(const std::string& name) {
  for (const td::DType dtype : {td::kFloat64, td::kFloat16, td::kBFloat16, td::kInt32}) {
    if (name == td::to_string(dtype)) return dtype;
  }
  return td::kFloat32;
}

/// One collective on memory of one kind and size.
class Case {
 public:
  Case(ProcessGroup& group, std::string op, const std::string& memory, int64_t num_bytes, td::DType dtype)
      : group_(group), op_(std::move(op)) {
    const td::Shape shape{num_bytes / td::size_of(dtype)};
    input_ = memory == "arena" ? td::make_view(group.allocate(num_bytes), dtype, shape, td::row_major_strides(shape), 0)
                               : td::empty(shape, {dtype});
    output_ = op_ == "all_gather" ? td::empty({group.size(), shape[0]}, {dtype}) : input_;
  }

  void call() const {
    if (op_ == "all_reduce") group_.all_reduce(input_);
    if (op_ == "broadcast") group_.broadcast(input_, group_.size() - 1);
    if (op_ == "all_gather") group_.all_gather(output_, input_);
    if (op_ == "barrier") group_.barrier();
  }

  /// Elements that a call leaves with another value than they should have.
  int64_t count_wrong() const {
    td::chores::fill(input_, group_.rank() + 1);
    call();
    if (op_ == "barrier") return 0;
    const double sum = group_.size() * (group_.size() + 1) / 2.0;
    const std::vector<double> got = output_.to_vector<double>();
    const size_t row = static_cast<size_t>(input_.num_elements());
    int64_t wrong = 0;
    for (size_t i = 0; i < got.size(); ++i) {
      const double gathered = static_cast<double>(i / row + 1);
      wrong += got[i] != (op_ == "all_reduce" ? sum : op_ == "broadcast" ? group_.size() : gathered);
    }
    td::chores::fill(input_, 0);  // sums that stay finite, however often
    return wrong;
  }

 private:
  ProcessGroup& group_;
  std::string op_;
  td::Tensor input_;
  td::Tensor output_;
};

double median_us(ProcessGroup& group, const Case& c, int steps, int repeats) {
  for (int i = 0; i < steps / 4 + 2; ++i) c.call();
  std::vector<double> series;
  for (int repeat = 0; repeat < repeats; ++repeat) {
    group.barrier();
    const auto begin = Clock::now();
    for (int i = 0; i < steps; ++i) c.call();
    series.push_back(std::chrono::duration<double, std::micro>(Clock::now() - begin).count() / steps);
  }
  std::sort(series.begin(), series.end());
  return series[series.size() / 2];
}

void run_rank(Context& context, const Settings& s) {
  ProcessGroup& group = *context.group();
  std::unique_ptr<td::benchmarks::Report> report;
  if (group.rank() == 0) report = std::make_unique<td::benchmarks::Report>(s.json);
  group.barrier();  // the peak is measured while the others wait
  for (const std::string& op : s.ops) {
    for (const std::string& memory : s.memories) {
      for (const int64_t num_bytes : s.sizes) {
        const Case c(group, op, memory, num_bytes, dtype_named(s.dtype));
        const int64_t wrong = c.count_wrong();
        const int steps = s.steps > 0 ? s.steps : num_bytes < (1 << 20) ? 2000 : 20;
        const double us = median_us(group, c, steps, s.repeats);
        if (report == nullptr) continue;
        report->line({{"op", op},
                      {"backend", s.backend},
                      {"memory", memory},
                      {"world", s.world},
                      {"dtype", s.dtype},
                      {"bytes", num_bytes},
                      {"us", us},
                      {"algbw_gbs", static_cast<double>(num_bytes) / us * 1e-3},
                      {"wrong", wrong}});
      }
    }
  }
}

TANDEM_RANK_MAIN(collectives) {
  CLI::App app;
  Settings settings;
  declare(app, settings);
  std::vector<std::string> reversed(args.rbegin(), args.rend());  // as CLI11 wants them
  app.parse(reversed);
  run_rank(context, settings);
}

}  // namespace

int main(int argc, char** argv) {
  if (const auto status = td::distributed::rank_main_entry(argc, argv)) return *status;
  CLI::App app("Times collectives among ranks of one host");
  Settings settings;
  declare(app, settings);
  try {
    app.parse(argc, argv);
    if (settings.backend == "threads") {
      td::distributed::run_threads(settings.world, [&](Context& context) { run_rank(context, settings); });
    } else {
      td::distributed::spawn(settings.world, "collectives", std::vector<std::string>(argv + 1, argv + argc));
    }
  } catch (const CLI::ParseError& error) {
    return app.exit(error, std::cout, std::cerr) == 0 ? 0 : 2;
  } catch (const td::Error& error) {
    std::cerr << error.what() << "\n";
    return 1;
  }
}
