// tandem-run: starts a program as the ranks of a job, with torchrun's flags and variables (docs/launching.md).
#include <cstdio>
#include <string>
#include <vector>

#include <CLI/CLI.hpp>

#include <tandem/base/error.h>
#include <tandem/distributed/launch/launch_flags.h>
#include <tandem/distributed/launch/rank_environment.h>
#include <tandem/distributed/launch/rank_processes.h>

namespace {

namespace td = tandem;
using td::distributed::JobOptions;
using td::distributed::OutputTarget;

constexpr int kUsageError = 2;

struct Flags {
  std::string num_ranks = "1";
  std::string num_nodes = "1";
  std::string node_rank = "0";
  std::string max_restarts = "0";
  std::string monitor_interval;
  std::string master_addr = "127.0.0.1";
  std::string master_port = "0";
  std::string log_dir;
  int redirects = 0;
  int tee = 0;
  bool standalone = false;
  bool no_python = false;
  std::vector<std::string> command;
};

/// torchrun spells its flags both ways.
std::string both_spellings(const std::string& dashed, const std::string& short_form = "") {
  std::string underscored = dashed;
  for (size_t i = 2; i < underscored.size(); ++i) {
    if (underscored[i] == '-') underscored[i] = '_';
  }
  std::string names = short_form.empty() ? dashed : short_form + "," + dashed;
  if (underscored != dashed) names += "," + underscored;
  return names;
}

void declare(CLI::App& app, Flags& flags) {
  app.prefix_command();
  app.set_version_flag("--version", "tandem-run 0.1");
  app.add_option(both_spellings("--nproc-per-node"), flags.num_ranks,
                 "Ranks to start: a number, cpu or auto (one per core)");
  app.add_option(both_spellings("--nnodes"), flags.num_nodes, "Hosts: 1");
  app.add_option(both_spellings("--node-rank"), flags.node_rank, "This host's number: 0");
  app.add_option(both_spellings("--master-addr"), flags.master_addr, "Address that the job's store listens on");
  app.add_option(both_spellings("--master-port"), flags.master_port, "Its port; 0 = any free one");
  app.add_flag(both_spellings("--standalone"), flags.standalone, "Loopback and any free port, whatever else is said");
  app.add_option(both_spellings("--log-dir"), flags.log_dir, "Write what rank R prints to DIR/rank-R.log");
  app.add_option(both_spellings("--redirects", "-r"), flags.redirects,
                 "Streams that go to the logs alone: 0 none, 1 stdout, 2 stderr, 3 both")
      ->check(CLI::Range(0, 3));
  app.add_option(both_spellings("--tee", "-t"), flags.tee, "Streams that go to the logs and are shown: 0, 1, 2 or 3")
      ->check(CLI::Range(0, 3));
  app.add_option(both_spellings("--monitor-interval"), flags.monitor_interval,
                 "Accepted for torchrun's sake: ends of ranks are noticed at once");
  app.add_option(both_spellings("--max-restarts"), flags.max_restarts, "Restarts after a failure: 0");
  app.add_flag(both_spellings("--no-python"), flags.no_python, "Accepted for torchrun's sake: programs are no scripts");
}

void supported_only(const std::string& flag, const std::string& value, std::initializer_list<const char*> supported) {
  for (const char* text : supported) {
    if (value == text) return;
  }
  throw td::ValueError(flag + " " + value + " is not supported yet, only " + *supported.begin());
}

OutputTarget target_of(const Flags& flags, int stream) {
  if ((flags.tee & stream) != 0) return OutputTarget::kShowAndLog;
  return (flags.redirects & stream) != 0 ? OutputTarget::kLog : OutputTarget::kShow;
}

JobOptions job_of(Flags flags) {
  supported_only("--nnodes", flags.num_nodes, {"1", "1:1"});
  supported_only("--node-rank", flags.node_rank, {"0"});
  supported_only("--max-restarts", flags.max_restarts, {"0"});
  if (flags.num_ranks == "gpu") supported_only("--nproc-per-node", flags.num_ranks, {"a number, cpu or auto"});
  const bool logs_asked = flags.redirects != 0 || flags.tee != 0;
  TANDEM_CHECK(ValueError, !logs_asked || !flags.log_dir.empty(),
               "--redirects and --tee write logs: give --log-dir too");
  if (!logs_asked && !flags.log_dir.empty()) flags.redirects = 3;
  TANDEM_CHECK(ValueError, !flags.command.empty(), "no program to run");
  TANDEM_CHECK(ValueError, !flags.command.front().starts_with('-'), "unknown flag ", flags.command.front());

  JobOptions options;
  options.num_ranks = td::distributed::parse_num_ranks("--nproc-per-node", flags.num_ranks);
  options.program = flags.command.front();
  options.arguments = flags.command;
  if (!flags.standalone) {
    options.store_host = flags.master_addr;
    options.store_port = static_cast<int>(td::distributed::parse_int("--master-port", flags.master_port, 0, 65535));
  }
  options.log_dir = flags.log_dir;
  options.stdout_target = target_of(flags, 1);
  options.stderr_target = target_of(flags, 2);
  return options;
}

int usage_error(const std::string& text) {
  std::fprintf(stderr, "tandem-run: %s\nRun with --help for the flags.\n", text.c_str());
  return kUsageError;
}

}  // namespace

int main(int argc, char** argv) {
  CLI::App app("tandem-run [FLAGS] PROGRAM [ARGUMENTS] starts PROGRAM as the ranks of a job on this host.",
               "tandem-run");
  Flags flags;
  declare(app, flags);
  JobOptions options;
  try {
    app.parse(argc, argv);
    flags.command = app.remaining();
    if (!flags.command.empty() && flags.command.front() == "--") flags.command.erase(flags.command.begin());
    options = job_of(flags);
  } catch (const CLI::Success& e) {
    return app.exit(e);
  } catch (const CLI::ParseError& e) {
    return usage_error(e.what());
  } catch (const td::ValueError& e) {
    return usage_error(e.what());
  }
  td::distributed::warn_if_crowded(options.num_ranks);
  try {
    const auto result = td::distributed::run_job(options);
    if (!result.message.empty()) std::fprintf(stderr, "%s\n", result.message.c_str());
    return result.status;
  } catch (const td::Error& e) {
    std::fprintf(stderr, "%s\n", e.what());
    return 1;
  }
}
