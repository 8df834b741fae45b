// One rank's end of an emulated NCCL communicator.  Private to the emulation.
//
// Two threads go on by themselves, as NCCL's and the GPU do.  The launcher joins the others, makes the links that a call is the
// first to need, and then queues the call in its stream: until then the communicator's state is ncclInProgress.  The runner runs
// the streams as far as calls are queued in them.  Each has a connection to the server.
#pragma once

#include <atomic>
#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <memory>
#include <mutex>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include <nccl.h>
#include <tandem/tests/cuda_emulation/nccl_server.h>
#include <tandem/tests/cuda_emulation/runtime.h>

namespace cuda_emulation {

/// One call of a group.
struct Exchange {
  NcclRequest request;
  const void* send = nullptr;
  void* recv = nullptr;
  size_t recv_bytes = 0;
  std::vector<std::byte> bytes = {};  // what goes, then what came
};

/// What one ncclGroupEnd, or a call outside of groups, puts into a stream.
struct NcclLaunch {
  std::shared_ptr<Stream> stream;
  std::vector<Exchange> exchanges;
};

/// Safe from many threads.  Its threads and queued tasks keep it: it is left or aborted before it is let go.
class Communicator : public std::enable_shared_from_this<Communicator> {
 public:
  Communicator(int rank_, int num_ranks_, int device_, bool blocking_)
      : rank(rank_), num_ranks(num_ranks_), device(device_), blocking(blocking_) {}
  ~Communicator();
  Communicator(const Communicator&) = delete;
  Communicator& operator=(const Communicator&) = delete;

  const int rank, num_ranks, device;
  const bool blocking;

  /// Begins to join the others.
  void start(const std::string& server);
  ncclResult_t state() const { return state_; }
  /// The state after ncclInProgress.
  ncclResult_t wait();
  /// The state is ncclInProgress from now on.
  void launch(NcclLaunch launch);
  /// Whether all that it launched is over before what is queued on `stream` next.  With the runtime's lock.
  bool is_before(const Runtime& runtime, const Stream& stream);

  /// Ends the threads once what was launched is done, and waits until the other ranks have come as far or are gone.
  void leave();
  /// Ends whatever waits for other ranks; waits for nothing.
  void abort();

 private:
  bool connect(const std::string& server);
  bool meet(const std::vector<NcclMeeting>& meetings);
  void run_launcher(const std::string& server);
  void run_streams();
  void queue(NcclLaunch launch);
  bool exchange(std::vector<Exchange>& group);
  bool send(int connection, const NcclRequest& request, const std::vector<std::byte>& bytes);
  bool receive(int connection, std::vector<std::byte>& bytes);

  std::atomic<ncclResult_t> state_{ncclInProgress};
  std::atomic<bool> aborted_{false};
  std::set<NcclMeeting> links_;  // the launcher's

  std::mutex mutex_;  // guards what follows; after the runtime's
  std::condition_variable changed_;
  int for_data_ = -1, for_meetings_ = -1;  // connections
  bool stop_ = false;                      // nothing is launched any more
  bool all_queued_ = false;                // and the launcher has ended
  bool all_done_ = false;                  // and the runner
  std::deque<NcclLaunch> launches_;        // the first is under way
  std::deque<std::pair<std::shared_ptr<Stream>, uint64_t>> queued_;
  std::shared_ptr<Stream> last_stream_;
  uint64_t last_ticket_ = 0;
};

}  // namespace cuda_emulation
