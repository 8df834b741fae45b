// Environment variables with the rank of a process. Private to distributed/.
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
  bool launched_here = false;  ///< tandem's launcher monitors this rank and hosts the store
  int num_threads = 0;         ///< TANDEM_NUM_THREADS; 0 if not set
  std::string port_advice;     ///< advice for the error if the store's port is in use
  std::string found;           ///< "  found: RANK=0 ...": the variables, for errors
};

/// Value of a variable; nullopt if it is not set or empty.
using Lookup = std::function<std::optional<std::string>(const char* name)>;

/// Reads RANK, WORLD_SIZE, LOCAL_RANK, LOCAL_WORLD_SIZE, MASTER_ADDR and MASTER_PORT, and the variables of tandem's
/// launcher. If none of the first four is set, reads the variables of other launchers (launcher_variables.h). Returns
/// nullopt if those are not set either, or for the single task of a job, which may start ranks itself. Throws
/// ValueError, listing the variables that were found, if variables are missing, not numeric, or contradictory.
///
/// If `local_optional`, LOCAL_RANK and LOCAL_WORLD_SIZE may both be missing; local_world_size is then 0.
TANDEM_API std::optional<RankEnvironment> read_rank_environment(const Lookup& lookup, bool local_optional = false);

/// "  found: RANK=0 ...\n  missing: WORLD_SIZE ...", for error texts.
TANDEM_API std::string describe_rank_variables(const Lookup& lookup);

using Variables = std::vector<std::pair<std::string, std::string>>;

/// Rank of a process and address of the store of its job.
struct RankAssignment {
  int rank = 0;
  int world_size = 1;
  int local_rank = 0;
  int local_world_size = 1;
  int node = 0;  ///< index of the launcher
  int num_nodes = 1;
  std::string store_host;
  int store_port = 0;
  std::string token;  ///< wire::kTokenBytes bytes
  std::string run_id;
  int restart = 0;  ///< number of restarts so far
  int max_restarts = 0;
};

/// The environment variables that the launcher sets for a rank.
TANDEM_API Variables rank_variables(const RankAssignment& assignment);

/// A token derived from the run id. It separates jobs but is not a secret.
TANDEM_API std::string token_from_run_id(const std::string& run_id);

/// Of collectives and of the meeting of hosts, without TANDEM_TIMEOUT_S and --timeout.
inline constexpr std::chrono::milliseconds kDefaultTimeout{300000};

/// Parses a decimal integer in [low, high]. Throws ValueError; the text begins with `what`.
TANDEM_API int64_t parse_int(const std::string& what, const std::string& text, int64_t low, int64_t high);
/// Parses a number of seconds; 0 means no limit. Throws ValueError; the text begins with `what`.
TANDEM_API std::chrono::milliseconds parse_seconds(const std::string& what, const std::string& text);
/// The value of --nproc.
struct RankCount {
  int ranks = 1;             ///< on this host
  bool are_on_gpus = false;  ///< one for each GPU
};
/// A number of ranks: an integer, `gpu` (one per GPU), `cpu` (one per core), or `auto` (gpu if this host has a GPU,
/// else cpu). Throws ValueError; the text begins with `what`.
TANDEM_API RankCount parse_num_ranks(const std::string& what, const std::string& text);

}}}  // namespace tandem::v0::distributed
