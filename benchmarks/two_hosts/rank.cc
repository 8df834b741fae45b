// One rank of benchmarks/two_hosts: times collectives and training steps over the link between the hosts. two_hosts.py
// creates the hosts, starts the ranks and sets their rank variables. Rank 0 prints one line of JSON per measurement.
#include <CLI/CLI.hpp>
#include <algorithm>
#include <chrono>
#include <fstream>
#include <iostream>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <vector>

#include <tandem/autograd/leaf.h>
#include <tandem/benchmarks/support/cases.h>
#include <tandem/benchmarks/support/report.h>
#include <tandem/benchmarks/two_hosts/tcp_link.h>
#include <tandem/tandem.h>

namespace td = tandem;

namespace {

using Json = nlohmann::ordered_json;
using Clock = std::chrono::steady_clock;
using td::distributed::ReduceOp;

struct Settings {
  std::string interface;
  int link_port = 0;
  std::string master_addr;
  int local_size = 1;
  std::vector<std::string> collectives;
  std::vector<std::string> dtypes;
  double mib = 25;
  std::vector<std::string> cases;
  int steps = 10;
  int rounds = 3;
  double bucket_mib = 0;
  std::string compress = "none";
  bool use_minimum = false;

  /// The median of the times, or their minimum with --minimum.
  double summary(const std::vector<double>& times) const {
    return use_minimum ? *std::min_element(times.begin(), times.end()) : td::benchmarks::median(times);
  }
};

double ms_since(Clock::time_point start) {
  return std::chrono::duration<double, std::milli>(Clock::now() - start).count();
}

/// Bytes that this host's interface has sent, including headers.
int64_t bytes_sent(const std::string& interface) {
  std::ifstream file(td::str("/sys/class/net/", interface, "/statistics/tx_bytes"));
  int64_t bytes = -1;
  file >> bytes;
  TANDEM_CHECK(IoError, bytes >= 0, "two_hosts: cannot read tx_bytes of the interface '", interface, "'");
  return bytes;
}

void print(const td::distributed::Context& context, const Json& line) {
  if (context.rank() == 0) std::cout << line.dump() << std::endl;
}

double max_over_ranks(double value, td::distributed::ProcessGroup& group) {
  const td::Tensor t = td::from_vector<double>({value}, {1});
  group.all_reduce(t, ReduceOp::kMax);
  return t.item();
}

/// The slowest rank's time of each step: ranks that exchange gradients wait for it.
std::vector<double> slowest_per_step(const std::vector<double>& times, td::distributed::ProcessGroup& group) {
  const td::Tensor t = td::from_vector<double>(times, {static_cast<int64_t>(times.size())});
  group.all_reduce(t, ReduceOp::kMax);
  return {t.data<double>(), t.data<double>() + times.size()};
}

/// A TCP stream between the first ranks of the two hosts; nullopt on other ranks.
std::optional<td::benchmarks::TcpStream> connect_hosts(td::distributed::Context& context, const Settings& settings) {
  td::distributed::ProcessGroup& group = *context.group();
  if (context.rank() == 0) {
    const td::benchmarks::TcpListener listener(settings.link_port);
    group.barrier();
    return listener.accept();
  }
  group.barrier();
  if (context.local_rank() != 0) return std::nullopt;
  return td::benchmarks::connect_to(settings.master_addr, settings.link_port);
}

/// Payload rate of the link in bytes per second: one TCP stream sends in each direction at the same time, and the
/// slower direction counts.
double link_rate(td::distributed::Context& context, const Settings& settings) {
  const auto stream = connect_hosts(context, settings);
  const double rate = stream ? td::benchmarks::measure_receive_rate(*stream) : 1e300;
  return -max_over_ranks(-rate, *context.group());
}

/// Times a collective of `mib` in all. Rank 0 is the root of broadcast, the last rank that of reduce, so that
/// both send from host 0.
void time_collective(td::distributed::Context& context, const Settings& settings, const std::string& kind,
                     td::DType dtype, double rate) {
  td::distributed::ProcessGroup& group = *context.group();
  const int64_t n = group.size();
  const int64_t count = static_cast<int64_t>(settings.mib * 1048576) / td::size_of(dtype) / n;
  const td::Tensor all = td::zeros({n, count}, {dtype});
  const td::Tensor part = td::zeros({count}, {dtype});
  const auto run_once = [&] {
    if (kind == "all_reduce") group.all_reduce(all);
    if (kind == "reduce_scatter") group.reduce_scatter(part, all);
    if (kind == "all_gather") group.all_gather(all, part);
    if (kind == "broadcast") group.broadcast(all, 0);
    if (kind == "reduce") group.reduce(all, group.size() - 1);
  };
  for (int i = 0; i < 2; ++i) run_once();
  group.barrier();  // behind the data: the link has carried it
  constexpr int kCount = 8;
  const int64_t sent_before = bytes_sent(settings.interface);
  const td::benchmarks::Times times = td::benchmarks::time_calls(run_once, 0, kCount);
  group.barrier();
  const double sent = static_cast<double>(bytes_sent(settings.interface) - sent_before) / kCount;
  const double ms = max_over_ranks(settings.use_minimum ? times.min_ms : times.median_ms, group);
  const int64_t own = settings.local_size;
  const int64_t bytes = all.numel() * td::size_of(dtype);
  const int64_t sent_parts = kind == "reduce_scatter" ? n - own : kind == "all_gather" ? own : n;
  const bool has_parts = sent_parts != n;
  const double link_ms = 1e3 * static_cast<double>(bytes / n * (has_parts ? std::max(own, n - own) : n)) / rate;
  print(context, {{"kind", kind},
                  {"dtype", td::str(dtype)},
                  {"bytes", bytes},
                  {"ms", ms},
                  {"link_ms", link_ms},
                  {"ratio", ms / link_ms},
                  {"payload_bytes", bytes / n * sent_parts},
                  {"bytes_on_link", sent}});
}

/// Milliseconds of one step and of its parts.
struct StepTimes {
  double step = 0;
  double first_ready = 0;  ///< from the start of the step until the gradients of the first bucket were ready
  double update = 0;       ///< of the optimizer
};

std::vector<double> values_of(const std::vector<StepTimes>& steps, double StepTimes::*value) {
  std::vector<double> values;
  for (const StepTimes& step : steps) values.push_back(step.*value);
  return values;
}

/// Records the times at which gradients are ready.
class BucketTimer {
 public:
  /// `halved`: gradients are sent in 16 bits.
  BucketTimer(const td::distributed::BucketPlan& plan, const td::distributed::NamedTensors& parameters, bool halved)
      : plan_(plan), halved_(halved), ready_(parameters.size()) {
    for (size_t p = 0; p < parameters.size(); ++p) {
      hooks_.push_back(td::autograd::leaf(parameters[p].second).add_hook([this, p](const td::Tensor&) {
        ready_[p] = Clock::now();
      }));
    }
  }
  ~BucketTimer() {
    for (td::HookHandle& hook : hooks_) hook.remove();
  }
  BucketTimer(const BucketTimer&) = delete;
  BucketTimer& operator=(const BucketTimer&) = delete;

