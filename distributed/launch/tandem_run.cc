// tandem-run: starts a program as the ranks of a job, with torchrun's flags and variables (docs/launching.md).
#include <unistd.h>

#include <algorithm>
#include <csignal>
#include <cstdio>
#include <iostream>
#include <memory>
#include <string>
#include <vector>

#include <CLI/CLI.hpp>

#include <tandem/base/env.h>
#include <tandem/base/error.h>
#include <tandem/base/file.h>
#include <tandem/base/thread.h>
#include <tandem/base/version.h>
#include <tandem/distributed/launch/flight_records.h>
#include <tandem/distributed/launch/launch_flags.h>
#include <tandem/distributed/launch/rank_environment.h>
#include <tandem/distributed/launch/rank_processes.h>
#include <tandem/distributed/rendezvous/socket.h>
#include <tandem/distributed/rendezvous/wire.h>
#include <tandem/tensor/cuda.h>

namespace {

namespace td = tandem;
using td::distributed::JobOptions;
using td::distributed::OutputTarget;
using td::distributed::parse_int;

constexpr int kUsageError = 2;

struct Flags {
  std::string num_ranks = "1";
  std::string num_nodes = "1";
  std::string node_rank;
  std::string endpoint;
  std::string hosts;
  std::string remote;
  std::string rdzv_backend = "c10d";
  std::string rdzv_conf;
  std::string run_id;
  std::string max_restarts = "0";
  std::string monitor_interval;
  std::string master_addr;
  std::string master_port;
  std::string timeout;
  std::string gdb_rank;
  std::string log_dir;
  int redirects = 0;
  int tee = 0;
  bool standalone = false;
  bool no_python = false;
  std::vector<std::string> command;
};

/// "--node-rank,--node_rank": torchrun accepts both spellings.
std::string both_spellings(const std::string& dashed, const std::string& short_form = "") {
  std::string underscored = dashed;
  for (size_t i = 2; i < underscored.size(); ++i) {
    if (underscored[i] == '-') underscored[i] = '_';
  }
  std::string names = short_form.empty() ? dashed : short_form + "," + dashed;
  if (underscored != dashed) names += "," + underscored;
  return names;
}

class Formatter : public CLI::Formatter {
  std::string make_usage(const CLI::App*, std::string) const override {
    return "Usage: tandem-run [FLAGS] PROGRAM [ARGUMENTS]\n";
  }
};

void declare(CLI::App& app, Flags& flags) {
  app.prefix_command();
  app.formatter(std::make_shared<Formatter>());
  app.set_version_flag("--version", td::str("tandem-run ", td::kVersion));
  const auto add = [&app](const std::string& names, std::string& value, const char* type, const char* help) {
    app.add_option(names, value, help)->type_name(type);
  };
  const auto help_of = [](const char* name) { return td::distributed::find_launch_flag(name)->help.c_str(); };
  add(both_spellings("--nproc-per-node") + ",--nproc", flags.num_ranks, "N", help_of("--nproc"));
  add("-H,--hosts", flags.hosts, "HOST[:N],..",
      "Hosts and their numbers of ranks, default --nproc-per-node; the first is this host, the others start by ssh");
  app.add_option("--remote", flags.remote, "NODE:PORT, given by --hosts on the other hosts")->group("");  // hidden
  add(both_spellings("--nnodes"), flags.num_nodes, "N",
      "Number of hosts, default 1; start tandem-run once on each host");
  add(both_spellings("--node-rank"), flags.node_rank, "R", "Index of this host, 0 to nnodes - 1");
  add(both_spellings("--rdzv-endpoint"), flags.endpoint, "HOST:PORT",
      "Address of node 0's host, where the launchers rendezvous; default port 29400");
  add(both_spellings("--rdzv-id"), flags.run_id, "ID",
      "Name of the job, the same on all hosts; the launchers' token is derived from it unless TANDEM_TOKEN is set");
  add(both_spellings("--rdzv-backend"), flags.rdzv_backend, "NAME",
      "c10d or static; both select tandem's own rendezvous");
  add(both_spellings("--rdzv-conf"), flags.rdzv_conf, "TEXT", "Accepted for compatibility with torchrun; ignored");
  add(both_spellings("--master-addr"), flags.master_addr, "HOST",
      "Address of the job's store, default 127.0.0.1; with several hosts, the host of the endpoint");
  add(both_spellings("--master-port"), flags.master_port, "PORT",
      "Port of the job's store, default 0 = any free port; with several hosts, the port of the endpoint, default "
      "29500");
  app.add_flag(both_spellings("--standalone"), flags.standalone,
               "Use the loopback address and any free port; overrides the other address flags");
  add(both_spellings("--log-dir"), flags.log_dir, "DIR",
      "Write the output of rank R to DIR/rank-R.log; without --redirects and --tee both streams go to the log only");
  const auto streams = [](const std::string& text) {  // CLI11's own text differs between its versions
    return CLI::Range(0, 3)(text).empty() ? "" : "expected an integer from 0 to 3, got '" + text + "'";
  };
  app.add_option(both_spellings("--redirects", "-r"), flags.redirects,
                 "Streams written to the logs only: 0 = no stream, 1 = stdout, 2 = stderr, 3 = both")
      ->check(streams);
  app.add_option(both_spellings("--tee", "-t"), flags.tee,
                 "Streams written to the logs and to the terminal: 0 to 3, as for --redirects")
      ->check(streams);
  add(both_spellings("--monitor-interval"), flags.monitor_interval, "SECONDS",
      "Accepted for compatibility with torchrun; ignored, because rank exits are detected immediately");
  add(both_spellings("--max-restarts"), flags.max_restarts, "N", help_of("--max-restarts"));
  add("--timeout", flags.timeout, "SECONDS",
      "Timeout of the launchers' rendezvous, the ranks' rendezvous and collectives, default 300; 0 = no timeout");
  add("--gdb", flags.gdb_rank, "RANK", "Run this rank under gdb in the terminal; disables all timeouts");
  app.add_flag(both_spellings("--no-python"), flags.no_python,
               "Accepted for compatibility with torchrun; ignored, because programs are executed directly");
}

OutputTarget target_of(const Flags& flags, int stream) {
  if ((flags.tee & stream) != 0) return OutputTarget::kShowAndLog;
  return (flags.redirects & stream) != 0 ? OutputTarget::kLog : OutputTarget::kShow;
}

/// Splits HOST:PORT, HOST or [HOST]:PORT (for IPv6 addresses); leaves *port unchanged if the port is missing.
void split_endpoint(const std::string& text, std::string* host, std::string* port,
                    const std::string& expected = "--rdzv-endpoint: expected HOST:PORT") {
  const size_t bracket = text.starts_with('[') ? text.find(']') : std::string::npos;
  TANDEM_CHECK(ValueError, bracket != std::string::npos || std::count(text.begin(), text.end(), ':') <= 1, expected,
               ", got '", text, "'; put brackets around an IPv6 address: [ADDRESS]:PORT");
  const size_t colon = text.find(':', bracket == std::string::npos ? 0 : bracket);
  *host = bracket == std::string::npos ? text.substr(0, colon) : text.substr(1, bracket - 1);
  if (colon != std::string::npos) *port = text.substr(colon + 1);
  TANDEM_CHECK(ValueError, !host->empty(), expected, ", got '", text, "'");
}

int parse_num_nodes(const std::string& text) {
  // torchrun accepts a range MIN:MAX; here MIN must equal MAX.
  const size_t colon = text.find(':');
  const std::string max_nodes = colon == std::string::npos ? text : text.substr(colon + 1);
  const int n = static_cast<int>(parse_int("--nnodes", max_nodes, 1, td::distributed::kMaxNodes));
  TANDEM_CHECK(ValueError, colon == std::string::npos || text.substr(0, colon) == max_nodes, "--nnodes ", text,
               " is not supported: elastic jobs are not available; give one number");
  return n;
}

/// Sets the flags of several hosts from --hosts and, on the other hosts, --remote. Returns the hosts.
std::vector<std::string> take_hosts(Flags* flags) {
  if (flags->hosts.empty()) return {};
  TANDEM_CHECK(ValueError, flags->num_nodes == "1" && flags->node_rank.empty() && flags->endpoint.empty(),
               "--hosts excludes --nnodes, --node-rank and --rdzv-endpoint; see also --master-addr and --master-port");
  std::vector<std::string> hosts;
  std::vector<std::string> counts;
  for (size_t begin = 0, end = 0; begin < flags->hosts.size(); begin = end + 1) {
    end = std::min(flags->hosts.find(',', begin), flags->hosts.size());
    const std::string entry = flags->hosts.substr(begin, end - begin);
    counts.push_back(flags->num_ranks);
    split_endpoint(entry, &hosts.emplace_back(), &counts.back(), "--hosts: expected HOST or HOST:N");
    if (counts.back() != flags->num_ranks) td::distributed::parse_num_ranks("--hosts " + entry, counts.back());
    TANDEM_CHECK(ValueError, !hosts.back().starts_with('-'), "--hosts: '", entry, "' is not a host");
  }
  if (flags->master_addr.empty()) flags->master_addr = hosts.front().substr(hosts.front().find('@') + 1);
  if (flags->master_port.empty()) flags->master_port = "0";
  flags->node_rank = "0";
  if (!flags->remote.empty()) {
    split_endpoint(flags->remote, &flags->node_rank, &flags->master_port, "--remote: expected NODE:PORT");
    flags->gdb_rank.clear();
  } else {
    try {
      td::distributed::listen_on(flags->master_addr, 0, "--hosts");
    } catch (const td::IoError& e) {
      throw td::ValueError(td::str("--hosts: the first host must be this one\n  ", e.what()));
    }
  }
  flags->num_nodes = std::to_string(hosts.size());
  const int64_t node = parse_int("--remote", flags->node_rank, 0, static_cast<int64_t>(hosts.size()) - 1);
  flags->num_ranks = counts[static_cast<size_t>(node)];
  return hosts;
}

/// The token that authenticates the launchers of all hosts to each other.
std::string launchers_token(const Flags& flags) {
  auto secret = td::env_string("TANDEM_TOKEN");
  if (!flags.remote.empty()) std::getline(std::cin, secret.emplace());
  if (secret) return td::distributed::wire::token_from_hex(*secret);
  return flags.hosts.empty() ? td::distributed::token_from_run_id(flags.run_id) : td::distributed::wire::random_token();
}

void set_node_options(const Flags& flags, JobOptions* options) {
  td::distributed::NodeOptions& nodes = options->nodes;
  nodes.num_nodes = parse_num_nodes(flags.num_nodes);
  TANDEM_CHECK(ValueError, nodes.num_nodes == 1 || !flags.node_rank.empty(), "--nnodes ", nodes.num_nodes,
               " requires --node-rank: the index of this host, from 0");
  if (!flags.node_rank.empty()) {
    nodes.node = static_cast<int>(parse_int("--node-rank", flags.node_rank, 0, nodes.num_nodes - 1));
  }
  TANDEM_CHECK(ValueError, nodes.num_nodes == 1 || !flags.standalone, "--standalone requires --nnodes 1, got ",
               nodes.num_nodes);
  std::string host = flags.master_addr;
  std::string port = flags.master_port;
  if (!flags.endpoint.empty()) {
    port = nodes.num_nodes > 1 ? "29400" : "0";
    split_endpoint(flags.endpoint, &host, &port);
  } else if (port.empty()) {
    port = nodes.num_nodes > 1 ? "29500" : "0";
  }
  const std::string port_flag = flags.endpoint.empty() ? "--master-port" : "--rdzv-endpoint";
  if (nodes.num_nodes == 1) {
    if (flags.standalone) return;
    if (!host.empty()) options->store_host = host;
    options->store_port = static_cast<int>(parse_int(port_flag, port, 0, 65535));
    return;
  }
  TANDEM_CHECK(ValueError, !host.empty(), "--nnodes ", nodes.num_nodes,
               " requires --rdzv-endpoint HOST:PORT: an address of node 0's host and a free port of that host");
  nodes.host = host;
  nodes.port = static_cast<int>(parse_int(port_flag, port, nodes.hosts.empty() ? 1 : 0, 65535));
  nodes.token = launchers_token(flags);
}

void check_gdb(const JobOptions& options) {
  const int rank = *options.gdb_rank;
  TANDEM_CHECK(ValueError, options.nodes.num_nodes > 1 || rank < options.num_ranks, "--gdb ", rank,
               ": the rank is not in [0, ", options.num_ranks, ")");
  TANDEM_CHECK(ValueError, options.max_restarts == 0, "--gdb and --max-restarts exclude each other");
  std::string folders = td::env_string("PATH").value_or("");
  for (size_t begin = 0; begin <= folders.size();) {
    const size_t end = std::min(folders.find(':', begin), folders.size());
    if (access((folders.substr(begin, end - begin) + "/gdb").c_str(), X_OK) == 0) return;
    begin = end + 1;
  }
  throw td::ValueError("--gdb: gdb is not in PATH");
}

JobOptions job_of(Flags flags) {
  JobOptions options;
  options.nodes.hosts = take_hosts(&flags);
  const auto ranks = td::distributed::parse_num_ranks("--nproc-per-node", flags.num_ranks);
  TANDEM_CHECK(ValueError, flags.rdzv_backend == "c10d" || flags.rdzv_backend == "static", "--rdzv-backend ",
               flags.rdzv_backend, " is not supported (expected c10d or static)");
  const bool wants_logs = flags.redirects != 0 || flags.tee != 0;
  TANDEM_CHECK(ValueError, !wants_logs || !flags.log_dir.empty(), "--redirects and --tee require --log-dir");
  if (!wants_logs && !flags.log_dir.empty()) flags.redirects = 3;
  options.num_ranks = ranks.ranks;
  if (ranks.are_on_gpus && !td::env_string("TANDEM_DEVICE")) options.variables.emplace_back("TANDEM_DEVICE", "cuda");
  options.run_id = flags.run_id;
  options.max_restarts = td::distributed::parse_num_restarts("--max-restarts", flags.max_restarts);
  set_node_options(flags, &options);
  if (!flags.gdb_rank.empty()) options.gdb_rank = static_cast<int>(parse_int("--gdb", flags.gdb_rank, 0, 1 << 20));
  if (options.gdb_rank) check_gdb(options);
  options.nodes.timeout = td::distributed::kDefaultTimeout;
  if (const auto text = td::env_string("TANDEM_TIMEOUT_S")) {
    options.nodes.timeout = td::distributed::parse_seconds("TANDEM_TIMEOUT_S", *text);
  }
  if (!flags.timeout.empty()) {
    options.nodes.timeout = td::distributed::parse_seconds("--timeout", flags.timeout);
    options.variables.emplace_back("TANDEM_TIMEOUT_S", flags.timeout);
  }
  options.log_dir = flags.log_dir;
  td::distributed::set_record_dir(&options);
  options.stdout_target = target_of(flags, 1);
  options.stderr_target = target_of(flags, 2);
  TANDEM_CHECK(ValueError, !flags.command.empty(), "no program is given");
  TANDEM_CHECK(ValueError, !flags.command.front().starts_with('-'), "unknown flag ", flags.command.front());
  options.program = flags.command.front();
  options.arguments = flags.command;
  return options;
}

/// Stops the job when node 0, which holds the other end of stdin, is gone.
void stop_at_end_of_stdin() {
  td::start_thread([] {
    char byte = 0;
    while (read(STDIN_FILENO, &byte, 1) > 0) {
    }
    kill(getpid(), SIGTERM);
  }).detach();
}

int usage_error(const std::string& text) {
  std::fprintf(stderr, "tandem-run: %s\nRun with --help for the flags.\n", text.c_str());
  return kUsageError;
}

}  // namespace

