#include <tandem/distributed/init.h>

#include <algorithm>
#include <atomic>
#include <map>
#include <optional>
#include <string_view>
#include <thread>
#include <utility>

#include <tandem/base/env.h>
#include <tandem/base/error.h>
#include <tandem/base/rank_context.h>
#include <tandem/distributed/launch/context_access.h>
#include <tandem/distributed/launch/job_store.h>
#include <tandem/distributed/launch/launcher_variables.h>
#include <tandem/distributed/launch/rank_environment.h>
#include <tandem/distributed/rendezvous/memory_store.h>
#include <tandem/distributed/rendezvous/missing_ranks.h>
#include <tandem/distributed/rendezvous/rendezvous.h>

namespace tandem { inline namespace v0 { namespace distributed {

/// State that destroy_process_group releases or restores.
struct InitSession {
  std::shared_ptr<Store> store;
  int rank = 0;
  // Previous values of the thread's RankContext.
  int old_rank = 0;
  int old_world_size = 1;
  int old_local_rank = 0;
  int old_local_world_size = 1;
  int old_num_threads = 0;
};

namespace {

/// Rank, world size and store of the calling rank, before the default group exists.
struct JoinedRank {
  int rank = -1;
  int world_size = -1;
  int local_rank = 0;
  int local_world_size = 0;  // 0: unknown
  int num_threads = 0;
  bool thread_ranks = false;
  std::shared_ptr<Store> store;
};

std::optional<std::string> look_up(const char* name) { return env_string(name); }

std::chrono::milliseconds choose_timeout(const InitOptions& options) {
  TANDEM_CHECK(ValueError, options.timeout.count() >= 0, "init_process_group: timeout must not be negative, got ",
               options.timeout.count(), " ms");
  const auto variable = env_string("TANDEM_TIMEOUT_S");
  return variable ? parse_seconds("TANDEM_TIMEOUT_S", *variable) : options.timeout;
}

void check_rank(int rank, int world_size) {
  TANDEM_CHECK(ValueError, rank >= 0 && world_size >= 1 && rank < world_size, "init_process_group: rank ", rank,
               " is not in [0, ", world_size, ")");
}

/// The value of `option` (-1: not set) or of `other`. Throws ValueError if both are set and differ.
int merge_values(const char* what, int option, const char* other_what, std::optional<int> other) {
  TANDEM_CHECK(ValueError, option < 0 || !other || option == *other, "init_process_group: ", what, " is ", option,
               ", but ", other_what, " has ", other.value_or(0));
  return option >= 0 ? option : other.value_or(-1);
}

/// Removes "?rank=1&world_size=2" from the end of `text` and returns the values.
std::map<std::string, int> take_query(std::string* text) {
  std::map<std::string, int> query;
  const size_t mark = text->rfind('?');
  if (mark == std::string::npos) return query;
  std::string_view rest = std::string_view(*text).substr(mark + 1);
  while (!rest.empty()) {
    const std::string_view part = rest.substr(0, rest.find('&'));
    rest.remove_prefix(std::min(rest.size(), part.size() + 1));
    const size_t equals = part.find('=');
    const std::string name(part.substr(0, equals));
    TANDEM_CHECK(ValueError, equals != std::string_view::npos && (name == "rank" || name == "world_size"),
                 "init_process_group: expected '?rank=R&world_size=N' at the end of the init_method, got '", *text,
                 "'");
    query[name] =
        static_cast<int>(parse_int("init_process_group: " + name, std::string(part.substr(equals + 1)), 0, 1 << 20));
  }
  text->resize(mark);
  return query;
}

/// Sets rank and world size for tcp:// and file:// from the options and the query of the URL.
void read_numbers(const InitOptions& options, std::string* rest, JoinedRank* joined) {
  const auto query = take_query(rest);
  const auto of = [&](const char* name) {
    const auto found = query.find(name);
    return found == query.end() ? std::nullopt : std::optional(found->second);
  };
  joined->rank = merge_values("rank", options.rank, "the init_method", of("rank"));
  joined->world_size = merge_values("world_size", options.world_size, "the init_method", of("world_size"));
  TANDEM_CHECK(ValueError, joined->rank >= 0 && joined->world_size >= 0, "init_process_group: '", options.init_method,
               "' needs rank and world_size, in the options or as '?rank=R&world_size=N'");
  check_rank(joined->rank, joined->world_size);
}

void join_by_tcp(const RankEnvironment& env, std::chrono::milliseconds timeout, JoinedRank* joined) {
  JobStore job = join_job_store(env, timeout);
  job.store->keep(std::move(job.server));
  joined->store = std::move(job.store);
}

void join_by_environment(const InitOptions& options, std::chrono::milliseconds timeout, JoinedRank* joined) {
  // Options replace variables that are not set.
  const auto lookup = [&](const char* name) {
    auto value = look_up(name);
    if (!value && std::string_view(name) == "RANK" && options.rank >= 0) value = std::to_string(options.rank);
    if (!value && std::string_view(name) == "WORLD_SIZE" && options.world_size >= 0) {
      value = std::to_string(options.world_size);
    }
    return value;
  };
  std::optional<RankEnvironment> env = read_rank_environment(lookup, true);
  if (!env) env = read_launcher_environment(lookup);  // the single task of a launcher
  TANDEM_CHECK(
      ValueError, env.has_value(), "init_process_group: the rank is not known because no launcher set its variables\n",
      describe_rank_variables(lookup),
      "\n  start the program with tandem-run, torchrun, mpirun or srun, or set RANK, WORLD_SIZE, MASTER_ADDR and "
      "MASTER_PORT");
  joined->rank = merge_values("rank", options.rank, "the environment", env->rank);
  joined->world_size = merge_values("world_size", options.world_size, "the environment", env->world_size);
  joined->local_rank = env->local_rank;
  joined->local_world_size = env->local_world_size;
  joined->num_threads = env->num_threads;
  if (joined->world_size == 1 && !env->launched_here) {
    joined->store = make_memory_store();
  } else {
    join_by_tcp(*env, timeout, joined);
  }
}

void join_by_address(const InitOptions& options, std::chrono::milliseconds timeout, JoinedRank* joined) {
  std::string rest = options.init_method.substr(std::string_view("tcp://").size());
  read_numbers(options, &rest, joined);
  const size_t colon = rest.rfind(':');
  TANDEM_CHECK(ValueError, colon != std::string::npos && colon > 0,
               "init_process_group: expected 'tcp://host:port', got '", options.init_method, "'");
  RankEnvironment env;
  env.rank = joined->rank;
  env.world_size = joined->world_size;
  env.store_host = rest.substr(0, colon);
  if (env.store_host.starts_with('[') && env.store_host.ends_with(']')) {
    env.store_host = env.store_host.substr(1, env.store_host.size() - 2);  // [::1]
  } else {
    TANDEM_CHECK(ValueError, env.store_host.find(':') == std::string::npos,
                 "init_process_group: expected 'tcp://host:port', got '", options.init_method,
                 "'; put brackets around an IPv6 address: tcp://[ADDRESS]:PORT");
  }
  env.store_port = static_cast<int>(parse_int("init_process_group: the port", rest.substr(colon + 1), 1, 65535));
  const auto token = env_string("TANDEM_TOKEN");
  env.token = token ? wire::token_from_hex(*token) : token_from_run_id(look_up("TORCHELASTIC_RUN_ID").value_or(""));
  env.hosts_store = env.rank == 0;
  env.port_advice = "choose a free port";
  join_by_tcp(env, timeout, joined);
}

/// If this rank already left an earlier job that used this file, waits until the last rank has removed the file.
void join_by_file(const InitOptions& options, std::chrono::milliseconds timeout, JoinedRank* joined) {
  std::string path = options.init_method.substr(std::string_view("file://").size());
  read_numbers(options, &path, joined);
  const auto deadline = deadline_after(timeout);
  for (;;) {
    joined->store = make_file_store(path, {.world_size = joined->world_size});
    if (joined->store->add(str("members/", joined->rank), 1) == 1) return;
    // on_failure calls the callback here for entries already in the file, and later on the store's thread.
    std::atomic<bool> left{false};
    const HookHandle ends = joined->store->on_failure([&](int rank, const std::string& reason) {
      if (rank == joined->rank && reason == "left the job") left = true;
    });
    TANDEM_CHECK(CommError, left && std::chrono::steady_clock::now() < deadline, "init_process_group: rank ",
                 joined->rank, " has already joined through ", path,
                 "\n  remove the file if an earlier job left it; otherwise two processes have this rank");
    std::this_thread::sleep_for(std::chrono::milliseconds(10));
  }
}

JoinedRank join(const InitOptions& options, std::chrono::milliseconds timeout) {
  JoinedRank joined;
  if (options.store != nullptr) {
    TANDEM_CHECK(ValueError, options.init_method == "env://",
                 "init_process_group: store and init_method exclude each other; set one of them");
    TANDEM_CHECK(ValueError, options.rank >= 0 && options.world_size >= 0,
                 "init_process_group: store requires rank and world_size");
    check_rank(options.rank, options.world_size);
    joined.rank = options.rank;
    joined.world_size = options.world_size;
    joined.store = options.store;
    joined.thread_ranks = std::dynamic_pointer_cast<MemoryStore>(options.store) != nullptr;
  } else if (options.init_method == "env://") {
    join_by_environment(options, timeout, &joined);
  } else if (options.init_method.starts_with("tcp://")) {
    join_by_address(options, timeout, &joined);
  } else if (options.init_method.starts_with("file://")) {
    join_by_file(options, timeout, &joined);
  } else {
    throw ValueError(
        str("init_process_group: expected env://, tcp://host:port or file:///path, got '", options.init_method, "'"));
  }
  return joined;
}

/// Computes local_rank and local_world_size by exchanging host identities.
void find_local_rank(std::chrono::milliseconds timeout, JoinedRank* joined) {
  const ProcessGroupOptions all{
      .store = joined->store, .rank = joined->rank, .world_size = joined->world_size, .timeout = timeout};
  Rendezvous rendezvous(all, "init");
  const std::string own = host_identity(all);
  const std::vector<std::string> hosts = rendezvous.exchange("host", own);
  rendezvous.finish();
  joined->local_rank = static_cast<int>(std::count(hosts.begin(), hosts.begin() + joined->rank, own));
  joined->local_world_size = static_cast<int>(std::count(hosts.begin(), hosts.end(), own));
}

void restore(RankContext& rank_context, const InitSession& session) {
  rank_context.rank = session.old_rank;
  rank_context.world_size = session.old_world_size;
  rank_context.local_rank = session.old_local_rank;
  rank_context.local_world_size = session.old_local_world_size;
  rank_context.num_threads = session.old_num_threads;
  rank_context.distributed_slot.reset();
}

}  // namespace

void init_process_group(const InitOptions& options) {
  RankContext& rank_context = RankContext::current();
  if (is_initialized()) {
    const Context& context = Context::current();
    const bool own = ContextAccess::session(context) != nullptr;
    throw StateError(
        str("init_process_group: this thread is already rank ", context.rank(), " of ", context.world_size(),
            own ? "; call destroy_process_group first" : " of launch, spawn or run_threads; use default_group()"));
  }
  const auto timeout = choose_timeout(options);
  JoinedRank joined = join(options, timeout);
  auto session = std::make_shared<InitSession>(InitSession{joined.store, joined.rank, rank_context.rank,
                                                           rank_context.world_size, rank_context.local_rank,
                                                           rank_context.local_world_size, rank_context.num_threads});
  try {
    if (joined.local_world_size == 0) find_local_rank(timeout, &joined);
    int threads = joined.num_threads > 0 ? joined.num_threads : rank_context.num_threads;
    if (threads == 0) threads = std::max(1, available_cores() / joined.local_world_size);
    const auto context = ContextAccess::install(rank_context, {.rank = joined.rank,
                                                               .world_size = joined.world_size,
                                                               .local_rank = joined.local_rank,
                                                               .local_world_size = joined.local_world_size,
                                                               .num_threads = threads,
                                                               .thread_ranks = joined.thread_ranks,
                                                               .timeout = timeout,
                                                               .store = joined.store,
                                                               .backend = options.backend,
                                                               .network_interface = options.network_interface,
                                                               .session = session});
    context->group();
  } catch (const std::exception& e) {
    restore(rank_context, *session);
    try {
      joined.store->announce_failure(joined.rank, failure_to_announce(e));
    } catch (const Error&) {
      // The other ranks detect the failure through their own connections.
    }
    joined.store->leave(joined.rank);
    throw;
  }
}

bool is_initialized() { return RankContext::current().distributed_slot != nullptr; }

const std::shared_ptr<ProcessGroup>& default_group() { return Context::current().group(); }

int get_rank(const std::shared_ptr<ProcessGroup>& group) {
  return group != nullptr ? group->rank() : Context::current().rank();
}

int get_world_size(const std::shared_ptr<ProcessGroup>& group) {
  return group != nullptr ? group->size() : Context::current().world_size();
}

std::shared_ptr<ProcessGroup> new_group(const std::vector<int>& ranks, const NewGroupOptions& options) {
  return Context::current().new_group(ranks, options);
}

void destroy_process_group() {
  Context& context = Context::current();
  const std::shared_ptr<InitSession> session = ContextAccess::session(context);
  TANDEM_CHECK(StateError, session != nullptr,
               "destroy_process_group: this rank was not created by init_process_group; launch, spawn and run_threads "
               "end their own ranks");
  ContextAccess::drop_group(context);
  restore(RankContext::current(), *session);
  session->store->leave(session->rank);
}

void destroy_process_group(std::shared_ptr<ProcessGroup>& group) {
  const bool all = group != nullptr && is_initialized() && group == Context::current().group();
  group.reset();
  if (all) destroy_process_group();
}

}}}  // namespace tandem::v0::distributed