  /// Bytes that a rank sends in a step.
  int64_t num_bytes() const {
    int64_t bytes = 0;
    for (const auto& bucket : plan_.buckets) bytes += bytes_of(bucket);
    return bytes;
  }
  /// Sets first_ready of the step that began at `start`.
  void fill(Clock::time_point start, StepTimes& times) const {
    const auto& bucket = plan_.buckets.front();
    for (int p = bucket.first_parameter; p <= bucket.last_parameter; ++p) {
      const auto after = ready_[static_cast<size_t>(p)] - start;
      times.first_ready = std::max(times.first_ready, std::chrono::duration<double, std::milli>(after).count());
    }
  }

 private:
  int64_t bytes_of(const td::distributed::BucketPlan::Bucket& bucket) const {
    const int64_t size = td::size_of(plan_.buffers[static_cast<size_t>(bucket.buffer)].dtype);
    return (bucket.end - bucket.begin) * (halved_ ? std::min<int64_t>(size, 2) : size);
  }

  const td::distributed::BucketPlan& plan_;
  const bool halved_;
  std::vector<Clock::time_point> ready_;
  std::vector<td::HookHandle> hooks_;
};

StepTimes timed_step(td::benchmarks::TrainingCase& training, const BucketTimer& timer) {
  StepTimes times;
  const auto start = Clock::now();
  training.optimizer->zero_grad();
  const td::Tensor scores = (*training.model)(training.input);
  td::cross_entropy(scores.reshape({-1, scores.size(-1)}), training.target).backward();
  const auto before_update = Clock::now();
  training.optimizer->step();
  times.update = ms_since(before_update);
  times.step = ms_since(start);
  timer.fill(start, times);
  return times;
}

void time_case(td::distributed::Context& context, const Settings& settings, const std::string& name, double rate) {
  td::distributed::ProcessGroup& group = *context.group();
  td::manual_seed(1);
  td::benchmarks::TrainingCase training = td::benchmarks::make_case(name);
  td::distributed::ReducerOptions options;
  options.hooks = td::benchmarks::make_hooks({settings.compress});
  if (settings.bucket_mib > 0) options.buckets.bucket_bytes = static_cast<int64_t>(settings.bucket_mib * 1048576);
  td::distributed::GradientReducer reducer(training.model->named_parameters(), training.model->named_buffers(),
                                           context.group(), options);
  const BucketTimer timer(reducer.plan(), training.model->named_parameters(), settings.compress != "none");
  const int64_t bytes = timer.num_bytes();

  // Steps without communication that run concurrently with plain TCP streams show the CPU time of the transfer alone.
  std::optional<td::benchmarks::BackgroundTraffic> traffic;
  if (context.world_size() == 2) traffic.emplace(*connect_hosts(context, settings));

  std::vector<StepTimes> local, ddp;
  std::vector<double> with_traffic;
  double sent = 0;
  const int per_round = std::max(settings.steps / settings.rounds, 1);
  for (int i = 0; i < 2; ++i) timed_step(training, timer);
  for (int round = 0; round < settings.rounds; ++round) {
    {
      const td::HookHandle no_sync = reducer.no_sync();
      group.barrier();
      for (int i = 0; i < per_round; ++i) local.push_back(timed_step(training, timer));
      group.barrier();
      for (int i = 0; traffic && i < per_round; ++i) {
        const auto start = Clock::now();
        traffic->start(bytes);
        timed_step(training, timer);
        traffic->wait();
        with_traffic.push_back(ms_since(start));
      }
    }
    timed_step(training, timer);
    group.barrier();
    const int64_t before = bytes_sent(settings.interface);
    for (int i = 0; i < per_round; ++i) ddp.push_back(timed_step(training, timer));
    group.barrier();
    sent += static_cast<double>(bytes_sent(settings.interface) - before) / (per_round * settings.rounds);
  }

  const auto slowest = [&](double StepTimes::*value) {
    return max_over_ranks(settings.summary(values_of(local, value)), group);
  };
  const double step_ms = settings.summary(slowest_per_step(values_of(ddp, &StepTimes::step), group));
  const double local_ms = slowest(&StepTimes::step);
  const double first_ms = slowest(&StepTimes::first_ready);
  const double update_ms = slowest(&StepTimes::update);
  const double link_ms = 1e3 * static_cast<double>(bytes) / rate;
  const double model_ms = std::max(local_ms, first_ms + link_ms + update_ms);
  const td::distributed::OverlapReport report = reducer.report();
  print(context,
        {{"kind", "ddp"},
         {"case", name},
         {"compress", settings.compress},
         {"bytes", bytes},
         {"step_ms", step_ms},
         {"local_ms", local_ms},
         {"first_ready_ms", first_ms},
         {"link_ms", link_ms},
         {"update_ms", update_ms},
         {"model_ms", model_ms},
         {"ratio", step_ms / model_ms},
         {"local_with_traffic_ms", traffic ? Json(settings.summary(slowest_per_step(with_traffic, group))) : Json()},
         {"exposed_ms", report.exposed_ms},
         {"comm_ms", report.comm_ms},
         {"payload_bytes", bytes},
         {"bytes_on_link", sent}});
}

void run(td::distributed::Context& context, const Settings& settings) {
  td::set_num_threads(1);
  const double rate = link_rate(context, settings);
  print(context, {{"kind", "link"}, {"mbit_per_s", 8e-6 * rate}});
  for (const std::string& kind : settings.collectives) {
    for (const std::string& dtype : settings.dtypes) {
      time_collective(context, settings, kind, dtype == "float32" ? td::kFloat32 : td::kBFloat16, rate);
    }
  }
  for (const std::string& name : settings.cases) time_case(context, settings, name, rate);
}

}  // namespace