int main(int argc, char** argv) {
  td::open_standard_streams();
  CLI::App app("Runs PROGRAM as the ranks of a job on this host.", "tandem-run");
  Flags flags;
  declare(app, flags);
  JobOptions options;
  try {
    app.parse(argc, argv);
    flags.command = app.remaining();
    if (!flags.command.empty() && flags.command.front() == "--") flags.command.erase(flags.command.begin());
    options = job_of(flags);
    options.nodes.arguments.assign(argv + 1, argv + argc);
    if (!flags.remote.empty()) stop_at_end_of_stdin();
  } catch (const CLI::Success& e) {
    return app.exit(e);
  } catch (const CLI::ParseError& e) {
    return usage_error(e.what());
  } catch (const td::ValueError& e) {
    return usage_error(e.what());
  } catch (const std::exception& e) {
    std::fprintf(stderr, "tandem-run: %s\n", td::error_text(e).c_str());
    return 1;
  }
  if (!flags.rdzv_conf.empty()) std::fprintf(stderr, "tandem-run: --rdzv-conf is ignored; use --timeout\n");
  td::distributed::warn_if_oversubscribed(options.num_ranks);
  try {
    const auto result = td::distributed::run_job(options);
    // Node 0 prints it for the hosts that it started.
    if (!result.message.empty() && flags.remote.empty()) std::fprintf(stderr, "%s\n", result.message.c_str());
    return result.status;
  } catch (const std::exception& e) {
    std::fprintf(stderr, "%s\n", td::error_text(e).c_str());
    return 1;
  }
}
