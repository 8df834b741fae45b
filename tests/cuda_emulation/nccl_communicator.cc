#include <sys/socket.h>
#include <unistd.h>

#include <chrono>
#include <cstring>
#include <thread>

#include <tandem/tests/cuda_emulation/nccl_communicator.h>

namespace cuda_emulation {
namespace {

using Kind = NcclRequest::Kind;

/// Collectives need links among all ranks, of another form for each kind; a message needs one between its two.
std::set<NcclMeeting> links_of(const NcclLaunch& launch) {
  std::set<NcclMeeting> links;
  for (const Exchange& e : launch.exchanges) {
    const NcclRequest& r = e.request;
    if (r.kind == Kind::kSend) {
      links.insert({r.rank, r.peer});
    } else if (r.kind == Kind::kRecv) {
      links.insert({r.peer, r.rank});
    } else {
      links.insert({NcclMeeting::kAll, static_cast<int32_t>(r.kind)});
    }
  }
  return links;
}

}  // namespace

Communicator::~Communicator() {
  for (const int connection : {for_data_, for_meetings_}) {
    if (connection >= 0) close(connection);
  }
}

void Communicator::start(const std::string& server) {
  std::thread([self = shared_from_this(), server] { self->run_launcher(server); }).detach();
  std::thread([self = shared_from_this()] { self->run_streams(); }).detach();
}

// --- the launcher ---

bool Communicator::connect(const std::string& server) {
  const int data = connect_to_nccl_server(server);  // first: the server ends when all have met
  const int meetings = connect_to_nccl_server(server);
  std::lock_guard lock(mutex_);
  for_data_ = data;
  for_meetings_ = meetings;
  return data >= 0 && meetings >= 0 && !aborted_;
}

bool Communicator::meet(const std::vector<NcclMeeting>& meetings) {
  if (meetings.empty()) return true;
  NcclRequest request;
  request.kind = Kind::kMeet;
  request.rank = rank;
  request.num_ranks = num_ranks;
  std::vector<std::byte> bytes(meetings.size() * sizeof(NcclMeeting));
  std::memcpy(bytes.data(), meetings.data(), bytes.size());
  return send(for_meetings_, request, bytes) && receive(for_meetings_, bytes);
}

void Communicator::run_launcher(const std::string& server) {
  const bool met = connect(server) && meet({NcclMeeting::hello()});
  std::unique_lock lock(mutex_);
  state_ = met ? ncclSuccess : ncclSystemError;
  changed_.notify_all();
  for (;;) {
    changed_.wait(lock, [&] { return stop_ || !launches_.empty(); });
    if (launches_.empty()) break;
    NcclLaunch launch = std::move(launches_.front());
    lock.unlock();
    std::vector<NcclMeeting> missing;
    for (const NcclMeeting& link : links_of(launch)) {
      if (links_.insert(link).second) missing.push_back(link);
    }
    const bool linked = meet(missing);
    if (linked) queue(std::move(launch));
    lock.lock();
    launches_.pop_front();
    state_ = linked ? ncclSuccess : ncclSystemError;
    changed_.notify_all();
  }
  all_queued_ = true;
  changed_.notify_all();
}

/// Three tasks: the GPU reads, exchanges, writes.
void Communicator::queue(NcclLaunch launch) {
  struct State {
    NcclLaunch launch;
    bool arrived = false;
  };
  const auto stream = launch.stream;
  const auto state = std::make_shared<State>(State{std::move(launch)});
  const unsigned int arena = 1U << device;
  Call call;
  Runtime& runtime = call.runtime();
  const auto is_alive = [&runtime, state] {
    for (const Use& use : state->launch.uses) {
      if (!runtime.is_alive(use, "NCCL")) return false;
    }
    return true;
  };
  runtime.enqueue(call.lock(), stream, {Task::Kind::kMemory, arena, [state, is_alive] {
                    if (!is_alive()) return;
                    for (Exchange& e : state->launch.exchanges) {
                      const auto* bytes = static_cast<const std::byte*>(e.send);
                      e.bytes.assign(bytes, bytes + e.request.num_bytes);
                    }
                  }, nullptr});
  runtime.enqueue(call.lock(), stream, {Task::Kind::kExternal, kNoArenas, [state, self = shared_from_this()] {
                    state->arrived = self->exchange(state->launch.exchanges);
                  }, nullptr});
  const uint64_t ticket = runtime.enqueue(call.lock(), stream, {Task::Kind::kMemory, arena, [state, is_alive] {
                    if (!is_alive() || !state->arrived) return;  // it may write until it is aborted
                    for (const Exchange& e : state->launch.exchanges) {
                      if (e.recv_bytes > 0) std::memcpy(e.recv, e.bytes.data(), e.recv_bytes);
                    }
                  }, nullptr});
  std::lock_guard lock(mutex_);
  last_stream_ = stream;
  last_ticket_ = ticket;
  queued_.emplace_back(stream, ticket);
  changed_.notify_all();
}

// --- the runner ---

void Communicator::run_streams() {
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

/// On the stream's turn.  A rank that is gone is waited for like one that is late.
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

// --- whoever calls ---

ncclResult_t Communicator::wait() {
  std::unique_lock lock(mutex_);
  changed_.wait(lock, [&] { return state_ != ncclInProgress; });
  return state_;
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
  meet({NcclMeeting::goodbye()});
}

void Communicator::abort() {
  std::lock_guard lock(mutex_);
  aborted_ = true;
  for (const int connection : {for_data_, for_meetings_}) {
    if (connection >= 0) shutdown(connection, SHUT_RDWR);
  }
  stop_ = true;
  changed_.notify_all();
}

}  // namespace cuda_emulation
