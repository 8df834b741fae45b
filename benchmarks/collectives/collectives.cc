// Times every collective on every backend; optionally starts OpenMPI's and PyTorch's benchmarks for comparison.
//
//     ./bazelw run //benchmarks:collectives -- --world 2 --op all_reduce --min 4K --max 64M --factor 4
//     ./bazelw run //benchmarks:collectives -- --world 4 --backend shm,gloo --peer-mpi --python python3 --json out.json
//     ./bazelw run --config=cuda //benchmarks:collectives -- --world 8 --backend nccl --op all --min 1K --max 1G
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iostream>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include <tandem/benchmarks/collectives/case.h>
#include <tandem/benchmarks/collectives/peers.h>
#include <tandem/benchmarks/collectives/table.h>
#include <tandem/benchmarks/support/peak.h>
#include <tandem/benchmarks/support/program.h>
#include <tandem/benchmarks/support/report.h>
#include <tandem/tandem.h>

namespace {

namespace td = tandem;
using namespace td::benchmarks;
using td::distributed::Context;
using td::distributed::ProcessGroup;
using Clock = std::chrono::steady_clock;

struct Settings {
  std::vector<std::string> ops{"all_reduce"};
  std::vector<std::string> backends{"shm"};
  std::vector<std::string> dtypes{"float32"};
  uint64_t min = 4;
  uint64_t max = 256 << 20;
  int factor = 4;
  std::vector<uint64_t> sizes;
  int world = 2;
  int rounds = 3;
  uint64_t step_bytes = 64 << 20;
  bool peer_mpi = false;
  std::string python;
  std::string json;
};

void declare(CLI::App& app, Settings& s) {
  std::vector<std::string> ops;
  for (const OpInfo& op : all_ops()) ops.push_back(op.name);
  app.option_defaults()->always_capture_default();
  app.add_option("--op", s.ops, "operations, separated by commas; all: every operation")
      ->delimiter(',')
      ->check([ops](const std::string& name) {
        return name == "all" ? std::string() : CLI::IsMember(ops)(const_cast<std::string&>(name));
      });
  app.add_option("--world", s.world, "number of ranks")->check(CLI::Range(1, 36));
  app.add_option("--backend", s.backends,
                 "shm, gloo, nccl, mpi: ranks are processes, of mpirun for mpi; threads, nccl_threads: threads; "
                 "nccl and nccl_threads use one GPU per rank")
      ->delimiter(',')
      ->check(CLI::IsMember({"shm", "threads", "gloo", "mpi", "nccl", "nccl_threads"}));
  app.add_option("--dtype", s.dtypes)->delimiter(',')->check(CLI::IsMember({"float32", "bfloat16"}));
  app.add_option("--min", s.min, "smallest size in bytes; K is 1024, M is 1024 K")->transform(CLI::AsSizeValue(false));
  app.add_option("--max", s.max, "largest size in bytes")->transform(CLI::AsSizeValue(false));
  app.add_option("--factor", s.factor, "ratio of two successive sizes")->check(CLI::Range(2, 1 << 20));
  app.add_option("--sizes", s.sizes, "list of sizes instead of --min, --max and --factor: 4K,1M,25M")
      ->delimiter(',')
      ->transform(CLI::AsSizeValue(false));
  app.add_option("--rounds", s.rounds, "runs of tandem and the peers, alternating; the median is reported")
      ->check(CLI::Range(1, 1000));
  app.add_option("--step-bytes", s.step_bytes,
                 "timed calls per size: this divided by the size, at least 5, at most 500")
      ->transform(CLI::AsSizeValue(false));
  app.add_flag("--peer-mpi", s.peer_mpi, "also time OpenMPI (needs mpicc and mpirun)");
  app.add_option("--python", s.python, "also time PyTorch's gloo with this Python interpreter");
  app.add_option("--json", s.json, "append the rows to this file");
}

td::DType dtype_named(const std::string& name) { return name == "bfloat16" ? td::kBFloat16 : td::kFloat32; }

/// A barrier has no size: 1 gives it the maximum number of calls, in the peers' programs too.
std::vector<int64_t> sizes(const Settings& s, const std::string& op) {
  if (op == "barrier") return {1};
  std::vector<int64_t> all(s.sizes.begin(), s.sizes.end());
  if (!all.empty()) return all;
  for (uint64_t size = s.min; size <= s.max; size *= static_cast<uint64_t>(s.factor)) {
    all.push_back(static_cast<int64_t>(size));
  }
  return all;
}

bool uses_threads(const std::string& backend) { return backend == "threads" || backend == "nccl_threads"; }

/// Mean microseconds of a call when `steps` calls are enqueued without waiting in between, as in nccl-tests.
double mean_on_gpu(const CollectiveCase& c, int64_t steps, td::Device device) {
  td::cuda::synchronize(device);
  const auto begin = Clock::now();
  for (int64_t i = 0; i < steps; ++i) c.call();
  td::cuda::synchronize(device);
  return std::chrono::duration<double, std::micro>(Clock::now() - begin).count() / static_cast<double>(steps);
}

Row measure(ProcessGroup& group, const CollectiveCase& c, const OpInfo& op, const Settings& s, td::Device device) {
  Row row;
  row.bytes = c.num_bytes();
  row.count = c.numel();
  const auto calls = static_cast<int64_t>(s.step_bytes) / std::max<int64_t>(row.bytes, 1);
  const int64_t steps = std::clamp<int64_t>(calls, 5, 500);
  const double wrong = static_cast<double>(op.name == "barrier" ? 0 : c.count_wrong());
  for (int64_t i = 0; i < steps / 4 + 1; ++i) c.call();
  group.barrier();
  std::vector<double> times;
  double mean = 0;
  for (int64_t i = 0; i < steps; ++i) {
    const auto begin = Clock::now();
    c.call();
    if (!device.is_cpu()) td::cuda::synchronize(device);
    times.push_back(std::chrono::duration<double, std::micro>(Clock::now() - begin).count());
    mean += times.back() / static_cast<double>(steps);
  }
  if (!device.is_cpu()) mean = mean_on_gpu(c, steps, device);
  const double per_message = op.name == "sendrecv" ? 0.5 : 1;  // a call sends two messages, one after the other
  std::sort(times.begin(), times.end());
  row.p50_us = times[static_cast<size_t>(steps / 2)] * per_message;
  row.p99_us = times[static_cast<size_t>((steps - 1) * 99 / 100)] * per_message;
  const td::Tensor slowest = td::from_vector<double>({mean}, {1});
  group.all_reduce(slowest, td::distributed::ReduceOp::kMax);
  row.us = slowest.item() * per_message;
  const td::Tensor all_wrong = td::from_vector<double>({wrong}, {1});
  group.all_reduce(all_wrong);
  row.wrong = static_cast<int64_t>(all_wrong.item());
  return row;
}

/// Times one operation, dtype and backend. Rank 0 writes lines "size in_place bytes count us p50 p99 wrong" to `path`.
void run_rank(Context& context, const Settings& s, const std::string& path) {
  td::set_num_threads(1);
  const std::string& backend = s.backends[0];
  std::shared_ptr<ProcessGroup> group = context.group();
  if ((backend == "gloo" || backend == "mpi") && context.world_size() > 1) {
    group = ProcessGroup::create({.store = context.store(),
                                  .rank = context.rank(),
                                  .world_size = context.world_size(),
                                  .name = "benchmark",
                                  .backend = backend});
  }
  const bool on_gpu = backend.starts_with("nccl");
  const td::Device device = on_gpu ? td::Device::cuda(context.rank()) : td::Device();
  if (on_gpu) group->all_reduce(td::full({1}, 0, {td::kFloat32, device}));  // NCCL connects at the first call
  std::ofstream file;
  if (context.rank() == 0) file.open(path);
  const OpInfo& op = op_info(s.ops[0]);
  for (const int64_t size : sizes(s, op.name)) {
    for (const bool in_place : {false, true}) {
      if (in_place ? !op.in_place : !op.out_of_place) continue;
      const CollectiveCase c(*group, op, dtype_named(s.dtypes[0]), size, in_place, device);
      const Row row = measure(*group, c, op, s, device);
      file << size << " " << in_place << " " << row.bytes << " " << row.count << " " << row.us << " " << row.p50_us
           << " " << row.p99_us << " " << row.wrong << "\n";
    }
  }
}

void run_arguments(Context& context, const std::vector<std::string>& args) {
  CLI::App app;
  Settings settings;
  declare(app, settings);
  const std::string path = args.front();
  app.parse(std::vector<std::string>(args.rbegin(), args.rend() - 1));  // CLI11 expects the arguments in reverse order
  if (uses_threads(settings.backends[0])) {
    td::distributed::run_threads(settings.world,
                                 [&](Context& thread_context) { run_rank(thread_context, settings, path); });
  } else {
    run_rank(context, settings, path);
  }
}

TANDEM_RANK_MAIN(collectives) { run_arguments(context, args); }

class TemporaryFolder {
 public:
  TemporaryFolder() {
    std::string name = (std::filesystem::temp_directory_path() / "collectives.XXXXXX").string();
    TANDEM_CHECK(IoError, mkdtemp(name.data()) != nullptr, "cannot create the folder '", name, "'");
    path_ = name;
  }
  ~TemporaryFolder() {
    std::error_code ignored;
    std::filesystem::remove_all(path_, ignored);
  }
  TemporaryFolder(const TemporaryFolder&) = delete;
  TemporaryFolder& operator=(const TemporaryFolder&) = delete;
  const std::string& path() const { return path_; }

