// What the launchers of a job tell each other: events go to node 0, which answers with commands for all.  A launcher
// that is alone tells itself.  Private to distributed/.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include <tandem/distributed/launch/local_ranks.h>

namespace tandem { inline namespace v0 { namespace distributed {

struct NodeEvent {
  enum class Kind : uint8_t {
    kJoined,       ///< num_nodes, num_ranks, gdb_rank, text: the host's name
    kComplaint,    ///< from a launcher that cannot be part of the job; text
    kEnded,        ///< exit
    kCannotStart,  ///< text
    kInterrupted,  ///< signal: SIGINT or SIGTERM came
    kKilled,       ///< a second one
  };
  Kind kind = Kind::kJoined;
  int node = 0;
  int num_nodes = 0;  ///< as this launcher was told
  int num_ranks = 0;  ///< on its host
  int gdb_rank = -1;  ///< -1: none
  int signal = 0;
  std::string text;
  RankExit exit;
};

struct NodeCommand {
  enum class Kind : uint8_t {
    kStart,      ///< place, ranks: the first rank of each node, no_deadlines
    kStop,       ///< a rank failed; ranks: those that are not in the ranks' store
    kInterrupt,  ///< signal
    kKill,
    kFinish,  ///< status, text
  };
  Kind kind = Kind::kStart;
  RankPlace place;  ///< of rank 0; each launcher fills in what is its own
  std::vector<int> ranks;
  bool no_deadlines = false;
  int signal = 0;
  int status = 0;
  std::string text;
};

std::string encode(const NodeEvent& event);
std::string encode(const NodeCommand& command);
/// Throw IoError where the text is no such message.
NodeEvent decode_event(const std::string& text);
NodeCommand decode_command(const std::string& text);

}}}  // namespace tandem::v0::distributed
