// A rank of an emulated NCCL communicator. Private to the emulation.
//
// Two threads represent NCCL and the GPU. The launcher joins the other ranks, opens the links that a call is the first
// to need, and queues the call on its stream; until then the communicator's state is ncclInProgress. The runner runs
// the streams as far as calls are queued on them. Each thread has a connection to the server.
#pragma once

#include <atomic>
#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <functional>
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
  std::vector<std::byte> bytes = {};  // input, then output
};

/// The calls that one ncclGroupEnd, or a call outside a group, queues on a stream.
struct NcclLaunch {
  std::shared_ptr<Stream> stream;
  std::vector<Exchange> exchanges;
  /// Of captured calls: whether a graph that contains them may be launched on the stream now.
  std::function<bool(const Stream& stream)> may_launch = {};
};

/// Thread-safe. Its threads and queued tasks hold references; it must be destroyed or aborted before the last reference
/// is dropped.
class Communicator : public std::enable_shared_from_this<Communicator> {
 public:
  Communicator(int rank_, int num_ranks_, int device_, int max_blocks_)
      : rank(rank_), num_ranks(num_ranks_), device(device_), max_blocks(max_blocks_) {}
  ~Communicator();
  Communicator(const Communicator&) = delete;
  Communicator& operator=(const Communicator&) = delete;

  const int rank, num_ranks, device;
  const int max_blocks;  // upper limit of the thread blocks of its kernels

  /// Starts joining the other ranks.
  void start(const std::string& server);
  ncclResult_t state() const { return state_; }
  /// Starts the calls; the state is ncclInProgress until they are queued on their stream.
  void launch(NcclLaunch launch);
  /// Whether all launched calls end before the next task of `stream`. The caller holds the runtime's lock.
  bool is_before(const Runtime& runtime, const Stream& stream);

  /// Ends the threads after all launched calls, and waits until the graphs with captured calls are destroyed and the
  /// other ranks have done so or have exited.
  void leave();
  /// Waits until the graphs with captured calls are destroyed.
  void wait_for_graphs();
  /// Ends all waits for other ranks, without waiting itself.
  void abort();

 private:
  bool connect(const std::string& server);
  bool join_barrier(const std::vector<NcclBarrier>& barriers);
  void run_launcher(const std::string& server);
  void run_streams();
  void queue(NcclLaunch launch);
  void note_queued(const std::shared_ptr<Stream>& stream, uint64_t ticket);
  std::shared_ptr<void> graph_reference();
  bool exchange(std::vector<Exchange>& group);
  bool send(int connection, const NcclRequest& request, const std::vector<std::byte>& bytes);
  bool receive(int connection, std::vector<std::byte>& bytes);

  std::atomic<ncclResult_t> state_{ncclInProgress};
  std::atomic<bool> aborted_{false};
  std::set<NcclBarrier> links_;  // used by the launcher only
  uint64_t num_captured_ = 0;    // captured calls so far; used by the launcher only

  std::mutex mutex_;  // guards the members below; locked after the runtime's mutex
  std::condition_variable changed_;
  int for_data_ = -1, for_barriers_ = -1;  // sockets of connections
  bool stop_ = false;                      // no further launches
  bool all_queued_ = false;                // the launcher has ended
  bool all_done_ = false;                  // the runner has ended
  int num_graph_references_ = 0;           // captured calls whose graph exists
  std::deque<NcclLaunch> launches_;        // the first one is running
  std::deque<std::pair<std::shared_ptr<Stream>, uint64_t>> queued_;
  std::shared_ptr<Stream> last_stream_;
  uint64_t last_ticket_ = 0;
};

}  // namespace cuda_emulation
