// Forwards the output of ranks to the terminal and to log files. Private to distributed/.
#pragma once

#include <poll.h>

#include <cstdint>
#include <list>
#include <memory>
#include <string>
#include <vector>

#include <tandem/base/lock_file.h>
#include <tandem/base/macros.h>
#include <tandem/distributed/rendezvous/socket.h>

namespace tandem { inline namespace v0 { namespace distributed {

/// Where a rank's stdout or stderr goes.
enum class OutputTarget : uint8_t { kShow, kLog, kShowAndLog };

/// Output streams of all ranks of a launcher.
///
/// Lines of rank r are printed with the prefix "[r] "; rank 0 has no prefix except under kShowAndLog, and inherits the
/// terminal directly, so that progress bars work. All other output passes through pipes and is written in whole lines,
/// so that lines of several ranks do not mix. Rank -n stands for the launcher of node n: its lines have no prefix, and
/// its streams stay open until collect_rest(-n). Not thread-safe.
class TANDEM_API RankOutput {
 public:
  /// Creates `log_dir` if it is missing; empty means no logs. Methods throw IoError naming the file that cannot be
  /// written, and StateError if another launcher writes logs of these ranks.
  explicit RankOutput(std::string log_dir);

  /// Call before each start of the ranks. `restart` is 0 for the first start; each restart has its own log files.
  void begin(int restart);
  /// Prepares stream `fd` (1 or 2) of `rank`. Returns the descriptor for the child; empty means that the child
  /// inherits it.
  FileDescriptor open(int rank, int fd, OutputTarget target);

  /// Appends the descriptors to poll.
  void add_polled(std::vector<pollfd>* polled) const;
  /// Forwards available output. Does not block.
  void transfer();
  /// Reads the remaining output of all ranks, including an unterminated last line. Call after they have exited.
  void collect_rest();
  /// Reads the remaining output of one rank that has exited.
  void collect_rest(int rank);
  /// Appends a line of the launcher to stderr's pending output: writing it here could block.
  void print(const std::string& line);
  /// Writes the pending output, waiting up to `timeout_ms` each time the reader is not ready. Returns whether all was
  /// written.
  bool flush(int timeout_ms);

  /// DIR/rank-R.log, or DIR/rank-R.restart-n.log after restart n; empty without logs.
  std::string log_path(int rank) const;
  /// The last lines of the rank's log, indented; each ends with a newline.
  std::string log_tail(int rank) const;

 private:
  /// stdout or stderr of this process with output that could not be written yet, for example to a full pipe.
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
    std::string line;  // incomplete last line
  };
  FileDescriptor open_log(int rank);
  std::string log_path(int rank, int restart) const;
  void transfer(Stream& stream);
  void collect_rest(Stream& stream);
  static void write_line(Stream& stream, bool ended);

  std::string log_dir_;
  std::unique_ptr<LockFile> lock_;  // of the log files
  int restart_ = 0;
  std::vector<bool> truncated_;  // by rank: whether the logs of earlier runs were removed
  Sink sinks_[2];
  std::list<Stream> streams_;
};

}}}  // namespace tandem::v0::distributed