int main(int argc, char** argv) {
  CLI::App app("One rank of benchmarks/two_hosts");
  Settings settings;
  app.add_option("--interface", settings.interface, "this host's interface of the link")->required();
  app.add_option("--link-port", settings.link_port, "free TCP port for the plain streams")->required();
  app.add_option("--local-size", settings.local_size, "ranks on this host")->envname("LOCAL_WORLD_SIZE");
  app.add_option("--collectives", settings.collectives, "timed collectives, separated by commas")
      ->delimiter(',')
      ->check(CLI::IsMember({"all_reduce", "reduce_scatter", "all_gather", "broadcast", "reduce"}));
  app.add_option("--dtypes", settings.dtypes, "dtypes of the collectives, separated by commas")
      ->delimiter(',')
      ->check(CLI::IsMember({"float32", "bfloat16"}));
  app.add_option("--mib", settings.mib, "size of the tensor that the collectives reduce, gather or broadcast");
  app.add_option("--case", settings.cases, "training cases, separated by commas")
      ->delimiter(',')
      ->check(CLI::IsMember(td::benchmarks::case_names()));
  app.add_option("--steps", settings.steps, "timed steps of each kind")->check(CLI::Range(1, 100000));
  app.add_option("--rounds", settings.rounds, "rounds; the kinds of steps alternate in each")
      ->check(CLI::Range(1, 1000));
  app.add_option("--bucket-mib", settings.bucket_mib, "size of the buckets");
  app.add_option("--compress", settings.compress, "communication hook")->check(CLI::IsMember({"none", "fp16", "bf16"}));
  app.add_flag("--minimum", settings.use_minimum, "report the minimum of the times instead of the median");
  app.add_option("--master-addr", settings.master_addr, "address of the first host")->envname("MASTER_ADDR");
  CLI11_PARSE(app, argc, argv);
  return td::distributed::launch(argc, argv, [&](td::distributed::Context& context) { run(context, settings); });
}
