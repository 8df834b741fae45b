// The variables that tell a process which rank it is.  Private to distributed/.
#pragma once

#include <chrono>
#include <functional>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include <tandem/base/macros.h>

namespace tandem { inline namespace v0 { namespace distributed {

struct RankEnvironment {
  int rank = 0;
  int world_size = 1;
  int local_rank = 0;
  int local_world_size = 1;
  std::string store_host;
  int store_port = 0;
  std::string token;           ///< wire::kTokenBytes bytes
  bool hosts_store = false;    ///< this rank runs the StoreServer
  bool launched_here = false;  ///< our launcher watches over this rank and hosts the store
  int num_threads = 0;         ///< TANDEM_NUM_THREADS, 0 if unset
  std::string port_advice;     ///< what to do where the store's port is taken
};

/// A variable's value, nullopt if unset or empty.
using Lookup = std::function<std::optional<std::string>(const char* name)>;

/// Reads RANK, WORLD_SIZE, LOCAL_RANK, LOCAL_WORLD_SIZE, MASTER_ADDR and MASTER_PORT, and what our launcher adds; where
/// none of the first four is set, what other launchers say (launcher_variables.h).  Nullopt where that is nothing, or the
/// only task of a job, which may start ranks itself.  Throws ValueError, showing all that was found, where some are
/// missing, are no numbers, or contradict each other.
///
/// Where `local_optional`, LOCAL_RANK and LOCAL_WORLD_SIZE may both be missing: then local_world_size is 0.
TANDEM_API std::optional<RankEnvironment> read_rank_environment(const Lookup& lookup, bool local_optional = false);

/// "  found: RANK=0 ...\n  missing: WORLD_SIZE ...", for error texts.
TANDEM_API std::string describe_rank_variables(const Lookup& lookup);

using Variables = std::vector<std::pair<std::string, std::string>>;

/// Which rank a process is to be, and where its job's store is.
struct RankPlace {
  int rank = 0;
  int world_size = 1;
  int local_rank = 0;
  int local_world_size = 1;
  int node = 0;  ///< among the job's launchers
  int num_nodes = 1;
  std::string store_host;
  int store_port = 0;
  std::string token;  ///< wire::kTokenBytes bytes
  std::string run_id;
  int restart = 0;  ///< how often the job has been started again
  int max_restarts = 0;
};

/// What our launcher sets for a rank.
TANDEM_API Variables rank_variables(const RankPlace& place);

/// A token for those who share nothing but a name: it keeps jobs apart and is no secret.
TANDEM_API std::string token_from_run_id(const std::string& run_id);

/// `text` as a decimal integer within [low, high]; throws ValueError "what: ...".
TANDEM_API int64_t parse_int(const std::string& what, const std::string& text, int64_t low, int64_t high);
/// `text`, a number of seconds, 0 for no limit; throws ValueError "what: ...".
TANDEM_API std::chrono::milliseconds parse_seconds(const std::string& what, const std::string& text);
/// A number of ranks, or "auto" or "cpu" for one per core.  Throws ValueError beyond 1024.
TANDEM_API int parse_num_ranks(const std::string& what, const std::string& text);

}}}  // namespace tandem::v0::distributed
