#include <tandem/distributed/launch/rank_environment.h>

#include <charconv>
#include <cmath>
#include <string_view>

#include <tandem/base/error.h>
#include <tandem/base/rank_context.h>
#include <tandem/distributed/launch/launcher_variables.h>
#include <tandem/distributed/rendezvous/wire.h>
#include <tandem/tensor/cuda.h>

namespace tandem { inline namespace v0 { namespace distributed {

namespace {

constexpr const char* kRankVariables[] = {"RANK",        "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE",
                                          "MASTER_ADDR", "MASTER_PORT"};
constexpr int kMaxRanks = 1024;

void read_store_location(const Lookup& lookup, RankEnvironment* env) {
  if (const auto location = lookup("TANDEM_STORE")) {
    const size_t colon = location->rfind(':');
    TANDEM_CHECK(ValueError, colon != std::string::npos && colon > 0, "TANDEM_STORE: expected host:port, got '",
                 *location, "'");
    env->store_host = location->substr(0, colon);
    env->store_port = static_cast<int>(parse_int("TANDEM_STORE", location->substr(colon + 1), 1, 65535));
    const auto token = lookup("TANDEM_TOKEN");
    TANDEM_CHECK(ValueError, token.has_value(), "TANDEM_TOKEN: not set, but TANDEM_STORE is");
    env->token = wire::token_from_hex(*token);
    env->launched_here = true;
    return;
  }
  env->store_host = *lookup("MASTER_ADDR");
  env->store_port = static_cast<int>(parse_int("MASTER_PORT", *lookup("MASTER_PORT"), 1, 65535));
  env->port_advice = "set MASTER_PORT to a free port";
  // torchrun's agent may run its own store on MASTER_PORT.
  if (lookup("TORCHELASTIC_USE_AGENT_STORE").value_or("") == "True") {
    TANDEM_CHECK(
        ValueError, env->store_port < 65535,
        "MASTER_PORT: torchrun's agent listens on 65535, so the store would need port 65536; choose a smaller port");
    env->port_advice = str("torchrun's agent listens on MASTER_PORT=", env->store_port,
                           ", so the store needs the next port\n  choose another port for torchrun: --rdzv-endpoint "
                           "HOST:PORT or --master-port PORT");
    ++env->store_port;
  }
  const auto token = lookup("TANDEM_TOKEN");
  env->token = token ? wire::token_from_hex(*token) : token_from_run_id(lookup("TORCHELASTIC_RUN_ID").value_or(""));
  env->hosts_store = env->rank == 0;
}

}  // namespace

std::optional<RankEnvironment> read_rank_environment(const Lookup& lookup, bool local_optional) {
  bool any = false;
  for (int i = 0; i < 4; ++i) any = any || lookup(kRankVariables[i]).has_value();
  const auto read_threads = [&](RankEnvironment* env) {
    const auto threads = lookup("TANDEM_NUM_THREADS");
    if (threads) env->num_threads = static_cast<int>(parse_int("TANDEM_NUM_THREADS", *threads, 1, 4096));
  };
  if (!any) {
    auto env = read_launcher_environment(lookup);
    if (!env || env->world_size == 1) return std::nullopt;
    read_threads(&*env);
    return env;
  }
  const auto check = [&](bool condition, const std::string& text) {
    if (!condition) throw ValueError(text + "\n" + describe_rank_variables(lookup));
  };
  const auto number = [&](const char* name) {
    try {
      return static_cast<int>(parse_int(name, *lookup(name), 0, 1 << 20));
    } catch (const ValueError& e) {
      throw ValueError(str("rank variables: ", e.what(), "\n", describe_rank_variables(lookup)));
    }
  };
  const bool local_given = lookup("LOCAL_RANK") || lookup("LOCAL_WORLD_SIZE");
  // A PyTorchJob sets no local variables: each of its pods is one rank.
  const bool is_pod = !local_optional && !local_given && lookup("KUBERNETES_SERVICE_HOST");
  const bool local_known = local_given || !(local_optional || is_pod);
  for (const std::string_view name : kRankVariables) {
    if (local_known || !name.starts_with("LOCAL_")) {
      check(lookup(name.data()).has_value(), "rank variables: some are missing");
    }
  }
  RankEnvironment env;
  env.rank = number("RANK");
  env.world_size = number("WORLD_SIZE");
  check(env.rank < env.world_size, "rank variables: RANK must be less than WORLD_SIZE");
  if (local_known) {
    env.local_rank = number("LOCAL_RANK");
    env.local_world_size = number("LOCAL_WORLD_SIZE");
    check(env.local_rank < env.local_world_size, "rank variables: LOCAL_RANK must be less than LOCAL_WORLD_SIZE");
    check(env.local_world_size <= env.world_size, "rank variables: LOCAL_WORLD_SIZE must not exceed WORLD_SIZE");
    check(env.local_rank <= env.rank, "rank variables: LOCAL_RANK must not exceed RANK");
  } else {
    env.local_world_size = is_pod ? 1 : 0;
  }
  read_store_location(lookup, &env);
  read_threads(&env);
  env.found = describe_rank_variables(lookup);
  return env;
}

std::string describe_rank_variables(const Lookup& lookup) {
  std::string found;
  std::string missing;
  for (const char* name : kRankVariables) {
    if (const auto value = lookup(name)) {
      found += str(" ", name, "=", *value);
    } else {
      missing += str(" ", name);
    }
  }
  return str("  found:", found.empty() ? " none" : found, missing.empty() ? "" : "\n  missing:", missing);
}

Variables rank_variables(const RankAssignment& assignment) {
  const std::string rank = std::to_string(assignment.rank);
  const std::string world_size = std::to_string(assignment.world_size);
  return {{"RANK", rank},
          {"WORLD_SIZE", world_size},
          {"LOCAL_RANK", std::to_string(assignment.local_rank)},
          {"LOCAL_WORLD_SIZE", std::to_string(assignment.local_world_size)},
          {"GROUP_RANK", std::to_string(assignment.node)},
          {"GROUP_WORLD_SIZE", std::to_string(assignment.num_nodes)},
          {"ROLE_RANK", rank},
          {"ROLE_WORLD_SIZE", world_size},
          {"MASTER_ADDR", assignment.store_host},
          {"MASTER_PORT", std::to_string(assignment.store_port)},
          {"TORCHELASTIC_RESTART_COUNT", std::to_string(assignment.restart)},
          {"TORCHELASTIC_MAX_RESTARTS", std::to_string(assignment.max_restarts)},
          {"TORCHELASTIC_RUN_ID", assignment.run_id},
          {"TANDEM_STORE", str(assignment.store_host, ":", assignment.store_port)},
          {"TANDEM_TOKEN", wire::token_to_hex(assignment.token)}};
}

std::string token_from_run_id(const std::string& run_id) { return wire::token_from_name(run_id); }

int64_t parse_int(const std::string& what, const std::string& text, int64_t low, int64_t high) {
  int64_t value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  TANDEM_CHECK(ValueError, error == std::errc() && end == text.data() + text.size() && value >= low && value <= high,
               what, ": expected an integer from ", low, " to ", high, ", got '", text, "'");
  return value;
}

std::chrono::milliseconds parse_seconds(const std::string& what, const std::string& text) {
  double value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  TANDEM_CHECK(ValueError,
               error == std::errc() && end == text.data() + text.size() && std::isfinite(value) &&
                   (value >= 0.001 || value == 0) && value <= 1e7,
               what, ": expected a number of seconds, or 0 for no limit, got '", text, "'");
  return std::chrono::milliseconds(static_cast<int64_t>(std::ceil(value * 1000.0)));
}

RankCount parse_num_ranks(const std::string& what, const std::string& text) {
  const int gpus = text == "gpu" || text == "auto" ? cuda::device_count() : 0;
  if (gpus > 0) return {gpus, true};
  TANDEM_CHECK(ValueError, text != "gpu", what, " gpu: ",
               cuda::is_built() ? "this machine has no GPU or no GPU driver"
                                : "this build of tandem has no CUDA support; build with --config=cuda");
  if (text == "auto" || text == "cpu") return {available_cores()};
  try {
    return {static_cast<int>(parse_int(what, text, 1, kMaxRanks))};
  } catch (const ValueError&) {
    throw ValueError(str(what, ": expected an integer from 1 to ", kMaxRanks, ", auto, cpu or gpu, got '", text, "'"));
  }
}

}}}  // namespace tandem::v0::distributed
