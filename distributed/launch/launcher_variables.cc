#include <tandem/distributed/launch/launcher_variables.h>

#include <charconv>
#include <cstring>

#include <tandem/base/error.h>
#include <tandem/distributed/rendezvous/wire.h>

namespace tandem { inline namespace v0 { namespace distributed {

namespace {

// Below the range of ephemeral ports.
constexpr int kFirstPort = 10000;
constexpr int kNumPorts = 20000;

/// The variables of one launcher, with the checks that are common to all launchers.
class Launcher {
 public:
  Launcher(const Lookup& lookup, std::string name, std::vector<const char*> variables)
      : lookup_(lookup), name_(std::move(name)), variables_(std::move(variables)) {}

  std::string found() const {
    std::string list = "  found:";
    for (const char* variable : variables_) {
      if (const auto value = lookup_(variable)) list += str(" ", variable, "=", *value);
    }
    return list;
  }

  [[noreturn]] void fail(const std::string& what) const {
    throw ValueError(str("rank variables of ", name_, ": ", what, "\n", found()));
  }

  std::optional<std::string> text(const char* variable) const { return lookup_(variable); }

  int number(const char* variable, int low = 0) const {
    const auto value = lookup_(variable);
    if (!value) fail(str(variable, " is missing"));
    try {
      return static_cast<int>(parse_int(variable, *value, low, 1 << 20));
    } catch (const ValueError& e) {
      fail(e.what());
    }
  }

  /// Sets address, port and token of the store. `first_host` is empty if the launcher does not provide it, `job` if it
  /// does not provide a job id.
  void locate_store(const std::string& first_host, const std::string& job, const std::string& how_to_set,
                    RankEnvironment* env) const {
    env->found = found();
    if (env->world_size == 1) return;
    const bool one_host = env->local_world_size == env->world_size;
    if (const auto address = text("MASTER_ADDR")) {
      env->store_host = *address;
    } else if (one_host) {
      env->store_host = "127.0.0.1";
    } else if (!first_host.empty()) {
      env->store_host = first_host;
    } else {
      fail(str("the ranks are on several hosts, but MASTER_ADDR (the host of rank 0) is not set\n  set it with: ",
               how_to_set, " MASTER_ADDR"));
    }
    if (const auto port = text("MASTER_PORT")) {
      env->store_port = static_cast<int>(parse_int("MASTER_PORT", *port, 1, 65535));
      env->port_advice = "set MASTER_PORT to a free port";
    } else if (!job.empty()) {
      uint32_t hash = 0;
      std::memcpy(&hash, wire::token_from_name("port of " + job).data(), sizeof(hash));
      env->store_port = kFirstPort + static_cast<int>(hash % kNumPorts);
      env->port_advice = str("the port is derived from the job id of ", name_, "; set MASTER_PORT to a free port");
    } else {
      fail(str("MASTER_PORT is not set, and there is no job id to derive a port from\n  set it with: ", how_to_set,
               " MASTER_PORT"));
    }
    const auto token = text("TANDEM_TOKEN");
    env->token = token ? wire::token_from_hex(*token) : wire::token_from_name(job);
    env->hosts_store = env->rank == 0;
  }

  void check_numbers(const RankEnvironment& env, const char* rank, const char* size, const char* local_rank,
                     const char* local_size) const {
    if (env.rank >= env.world_size) fail(str(rank, " must be less than ", size));
    if (env.local_rank >= env.local_world_size) fail(str(local_rank, " must be less than ", local_size));
    if (env.local_world_size > env.world_size) fail(str(local_size, " must not exceed ", size));
    if (env.local_rank > env.rank) fail(str(local_rank, " must not exceed ", rank));
  }

