// Messages between the launchers of a job: events to node 0, and commands from node 0 to all launchers. A single
// launcher uses them internally. Private to distributed/.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include <tandem/distributed/launch/local_ranks.h>

namespace tandem { inline namespace v0 { namespace distributed {

struct NodeEvent {
  enum class Kind : uint8_t {
    kJoined,       ///< fields: num_nodes, num_ranks, gdb_rank, text (host name)
    kConflict,     ///< the sender cannot join the job; fields: text
    kEnded,        ///< fields: exit
    kCannotStart,  ///< fields: text
    kInterrupted,  ///< first SIGINT or SIGTERM; fields: signal
    kKilled,       ///< second SIGINT or SIGTERM
  };
  Kind kind = Kind::kJoined;
  int node = 0;
  int num_nodes = 0;  ///< --nnodes of this launcher
  int num_ranks = 0;  ///< on this host
  int gdb_rank = -1;  ///< -1: not used
  int signal = 0;
  std::string text;
  RankExit exit;
};

struct NodeCommand {
  enum class Kind : uint8_t {
    kStart,      ///< fields: assignment, ranks (the first rank of each node), no_deadlines
    kStop,       ///< a rank failed; fields: ranks (those not connected to the ranks' store)
    kInterrupt,  ///< fields: signal
    kKill,
    kFinish,  ///< fields: status, text
  };
  Kind kind = Kind::kStart;
  RankAssignment assignment;  ///< common fields; each launcher sets the fields of its own ranks
  std::vector<int> ranks;
  bool no_deadlines = false;
  int signal = 0;
  int status = 0;
  std::string text;
};

std::string encode(const NodeEvent& event);
std::string encode(const NodeCommand& command);
/// Throw IoError if `text` is not a valid message.
NodeEvent decode_event(const std::string& text);
NodeCommand decode_command(const std::string& text);

}}}  // namespace tandem::v0::distributed
