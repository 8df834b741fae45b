// One rank of benchmarks/two_hosts: times what goes over the link between the hosts.  Started by two_hosts.py, which makes
// hosts and link and gives the rank variables.
//
// Rank 0 prints one line of JSON for each measurement.
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
#include <tandem/benchmarks/two_hosts/plain_link.h>
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
  std::vector<std::string> all_reduce;
  double all_reduce_mib = 25;
  std::vector<std::string> cases;
  int steps = 10;
  int rounds = 3;
  double bucket_mib = 0;
  std::string compress = "none";
  bool least = false;

  /// What stands for many times.
  double typical(const std::vector<double>& times) const {
    return least ? *std::min_element(times.begin(), times.end()) : td::benchmarks::median(times);
  }
};

double ms_since(Clock::time_point start) {
  return std::chrono::duration<double, std::milli>(Clock::now() - start).count();
}

/// Bytes that this host's interface has sent, headers included.
int64_t bytes_sent(const std::string& interface) {
  std::ifstream file(td::str("/sys/class/net/", interface, "/statistics/tx_bytes"));
  int64_t bytes = -1;
  file >> bytes;
  TANDEM_CHECK(IoError, bytes >= 0, "two_hosts: cannot read how much '", interface, "' has sent");
  return bytes;
}

void print(const td::distributed::Context& context, const Json& line) {
  if (context.rank() == 0) std::cout << line.dump() << std::endl;
}

double largest(double value, td::distributed::ProcessGroup& group) {
  const td::Tensor t = td::from_vector<double>({value}, {1});
  group.all_reduce(t, ReduceOp::kMax);
  return t.item();
}

/// Of each step the slowest rank's time: ranks that exchange gradients wait for it.
std::vector<double> slowest_of_each(const std::vector<double>& times, td::distributed::ProcessGroup& group) {
  const td::Tensor t = td::from_vector<double>(times, {static_cast<int64_t>(times.size())});
  group.all_reduce(t, ReduceOp::kMax);
  return {t.data<double>(), t.data<double>() + times.size()};
}

/// A plain stream between the first ranks of the two hosts; none elsewhere.
std::optional<td::benchmarks::Stream> plain_stream(td::distributed::Context& context, const Settings& settings) {
  td::distributed::ProcessGroup& group = *context.group();
  if (context.rank() == 0) {
    const td::benchmarks::Listener listener(settings.link_port);
    group.barrier();
    return listener.accept();
  }
  group.barrier();
  if (context.rank() != context.world_size() / 2) return std::nullopt;
  return td::benchmarks::connect_to(settings.master_addr, settings.link_port);
}

/// The least payload rate of the two directions, in bytes per second, with both busy: of one plain TCP stream each.
double link_rate(td::distributed::Context& context, const Settings& settings) {
  const auto stream = plain_stream(context, settings);
  const double rate = stream ? td::benchmarks::exchange_plainly(*stream) : 1e300;
  return -largest(-rate, *context.group());
}

void time_all_reduce(td::distributed::Context& context, const Settings& settings, td::DType dtype, double rate) {
  td::distributed::ProcessGroup& group = *context.group();
  const auto bytes = static_cast<int64_t>(settings.all_reduce_mib * 1048576);
  const td::Tensor x = td::zeros({bytes / td::size_of(dtype)}, {dtype});
  for (int i = 0; i < 2; ++i) group.all_reduce(x);
  constexpr int kCount = 8;
  std::vector<double> times;
  const int64_t sent_before = bytes_sent(settings.interface);
  for (int i = 0; i < kCount; ++i) {
    const auto start = Clock::now();
    group.all_reduce(x);
    times.push_back(ms_since(start));
  }
  const double sent = static_cast<double>(bytes_sent(settings.interface) - sent_before) / kCount;
  const double ms = largest(settings.typical(times), group);
  const double link_ms = 1e3 * static_cast<double>(bytes) / rate;
  print(context, {{"what", "all_reduce"},
                  {"dtype", td::str(dtype)},
                  {"bytes", bytes},
                  {"ms", ms},
                  {"link_ms", link_ms},
                  {"ratio", ms / link_ms},
                  {"payload_bytes", bytes},
                  {"bytes_on_link", sent}});
}

