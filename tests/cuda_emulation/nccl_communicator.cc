#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstring>
#include <functional>
#include <thread>

#include <tandem/tests/cuda_emulation/nccl_communicator.h>

namespace cuda_emulation {
namespace {

using Kind = NcclRequest::Kind;

/// Each kind of collective needs its own links among all ranks; a send or receive needs a link between two ranks.
std::set<NcclBarrier> links_of(const NcclLaunch& launch) {
  std::set<NcclBarrier> links;
  for (const Exchange& e : launch.exchanges) {
    const NcclRequest& r = e.request;
    if (r.kind == Kind::kSend) {
      links.insert({r.rank, r.peer});
    } else if (r.kind == Kind::kRecv) {
      links.insert({r.peer, r.rank});
    } else {
      constexpr size_t kLarge = 4096;  // from this number of bytes on NCCL uses another algorithm, with its own links
      const bool is_large = std::max<size_t>(r.num_bytes, e.recv_bytes) >= kLarge;
      links.insert({NcclBarrier::kAll, 2 * static_cast<int32_t>(r.kind) + (is_large ? 1 : 0)});
    }
  }
  return links;
}

/// A call running on the GPU.  Its outputs are 0xFF until it ends, so that early reads and writes are detected.
struct Transfer {
  NcclLaunch launch;
  std::vector<std::vector<std::byte>> inputs = {};
  bool arrived = false;
  std::shared_ptr<void> graph_reference = {};  // of a captured call

  void begin() {
    inputs.clear();
    arrived = false;
    for (Exchange& e : launch.exchanges) {
      const auto* bytes = static_cast<const std::byte*>(e.send);
      e.bytes.assign(bytes, bytes + e.request.num_bytes);
      inputs.push_back(e.bytes);
    }
    for (const Exchange& e : launch.exchanges) {
      if (e.recv_bytes > 0) std::memset(e.recv, 0xFF, e.recv_bytes);
    }
  }

  void end(Runtime& runtime, Device& device) const {
    if (!arrived) return;  // the call may write until it is aborted
    if (!is_untouched()) {
      runtime.fail(device, "NCCL: memory of " + device.memory.name() + " was written while a call had it");
      return;
    }
    for (const Exchange& e : launch.exchanges) {
      if (e.recv_bytes > 0) std::memcpy(e.recv, e.bytes.data(), e.recv_bytes);
    }
  }

