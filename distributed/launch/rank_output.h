// Where what ranks print goes: pipes, whole lines, logs.  Private to distributed/.
#pragma once

#include <poll.h>

#include <cstdint>
#include <list>
#include <string>
#include <vector>

#include <tandem/base/macros.h>
#include <tandem/distributed/rendezvous/socket.h>

namespace tandem { inline namespace v0 { namespace distributed {

/// Where a rank's stdout or stderr goes.
enum class OutputTarget : uint8_t { kShow, kLog, kShowAndLog };

/// The outputs of all ranks of a launcher.
///
/// Shown lines of ranks other than 0 begin with "[r] ", under kShowAndLog those of rank 0 too.  Else rank 0's are not
/// marked, and a terminal is its own, so that progress bars work.  What does not go to a terminal directly comes
/// through pipes and is written in whole lines, so lines of several ranks never mix.  Used by one thread.
class TANDEM_API RankOutput {
 public:
  /// `log_dir` is made if missing; empty where no target writes logs.  Throws IoError naming the file.
  explicit RankOutput(std::string log_dir);

  /// Before the ranks are started, the first time (`restart` 0) and again: then other logs are begun.
  void begin(int restart);
  /// Prepares the stream `fd` (1 or 2) of `rank`: what the child is to have there, empty to inherit ours.
  FileDescriptor open(int rank, int fd, OutputTarget target);

  /// Appends what poll should watch.
  void add_polled(std::vector<pollfd>* polled) const;
  /// Moves on what has arrived and can be shown, without waiting.
  void transfer();
  /// Takes the rest out of the pipes, including last lines without an end.  After the ranks have ended.
  void collect_rest();
  /// The same for one rank that has ended.
  void collect_rest(int rank);
  /// Shows what is taken, waiting `timeout_ms` each time it is not; whether that was all.
  bool flush(int timeout_ms);

  /// DIR/rank-R.log, after the nth restart DIR/rank-R.restart-n.log; empty without logs.
  std::string log_path(int rank) const;
  /// The last lines of the rank's log, indented, each ended.
  std::string log_tail(int rank) const;

 private:
  /// This process's stdout or stderr, and what is still to be written there: it may be a pipe that nobody reads.
  struct Sink {
    int fd = -1;
    std::string pending;
    bool flush(int timeout_ms);
  };
  struct Stream {
    int rank = 0;
    FileDescriptor pipe;
    FileDescriptor log;
    Sink* sink = nullptr;
    std::string prefix;
    std::string line;  // begun, not ended
  };
  FileDescriptor open_log(int rank);
  std::string log_path(int rank, int restart) const;
  void transfer(Stream& stream);
  void collect_rest(Stream& stream);
  static void write_line(Stream& stream, bool ended);

  std::string log_dir_;
  int restart_ = 0;
  std::vector<bool> truncated_;  // by rank: the logs of an earlier run are gone
  Sink sinks_[2];
  std::list<Stream> streams_;
};

}}}  // namespace tandem::v0::distributed