/// Milliseconds of parts of one step.
struct StepTimes {
  double step = 0;
  double first_ready = 0;  ///< until the first bucket's gradients were there
  double exchanged = 0;    ///< until a link without pauses has carried each bucket after it was there
  double update = 0;
};

struct Timed {
  std::vector<double> step, first_ready, exchanged, update;
  void add(const StepTimes& t) {
    step.push_back(t.step);
    first_ready.push_back(t.first_ready);
    exchanged.push_back(t.exchanged);
    update.push_back(t.update);
  }
};

/// Notes when the gradients of each bucket are there.
class Readiness {
 public:
  /// `rate`: of the link, in bytes per second.  `halved`: gradients travel in 16 bits.
  Readiness(const td::distributed::BucketPlan& plan, const td::distributed::NamedTensors& parameters, double rate,
            bool halved)
      : plan_(plan), rate_(rate), halved_(halved), ready_(parameters.size()) {
    for (size_t p = 0; p < parameters.size(); ++p) {
      hooks_.push_back(td::autograd::leaf(parameters[p].second).add_hook([this, p](const td::Tensor&) {
        ready_[p] = Clock::now();
      }));
    }
  }
  ~Readiness() {
    for (td::HookHandle& hook : hooks_) hook.remove();
  }
  Readiness(const Readiness&) = delete;
  Readiness& operator=(const Readiness&) = delete;

  /// That a rank sends in a step.
  int64_t num_bytes() const {
    int64_t bytes = 0;
    for (const auto& bucket : plan_.buckets) bytes += bytes_of(bucket);
    return bytes;
  }
  /// Of the step that began at `start`.
  void fill(Clock::time_point start, StepTimes& times) const {
    double free = 0;  // when the link is
    for (const auto& bucket : plan_.buckets) {
      double there = 0;
      for (int p = bucket.first_parameter; p <= bucket.last_parameter; ++p) {
        const auto after = ready_[static_cast<size_t>(p)] - start;
        there = std::max(there, std::chrono::duration<double, std::milli>(after).count());
      }
      if (&bucket == &plan_.buckets.front()) times.first_ready = there;
      free = std::max(free, there) + 1e3 * static_cast<double>(bytes_of(bucket)) / rate_;
    }
    times.exchanged = free;
  }

 private:
  int64_t bytes_of(const td::distributed::BucketPlan::Bucket& bucket) const {
    const int64_t size = td::size_of(plan_.buffers[static_cast<size_t>(bucket.buffer)].dtype);
    return (bucket.end - bucket.begin) * (halved_ ? std::min<int64_t>(size, 2) : size);
  }

  const td::distributed::BucketPlan& plan_;
  const double rate_;
  const bool halved_;
  std::vector<Clock::time_point> ready_;
  std::vector<td::HookHandle> hooks_;
};

StepTimes timed_step(td::benchmarks::TrainingCase& training, const Readiness& readiness) {
  StepTimes times;
  const auto start = Clock::now();
  training.optimizer->zero_grad();
  const td::Tensor scores = (*training.model)(training.input);
  td::cross_entropy(scores.reshape({-1, scores.size(-1)}), training.target).backward();
  const auto before_update = Clock::now();
  training.optimizer->step();
  times.update = ms_since(before_update);
  times.step = ms_since(start);
  readiness.fill(start, times);
  return times;
}

