#include <cstdlib>
#include <map>

#include <tandem/base/env.h>
#include <tandem/base/error.h>
#include <tandem/distributed/launch.h>
#include <tandem/distributed/launch/rank_environment.h>
#include <tandem/distributed/launch/rank_function.h>
#include <tandem/distributed/launch/rank_processes.h>

namespace tandem { inline namespace v0 { namespace distributed {

namespace {

using RankMain = void (*)(Context&, const std::vector<std::string>&);

// A function-local static, because static initializers of other files fill it in unspecified order. Read-only
// afterwards.
std::map<std::string, RankMain>& rank_mains() {
  static std::map<std::string, RankMain> registry;
  return registry;
}

constexpr const char* kSpawnVariable = "TANDEM_RANK_MAIN";

}  // namespace

bool register_rank_main(const char* name, RankMain f) { return rank_mains().emplace(name, f).second; }

std::optional<int> rank_main_entry(int argc, char** argv) {
  const auto name = env_string(kSpawnVariable);
  if (!name) return std::nullopt;
  // Processes started by this one must not run the function again.
  unsetenv(kSpawnVariable);
  const auto environment = read_rank_environment([](const char* variable) { return env_string(variable); });
  const auto found = rank_mains().find(*name);
  TANDEM_CHECK(StateError, environment && found != rank_mains().end(), "spawn: TANDEM_RANK_MAIN=", *name,
               ", but this program has no such function or the rank variables are not set");
  const std::vector<std::string> args(argv + std::min(argc, 1), argv + argc);
  const auto seconds = env_string("TANDEM_TIMEOUT_S");
  const auto timeout = seconds ? parse_seconds("TANDEM_TIMEOUT_S", *seconds) : kDefaultTimeout;
  return run_rank_process(&*environment, timeout, Device(), [&](Context& context) { found->second(context, args); });
}

void spawn(int n, const std::string& name, const std::vector<std::string>& args) {
  TANDEM_CHECK(ValueError, n >= 1 && n <= 1024, "spawn: expected 1 to 1024 ranks, got ", n);
  TANDEM_CHECK(ValueError, rank_mains().contains(name), "spawn: no function is registered as '", name,
               "' with TANDEM_RANK_MAIN");
  TANDEM_CHECK(
      StateError, !env_string(kSpawnVariable),
      "spawn: this process was started by spawn, but its main does not begin with rank_main_entry(argc, argv)");
  JobOptions options;
  options.num_ranks = n;
  options.arguments = {name};
  options.arguments.insert(options.arguments.end(), args.begin(), args.end());
  options.variables = {{kSpawnVariable, name}};
  // Variables of a test runner: the ranks are not tests.
  options.unset = {"TEST_PREMATURE_EXIT_FILE", "XML_OUTPUT_FILE", "TEST_SHARD_INDEX", "TEST_SHARD_STATUS_FILE",
                   "TEST_TOTAL_SHARDS"};
  options.handle_signals = false;
  const JobResult result = run_job(options);
  if (!result.message.empty()) throw CommError("spawn: " + result.message, -1, result.failed_rank);
  TANDEM_CHECK(CommError, result.status == 0, "spawn: '", name, "' was stopped by a signal (status ", result.status,
               ")");
}

}}}  // namespace tandem::v0::distributed