  bool is_untouched() const {
    const auto is_written = [&](const Exchange& in) {
      return std::any_of(launch.exchanges.begin(), launch.exchanges.end(), [&](const Exchange& e) {
        const auto* const from = static_cast<const std::byte*>(in.send);
        const auto* const to = static_cast<const std::byte*>(e.recv);
        return from < to + e.recv_bytes && to < from + in.request.num_bytes;
      });
    };
    for (size_t i = 0; i < inputs.size(); ++i) {
      const Exchange& e = launch.exchanges[i];
      if (!inputs[i].empty() && !is_written(e) && std::memcmp(e.send, inputs[i].data(), inputs[i].size()) != 0)
        return false;
      const auto* const output = static_cast<const std::byte*>(e.recv);
      if (!std::all_of(output, output + e.recv_bytes, [](std::byte byte) { return byte == std::byte{0xFF}; }))
        return false;
    }
    return true;
  }
};

}  // namespace

Communicator::~Communicator() {
  for (const int connection : {for_data_, for_barriers_}) {
    if (connection >= 0) close(connection);
  }
}

void Communicator::start(const std::string& server) {
  std::thread([self = shared_from_this(), server] { self->run_launcher(server); }).detach();
  std::thread([self = shared_from_this()] { self->run_streams(); }).detach();
}

bool Communicator::connect(const std::string& server) {
  const int data =
      connect_to_nccl_server(server);  // first, because the server stops listening once all ranks have joined
  const int barriers = connect_to_nccl_server(server);
  std::lock_guard lock(mutex_);
  for_data_ = data;
  for_barriers_ = barriers;
  return data >= 0 && barriers >= 0 && !aborted_;
}

bool Communicator::join_barrier(const std::vector<NcclBarrier>& barriers) {
  if (barriers.empty()) return true;
  NcclRequest request;
  request.kind = Kind::kBarrier;
  request.rank = rank;
  request.num_ranks = num_ranks;
  std::vector<std::byte> bytes(barriers.size() * sizeof(NcclBarrier));
  std::memcpy(bytes.data(), barriers.data(), bytes.size());
  return send(for_barriers_, request, bytes) && receive(for_barriers_, bytes);
}

void Communicator::run_launcher(const std::string& server) {
  set_current_device(device);
  const bool met = connect(server) && join_barrier({NcclBarrier::hello()});
  std::unique_lock lock(mutex_);
  state_ = met ? ncclSuccess : ncclSystemError;
  changed_.notify_all();
  for (;;) {
    changed_.wait(lock, [&] { return stop_ || !launches_.empty(); });
    if (launches_.empty()) break;
    NcclLaunch launch = std::move(launches_.front());
    lock.unlock();
    std::vector<NcclBarrier> missing;
    for (const NcclBarrier& link : links_of(launch)) {
      if (links_.insert(link).second) missing.push_back(link);
    }
    const bool linked = join_barrier(missing);
    if (linked) queue(std::move(launch));
    lock.lock();
    launches_.pop_front();
    state_ = linked ? ncclSuccess : ncclSystemError;
    changed_.notify_all();
  }
  all_queued_ = true;
  changed_.notify_all();
}

void Communicator::queue(NcclLaunch launch) {
  const auto stream = launch.stream;
  const auto may_launch = std::move(launch.may_launch);
  const auto transfer = std::make_shared<Transfer>(Transfer{std::move(launch)});
  const unsigned int arena = 1U << device;
  Call call;
  Runtime& runtime = call.runtime();
  const auto enqueue = [&](Task::Kind kind, unsigned int arenas, std::function<void()> work) {
    return runtime.enqueue(call.lock(), stream, {kind, arenas, std::move(work), nullptr});
  };
  const bool is_captured = stream->capture != nullptr;
  if (is_captured) {
    ++num_captured_;
    for (Exchange& e : transfer->launch.exchanges) e.request.captured = num_captured_;
    transfer->launch.stream = nullptr;  // the graph's launches have other streams
    transfer->graph_reference = graph_reference();
  }
  enqueue(Task::Kind::kMemory, arena, [transfer] { transfer->begin(); });
  enqueue(Task::Kind::kExternal, kNoArenas,
          [transfer, self = shared_from_this()] { transfer->arrived = self->exchange(transfer->launch.exchanges); });
  Task last = {Task::Kind::kMemory, arena,
               [transfer, &runtime, id = device] { transfer->end(runtime, runtime.device(id)); }, nullptr};
  if (is_captured) {
    last.may_launch = may_launch;
    last.queued = [self = shared_from_this()](const std::shared_ptr<Stream>& on, uint64_t ticket) {
      self->note_queued(on, ticket);
    };
  }
  const uint64_t ticket = runtime.enqueue(call.lock(), stream, std::move(last));
  if (!is_captured) note_queued(stream, ticket);
}

/// The caller holds the runtime's lock.
void Communicator::note_queued(const std::shared_ptr<Stream>& stream, uint64_t ticket) {
  std::lock_guard lock(mutex_);
  last_stream_ = stream;
  last_ticket_ = ticket;
  queued_.emplace_back(stream, ticket);
  changed_.notify_all();
}

/// NCCL destroys a communicator only when the graphs that contain its calls are destroyed.
std::shared_ptr<void> Communicator::graph_reference() {
  {
    std::lock_guard lock(mutex_);
    ++num_graph_references_;
  }
  return {this, [self = shared_from_this()](void*) {
            std::lock_guard lock(self->mutex_);
            --self->num_graph_references_;
            self->changed_.notify_all();
          }};
}

void Communicator::run_streams() {
  set_current_device(device);
  std::unique_lock lock(mutex_);
  for (;;) {
    changed_.wait(lock, [&] { return all_queued_ || !queued_.empty(); });
    if (queued_.empty()) break;
    const auto [stream, ticket] = queued_.front();
    queued_.pop_front();
    lock.unlock();
    {
      Call call;
      call.runtime().force(call.lock(), *stream, ticket);
    }
    lock.lock();
  }
  all_done_ = true;
  changed_.notify_all();
}

bool Communicator::send(int connection, const NcclRequest& request, const std::vector<std::byte>& bytes) {
  NcclRequest header = request;
  header.num_bytes = bytes.size();
  return write_all(connection, &header, sizeof(header)) && write_all(connection, bytes.data(), bytes.size());
}

bool Communicator::receive(int connection, std::vector<std::byte>& bytes) {
  uint64_t num_bytes = 0;
  if (!read_all(connection, &num_bytes, sizeof(num_bytes))) return false;
  bytes.resize(num_bytes);
  return read_all(connection, bytes.data(), num_bytes);
}

/// Runs as a task of the stream. Waits for a rank that has exited as for a late one.
bool Communicator::exchange(std::vector<Exchange>& group) {
  bool good = true;
  const auto make = [&](Exchange& e) {
    good = good && !aborted_ && send(for_data_, e.request, e.bytes);
    if (e.request.kind != Kind::kSend) good = good && receive(for_data_, e.bytes);
  };
  for (Exchange& e : group) {
    if (e.request.kind != Kind::kRecv) make(e);
  }
  for (Exchange& e : group) {
    if (e.request.kind == Kind::kRecv) make(e);
  }
  while (!good && !aborted_) std::this_thread::sleep_for(std::chrono::milliseconds(5));
  return good && !aborted_;
}

void Communicator::launch(NcclLaunch launch) {
  std::lock_guard lock(mutex_);
  state_ = stop_ ? ncclInternalError : ncclInProgress;
  if (!stop_) launches_.push_back(std::move(launch));
  changed_.notify_all();
}

bool Communicator::is_before(const Runtime& runtime, const Stream& stream) {
  std::lock_guard lock(mutex_);
  return launches_.empty() && (last_stream_ == nullptr || runtime.is_behind(stream, *last_stream_, last_ticket_));
}

void Communicator::leave() {
  {
    std::unique_lock lock(mutex_);
    stop_ = true;
    changed_.notify_all();
    changed_.wait(lock, [&] { return all_done_ || aborted_; });
  }
  wait_for_graphs();
  join_barrier({NcclBarrier::goodbye()});
}

void Communicator::wait_for_graphs() {
  std::unique_lock lock(mutex_);
  changed_.wait(lock, [&] { return num_graph_references_ == 0; });
}

void Communicator::abort() {
  std::lock_guard lock(mutex_);
  aborted_ = true;
  for (const int connection : {for_data_, for_barriers_}) {
    if (connection >= 0) shutdown(connection, SHUT_RDWR);
  }
  stop_ = true;
  changed_.notify_all();
}

}  // namespace cuda_emulation