void time_case(td::distributed::Context& context, const Settings& settings, const std::string& name, double rate) {
  td::distributed::ProcessGroup& group = *context.group();
  td::manual_seed(1);
  td::benchmarks::TrainingCase training = td::benchmarks::make_case(name);
  td::distributed::ReducerOptions options;
  options.hooks = td::benchmarks::hooks_named({settings.compress});
  if (settings.bucket_mib > 0) options.buckets.bucket_bytes = static_cast<int64_t>(settings.bucket_mib * 1048576);
  td::distributed::GradientReducer reducer(training.model->named_parameters(), training.model->named_buffers(),
                                           context.group(), options);
  const Readiness readiness(reducer.plan(), training.model->named_parameters(), rate, settings.compress != "none");
  const int64_t bytes = readiness.num_bytes();

  // What the streams alone take of the cores: beside them the same step without communication.
  std::optional<td::benchmarks::PlainTraffic> traffic;
  if (context.world_size() == 2) traffic.emplace(*plain_stream(context, settings));

  Timed local, ddp;
  std::vector<double> beside;
  double sent = 0;
  const int per_round = std::max(settings.steps / settings.rounds, 1);
  for (int i = 0; i < 2; ++i) timed_step(training, readiness);
  for (int round = 0; round < settings.rounds; ++round) {
    {
      const td::HookHandle alone = reducer.no_sync();
      group.barrier();
      for (int i = 0; i < per_round; ++i) local.add(timed_step(training, readiness));
      group.barrier();
      for (int i = 0; traffic && i < per_round; ++i) {
        const auto start = Clock::now();
        traffic->start(bytes);
        timed_step(training, readiness);
        traffic->wait();
        beside.push_back(ms_since(start));
      }
    }
    timed_step(training, readiness);
    group.barrier();
    const int64_t before = bytes_sent(settings.interface);
    for (int i = 0; i < per_round; ++i) ddp.add(timed_step(training, readiness));
    group.barrier();
    sent += static_cast<double>(bytes_sent(settings.interface) - before) / (per_round * settings.rounds);
  }

  const auto slowest = [&](const std::vector<double>& times) { return largest(settings.typical(times), group); };
  const double step_ms = settings.typical(slowest_of_each(ddp.step, group));
  const double local_ms = slowest(local.step);
  const double first_ms = slowest(local.first_ready);
  const double update_ms = slowest(local.update);
  const double link_ms = 1e3 * static_cast<double>(bytes) / rate;
  const double model_ms = std::max(local_ms, first_ms + link_ms + update_ms);
  // The same where no bucket travels before it is there.
  const double buckets_ms = std::max(local_ms, slowest(local.exchanged) + update_ms);
  const td::distributed::OverlapReport report = reducer.report();
  print(context, {{"what", "ddp"},
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
                  {"buckets_ms", buckets_ms},
                  {"buckets_ratio", step_ms / buckets_ms},
                  {"during_plain_ms", traffic ? Json(settings.typical(slowest_of_each(beside, group))) : Json()},
                  {"exposed_ms", report.exposed_ms},
                  {"comm_ms", report.comm_ms},
                  {"payload_bytes", bytes},
                  {"bytes_on_link", sent}});
}

void run(td::distributed::Context& context, const Settings& settings) {
  td::set_num_threads(1);
  const double rate = link_rate(context, settings);
  print(context, {{"what", "link"}, {"mbit_per_s", 8e-6 * rate}});
  for (const std::string& dtype : settings.all_reduce) {
    time_all_reduce(context, settings, dtype == "float32" ? td::kFloat32 : td::kBFloat16, rate);
  }
  for (const std::string& name : settings.cases) time_case(context, settings, name, rate);
}

}  // namespace

int main(int argc, char** argv) {
  CLI::App app("One rank of benchmarks/two_hosts");
  Settings settings;
  app.add_option("--interface", settings.interface, "of the link, on this host")->required();
  app.add_option("--link-port", settings.link_port, "free for a plain stream")->required();
  app.add_option("--all-reduce", settings.all_reduce, "dtypes")
      ->delimiter(',')
      ->check(CLI::IsMember({"float32", "bfloat16"}));
  app.add_option("--all-reduce-mib", settings.all_reduce_mib, "size of its tensor");
  app.add_option("--case", settings.cases, "training steps")
      ->delimiter(',')
      ->check(CLI::IsMember(td::benchmarks::case_names()));
  app.add_option("--steps", settings.steps, "timed steps of each kind")->check(CLI::Range(1, 100000));
  app.add_option("--rounds", settings.rounds, "in which they alternate")->check(CLI::Range(1, 1000));
  app.add_option("--bucket-mib", settings.bucket_mib, "size of the buckets");
  app.add_option("--compress", settings.compress, "the gradients")->check(CLI::IsMember({"none", "fp16", "bf16"}));
  app.add_flag("--least", settings.least, "the least of many times counts, not the median");
  app.add_option("--master-addr", settings.master_addr, "of the first host")->envname("MASTER_ADDR");
  CLI11_PARSE(app, argc, argv);
  return td::distributed::launch(argc, argv, [&](td::distributed::Context& context) { run(context, settings); });
}
