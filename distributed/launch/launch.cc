#include <tandem/distributed/launch.h>

#include <algorithm>
#include <cstdio>
#include <iterator>
#include <string_view>

#include <tandem/base/env.h>
#include <tandem/base/error.h>
#include <tandem/base/file.h>
#include <tandem/base/rank_context.h>
#include <tandem/distributed/launch/flight_records.h>
#include <tandem/distributed/launch/launch_flags.h>
#include <tandem/distributed/launch/rank_environment.h>
#include <tandem/distributed/launch/rank_function.h>
#include <tandem/distributed/launch/rank_processes.h>
#include <tandem/tensor/cuda.h>

namespace tandem { inline namespace v0 { namespace distributed {

namespace {

constexpr const char* kStartHere = "\n  remove the flags, or unset these variables to start ranks from here";

std::chrono::milliseconds choose_timeout(const LaunchFlags& flags) {
  if (flags.timeout) return *flags.timeout;
  if (const auto text = env_string("TANDEM_TIMEOUT_S")) return parse_seconds("TANDEM_TIMEOUT_S", *text);
  return kDefaultTimeout;
}

int start_ranks(const LaunchFlags& flags, int argc, char** argv) {
  JobOptions options;
  options.num_ranks = flags.num_ranks.value_or(1);
  options.arguments.assign(argv, argv + argc);
  options.max_restarts = flags.max_restarts;
  options.log_dir = flags.log_dir;
  set_record_dir(&options);
  if (!flags.log_dir.empty()) {
    options.stdout_target = options.stderr_target = flags.tee ? OutputTarget::kShowAndLog : OutputTarget::kLog;
  }
  if (!flags.device.empty()) options.variables.emplace_back("TANDEM_DEVICE", flags.device);
  if (flags.timeout) {
    options.variables.emplace_back("TANDEM_TIMEOUT_S", str(static_cast<double>(flags.timeout->count()) / 1000.0));
  }
  warn_if_oversubscribed(options.num_ranks);
  try {
    const JobResult result = run_job(options);
    if (!result.message.empty()) std::fprintf(stderr, "%s\n", result.message.c_str());
    return result.status;
  } catch (const std::exception& e) {
    std::fprintf(stderr, "%s\n", error_text(e).c_str());
    return 1;
  }
}

/// "cpu,cpu:1".
std::vector<Device> parse_devices(const std::string& text) {
  std::vector<Device> devices;
  for (size_t begin = 0; begin <= text.size();) {
    const size_t end = std::min(text.find(',', begin), text.size());
    devices.emplace_back(text.substr(begin, end - begin));
    TANDEM_CHECK(ValueError, std::count(devices.begin(), devices.end(), devices.back()) == 1, "launch: --devices '",
                 text, "' names ", devices.back(), " twice");
    begin = end + 1;
  }
  return devices;
}

/// Raises the number of virtual CPU devices so that all of `devices` exist.
void create_cpu_devices(const std::vector<Device>& devices) {
  for (const Device device : devices) {
    if (device.is_cpu() && device.index >= cpu_device_count()) set_cpu_device_count(device.index + 1);
  }
}

}  // namespace

const std::vector<LaunchFlag>& launch_flags() {
  static const std::vector<LaunchFlag> flags = {
      {"--nproc,--nproc-per-node,--nproc_per_node", "N",
       "ranks on this host, one process each: a number, gpu (one per GPU), cpu (one per core), or auto (gpu if there "
       "is "
       "a GPU, else cpu); default 1"},
      {"--device", "cpu|cuda|auto",
       "device of each rank; auto: one GPU per rank if there are enough, else the CPU; default cpu"},
      {"--devices", "D,E..", "start the ranks as threads of one process, on these devices: cpu,cpu:1"},
      {"--log-dir", "DIR", "folder for each rank's output, rank-R.log"},
      {"--tee", "", "with --log-dir: also print the output"},
      {"--max-restarts", "N", "how often all ranks are restarted after a failure; default 0"},
      {"--timeout", "SECONDS", "limit of the rendezvous and of each collective; default 300; 0 = no limit"}};
  return flags;
}

const LaunchFlag* find_launch_flag(std::string_view name) {
  for (const LaunchFlag& flag : launch_flags()) {
    if (name.size() > 2 && ("," + flag.names + ",").find(str(",", name, ",")) != std::string::npos) return &flag;
  }
  return nullptr;
}

LaunchFlags take_launch_flags(int& argc, char** argv) {
  LaunchFlags flags;
  std::pair<std::string, std::string> num_ranks;  // flag and value
  std::vector<char*> remaining;
  for (int i = 0; i < argc; ++i) {
    const std::string_view argument = argv[i];
    if (argument == "--") {
      remaining.insert(remaining.end(), argv + i, argv + argc);
      break;
    }
    const size_t equals = argument.find('=');
    const std::string_view name = argument.substr(0, equals);
    const LaunchFlag* const flag = i == 0 ? nullptr : find_launch_flag(name);
    if (flag == nullptr) {
      remaining.push_back(argv[i]);
      continue;
    }
    if (flag->value.empty()) {
      TANDEM_CHECK(ValueError, equals == std::string_view::npos, "launch: ", name, " takes no value, got '", argument,
                   "'");
      flags.tee = true;
      continue;
    }
    std::string value;
    if (equals != std::string_view::npos) {
      value = argument.substr(equals + 1);
    } else {
      TANDEM_CHECK(ValueError, i + 1 < argc, "launch: ", name, " needs a value");
      value = argv[++i];
    }
    if (name.starts_with("--nproc")) num_ranks = {str("launch: ", name), value};
    if (name == "--device") flags.device = value;
    if (name == "--devices") flags.devices = parse_devices(value);
    if (name == "--timeout") flags.timeout = parse_seconds("launch: --timeout", value);
    if (name == "--max-restarts") flags.max_restarts = parse_num_restarts("launch: --max-restarts", value);
    if (name == "--log-dir") {
      TANDEM_CHECK(ValueError, !value.empty(), "launch: --log-dir is empty");
      flags.log_dir = value;
    }
  }
  if (!num_ranks.first.empty()) {
    const bool is_on_cpu = flags.device == "cpu" && num_ranks.second == "auto";
    const RankCount count = parse_num_ranks(num_ranks.first, is_on_cpu ? "cpu" : num_ranks.second);
    flags.num_ranks = count.ranks;
    if (count.are_on_gpus && flags.device.empty() && !env_string("TANDEM_DEVICE")) flags.device = "cuda";
  }
  TANDEM_CHECK(ValueError, flags.device.empty() || flags.devices.empty(),
               "launch: --device (the device of every rank) and --devices (one rank per device) exclude each other");
  TANDEM_CHECK(ValueError, !flags.tee || !flags.log_dir.empty(), "launch: --tee requires --log-dir");
  TANDEM_CHECK(
      ValueError, flags.devices.empty() || (!flags.num_ranks && flags.log_dir.empty() && flags.max_restarts == 0),
      "launch: --devices (ranks are threads) cannot be combined with --nproc, --log-dir and --max-restarts (ranks are "
      "processes)");
  argc = static_cast<int>(remaining.size());
  for (size_t i = 0; i < remaining.size(); ++i) argv[i] = remaining[i];
  argv[argc] = nullptr;
  return flags;
}

Device choose_device(const std::string& what, const std::string& choice, int local_rank, int num_local_ranks,
                     bool has_own_visible_devices) {
  if (choice == "cpu") return {};
  TANDEM_CHECK(ValueError, choice == "cuda" || choice == "auto", what, ": expected cpu, cuda or auto, got '", choice,
               "'");
  const int count = cuda::device_count();
  const bool uses_own_devices = has_own_visible_devices && count > 0 && count < num_local_ranks;
  const bool has_enough = count >= num_local_ranks || uses_own_devices;
  if (choice == "auto" && !has_enough) return {};
  TANDEM_CHECK(ValueError, count == 0 || has_enough, what, " ", choice, ": ", num_local_ranks,
               " ranks on this host but ", count, count == 1 ? " GPU" : " GPUs", "; each rank needs its own GPU");
  const Device device = Device::cuda(uses_own_devices ? local_rank % count : local_rank);
  try {
    cuda::check_device(device);
  } catch (const DeviceError& e) {
    throw ValueError(str(what, ": ", e.what()));
  }
  return device;
}

int parse_num_restarts(const std::string& what, const std::string& text) {
  return static_cast<int>(parse_int(what, text, 0, 1 << 20));
}

void warn_if_oversubscribed(int num_ranks) {
  if (num_ranks <= available_cores()) return;
  std::fprintf(stderr, "launch: %d ranks on %d %s: the ranks share cores\n", num_ranks, available_cores(),
               available_cores() == 1 ? "core" : "cores");
}

int launch(int& argc, char** argv, const RankFunction& f) {
  open_standard_streams();
  if (const auto status = rank_main_entry(argc, argv)) return *status;
  try {
    const LaunchFlags flags = take_launch_flags(argc, argv);
    const Lookup lookup = [](const char* name) { return env_string(name); };
    const auto environment = read_rank_environment(lookup);
    if (!flags.devices.empty()) {
      TANDEM_CHECK(ValueError, !environment, "launch: --devices starts ranks, but this process is already a rank\n",
                   environment->found, kStartHere);
      create_cpu_devices(flags.devices);
      warn_if_oversubscribed(static_cast<int>(flags.devices.size()));
      return run_device_ranks(flags.devices, choose_timeout(flags), f);
    }
    const bool starts_ranks = flags.num_ranks.value_or(1) > 1 || !flags.log_dir.empty() || flags.max_restarts > 0;
    TANDEM_CHECK(
        ValueError, !environment || (!flags.num_ranks && !starts_ranks),
        "launch: --nproc, --log-dir, --tee and --max-restarts start ranks, but this process is already a rank\n",
        environment->found, kStartHere);
    const auto timeout = choose_timeout(flags);
    const int num_ranks = environment ? environment->local_world_size : flags.num_ranks.value_or(1);
    const int local_rank = environment ? environment->local_rank : num_ranks - 1;
    // Another launcher, or a wrapper script, may set CUDA_VISIBLE_DEVICES for each rank.
    const auto visible = env_string("CUDA_VISIBLE_DEVICES");
    const bool has_own_visible_devices =
        environment && visible &&
        (!environment->launched_here || *visible != env_string("TANDEM_LAUNCHER_GPUS").value_or("all"));
    const Device device =
        flags.device.empty()
            ? choose_device("TANDEM_DEVICE", env_string("TANDEM_DEVICE").value_or("cpu"), local_rank, num_ranks,
                            has_own_visible_devices)
            : choose_device("launch: --device", flags.device, local_rank, num_ranks, has_own_visible_devices);
    if (starts_ranks) return start_ranks(flags, argc, argv);
    return run_rank_process(environment ? &*environment : nullptr, timeout, device, f);
  } catch (const Error& e) {
    std::fprintf(stderr, "%s\n", e.what());
    return 2;
  } catch (const std::exception& e) {
    std::fprintf(stderr, "launch: %s\n", error_text(e).c_str());
    return 1;
  }
}

}}}  // namespace tandem::v0::distributed