 private:
  const Lookup& lookup_;
  const std::string name_;
  const std::vector<const char*> variables_;
};

RankEnvironment read_open_mpi(const Lookup& lookup) {
  const Launcher launcher(lookup, "OpenMPI",
                          {"OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE", "OMPI_COMM_WORLD_LOCAL_RANK",
                           "OMPI_COMM_WORLD_LOCAL_SIZE", "MASTER_ADDR", "MASTER_PORT"});
  RankEnvironment env;
  env.rank = launcher.number("OMPI_COMM_WORLD_RANK");
  env.world_size = launcher.number("OMPI_COMM_WORLD_SIZE", 1);
  env.local_rank = launcher.number("OMPI_COMM_WORLD_LOCAL_RANK");
  env.local_world_size = launcher.number("OMPI_COMM_WORLD_LOCAL_SIZE", 1);
  launcher.check_numbers(env, "OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE", "OMPI_COMM_WORLD_LOCAL_RANK",
                         "OMPI_COMM_WORLD_LOCAL_SIZE");
  std::string job = lookup("PMIX_NAMESPACE").value_or(lookup("OMPI_MCA_ess_base_jobid").value_or(""));
  // A random value that is the same on all ranks and known only to them.
  if (!job.empty()) job = str("OpenMPI ", job, " ", lookup("OMPI_MCA_orte_precondition_transports").value_or(""));
  launcher.locate_store("", job, "mpirun -x", &env);
  return env;
}

RankEnvironment read_pmi(const Lookup& lookup) {
  const Launcher launcher(lookup, "PMI",
                          {"PMI_RANK", "PMI_SIZE", "MPI_LOCALRANKID", "MPI_LOCALNRANKS", "MASTER_ADDR", "MASTER_PORT"});
  RankEnvironment env;
  env.rank = launcher.number("PMI_RANK");
  env.world_size = launcher.number("PMI_SIZE", 1);
  env.local_rank = launcher.number("MPI_LOCALRANKID");
  env.local_world_size = launcher.number("MPI_LOCALNRANKS", 1);
  launcher.check_numbers(env, "PMI_RANK", "PMI_SIZE", "MPI_LOCALRANKID", "MPI_LOCALNRANKS");
  std::string job = lookup("PMI_JOBID").value_or(lookup("PMIX_NAMESPACE").value_or(""));
  if (!job.empty()) job = "PMI " + job;
  launcher.locate_store("", job, "mpiexec -genv", &env);
  return env;
}

RankEnvironment read_slurm(const Lookup& lookup) {
  const Launcher launcher(
      lookup, "Slurm",
      {"SLURM_PROCID", "SLURM_NTASKS", "SLURM_STEP_NUM_TASKS", "SLURM_LOCALID", "SLURM_NODEID",
       "SLURM_STEP_TASKS_PER_NODE", "SLURM_TASKS_PER_NODE", "SLURM_NTASKS_PER_NODE", "SLURM_STEP_NODELIST",
       "SLURM_JOB_NODELIST", "SLURM_JOB_ID", "SLURM_STEP_ID", "MASTER_ADDR", "MASTER_PORT"});
  RankEnvironment env;
  const char* size = lookup("SLURM_STEP_NUM_TASKS") ? "SLURM_STEP_NUM_TASKS" : "SLURM_NTASKS";
  env.rank = launcher.number("SLURM_PROCID");
  env.world_size = launcher.number(size, 1);
  env.local_rank = launcher.number("SLURM_LOCALID");
  const char* by_node = lookup("SLURM_STEP_TASKS_PER_NODE") ? "SLURM_STEP_TASKS_PER_NODE" : "SLURM_TASKS_PER_NODE";
  const char* local_size = by_node;
  if (const auto list = lookup(by_node)) {
    const std::vector<int> tasks = slurm_tasks_by_node(*list);
    const size_t node = lookup("SLURM_NODEID") ? static_cast<size_t>(launcher.number("SLURM_NODEID")) : 0;
    if (tasks.empty()) launcher.fail(str(by_node, " is not a list of task counts"));
    if (node >= tasks.size()) launcher.fail(str("SLURM_NODEID is not an index of ", by_node));
    env.local_world_size = tasks[node];
  } else {
    local_size = "SLURM_NTASKS_PER_NODE";
    env.local_world_size = launcher.number(local_size, 1);
  }
  launcher.check_numbers(env, "SLURM_PROCID", size, "SLURM_LOCALID", local_size);
  const std::string hosts = lookup("SLURM_STEP_NODELIST").value_or(lookup("SLURM_JOB_NODELIST").value_or(""));
  const auto job = lookup("SLURM_JOB_ID");
  const std::string step = lookup("SLURM_STEP_ID").value_or("");
  launcher.locate_store(first_slurm_host(hosts), job ? str("Slurm ", *job, ".", step) : "", "export", &env);
  return env;
}

}  // namespace

std::string first_slurm_host(const std::string& list) {
  std::string host;
  for (size_t at = 0; at < list.size() && list[at] != ','; ++at) {
    if (list[at] != '[') {
      host += list[at];
      continue;
    }
    const size_t end = list.find_first_of(",-]", at + 1);
    const size_t close = list.find(']', at);
    if (close == std::string::npos) return "";
    host += list.substr(at + 1, end - at - 1);
    at = close;
  }
  return host;
}

std::vector<int> slurm_tasks_by_node(const std::string& list) {
  std::vector<int> tasks;
  const char* at = list.data();
  const char* const end = at + list.size();
  const auto read = [&](int* number) {
    const auto [next, error] = std::from_chars(at, end, *number);
    at = next;
    return error == std::errc() && *number > 0 && *number <= 1 << 20;
  };
  while (at != end) {
    int count = 0;
    int times = 1;
    if (!read(&count)) return {};
    if (end - at > 2 && at[0] == '(' && at[1] == 'x') {
      at += 2;
      if (!read(&times) || at == end || *at++ != ')') return {};
    }
    if (tasks.size() + static_cast<size_t>(times) > 1u << 20) return {};
    tasks.insert(tasks.end(), static_cast<size_t>(times), count);
    if (at == end) return tasks;
    if (*at++ != ',') return {};
  }
  return {};
}

std::optional<RankEnvironment> read_launcher_environment(const Lookup& lookup) {
  if (lookup("OMPI_COMM_WORLD_RANK")) return read_open_mpi(lookup);
  // srun may also set PMI_*, but without the local ranks; prefer SLURM_* then.
  const bool step = lookup("SLURM_PROCID") && (lookup("SLURM_STEP_ID") || lookup("SLURM_STEP_NUM_TASKS"));
  if (lookup("PMI_RANK") && (lookup("MPI_LOCALRANKID") || !step)) return read_pmi(lookup);
  // Only for a job step: a batch script also has SLURM_PROCID, but is not a rank.
  if (step) return read_slurm(lookup);
  return std::nullopt;
}

}}}  // namespace tandem::v0::distributed