 private:
  std::string path_;
};

std::vector<Row> run_tandem(const Settings& s, const std::string& op, const std::string& dtype,
                            const std::string& backend, const std::string& path) {
  std::string list;
  for (const int64_t size : sizes(s, op)) list += td::str(list.empty() ? "" : ",", size);
  const std::vector<std::string> args = {path,
                                         "--op",
                                         op,
                                         "--dtype",
                                         dtype,
                                         "--backend",
                                         backend,
                                         "--sizes",
                                         list,
                                         "--step-bytes",
                                         td::str(s.step_bytes),
                                         "--world",
                                         td::str(s.world)};
  // Thread ranks run in one child process, whose memory is freed when it ends.
  if (backend == "mpi") {
    run_by_mpirun(s.world, args);
  } else {
    td::distributed::spawn(uses_threads(backend) ? 1 : s.world, "collectives", args);
  }
  std::vector<Row> rows;
  std::ifstream file(path);
  Row row;
  while (file >> row.size >> row.in_place >> row.bytes >> row.count >> row.us >> row.p50_us >> row.p99_us >>
         row.wrong) {
    rows.push_back(row);
  }
  return rows;
}

/// Times of several rounds, by (size, in place).
using TimesBySize = std::map<std::pair<int64_t, bool>, std::vector<double>>;

double median_of(const TimesBySize& series, const Row& row) {
  const auto found = series.find({row.size, row.in_place});
  return found == series.end() ? -1 : median(found->second);
}

void run_table(const Settings& s, const std::string& name, const std::string& dtype, const std::string& backend,
               const TemporaryFolder& folder, const std::string& mpi_program, std::ofstream& json) {
  const OpInfo& op = op_info(name);
  std::vector<Row> rows;
  TimesBySize tandem_us, p50, p99, mpi, torch;
  const PeerCase peer{name, dtype, s.world, static_cast<int64_t>(s.step_bytes), sizes(s, name)};
  for (int round = 0; round < s.rounds; ++round) {
    const std::vector<Row> now = run_tandem(s, name, dtype, backend, folder.path() + "/rows");
    if (round == 0) rows = now;
    for (size_t i = 0; i < now.size(); ++i) {
      const Row& row = now[i];
      tandem_us[{row.size, row.in_place}].push_back(row.us);
      p50[{row.size, row.in_place}].push_back(row.p50_us);
      p99[{row.size, row.in_place}].push_back(row.p99_us);
      rows[i].wrong = std::max(rows[i].wrong, row.wrong);
    }
    if (s.peer_mpi) {
      for (const PeerRow& row : run_mpi(mpi_program, peer)) mpi[{row.size, row.in_place}].push_back(row.us);
    }
    if (!s.python.empty()) {
      for (const PeerRow& row : run_torch(s.python, peer)) torch[{row.size, row.in_place}].push_back(row.us);
    }
  }
  const TableInfo info{.op = name,
                       .backend = backend,
                       .dtype = dtype,
                       .redop = op.reduces ? "sum" : "none",
                       .world = s.world,
                       .bus_factor = bus_factor(op, s.world),
                       .has_root = op.has_root,
                       .shows_mpi = s.peer_mpi,
                       .shows_torch = !s.python.empty()};
  for (Row& row : rows) {
    row.us = median_of(tandem_us, row);
    row.p50_us = median_of(p50, row);
    row.p99_us = median_of(p99, row);
    row.mpi_us = median_of(mpi, row);
    row.torch_us = median_of(torch, row);
    if (!json.is_open()) continue;
    Json line = to_json(info, row);
    line["cpu"] = cpu_model();
    json << line.dump() << std::endl;
  }
  std::cout << to_table(info, rows) << std::endl;
}

void run_all(Settings s) {
  if (std::find(s.ops.begin(), s.ops.end(), "all") != s.ops.end()) {
    s.ops.clear();
    for (const OpInfo& op : all_ops()) s.ops.push_back(op.name);
  }
  TANDEM_CHECK(ValueError, s.min >= 1 && s.min <= s.max, "--min ", s.min, " and --max ", s.max,
               ": expected 1 <= min <= max");
  const TemporaryFolder folder;
  const std::string mpi_program = s.peer_mpi ? compile_mpi_peer(folder.path()) : "";
  std::ofstream json;
  if (!s.json.empty()) {
    const std::string path = user_path(s.json);
    json.open(path, std::ios::app);
    TANDEM_CHECK(IoError, json.good(), "--json: cannot write '", path, "'");
  }
  for (const std::string& op : s.ops) {
    if (op == "sendrecv" && s.world < 2) continue;
    for (const std::string& dtype : s.dtypes) {
      for (const std::string& backend : s.backends) run_table(s, op, dtype, backend, folder, mpi_program, json);
    }
  }
}

}  // namespace

int main(int argc, char** argv) {
  if (const auto status = td::distributed::rank_main_entry(argc, argv)) return *status;
  if (getenv("OMPI_COMM_WORLD_RANK") != nullptr) {
    const std::vector<std::string> args(argv + 1, argv + argc);
    return td::distributed::launch(argc, argv, [&](Context& context) { run_arguments(context, args); });
  }
  CLI::App app("Times collectives out of place and in place, with the columns of nccl-tests");
  Settings settings;
  declare(app, settings);
  return td::benchmarks::run_program(
      app, argc, argv, [&] { run_all(settings); }, 1);
}
