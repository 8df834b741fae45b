#include <tandem/distributed/group/gpu_messages.h>

#include <algorithm>
#include <bit>
#include <cstring>
#include <utility>

#include <tandem/base/env.h>
#include <tandem/base/error.h>
#include <tandem/distributed/group/argument_checks.h>
#include <tandem/distributed/group/gpu_report.h>
#include <tandem/distributed/group/operation_watch.h>
#include <tandem/tensor/factories.h>
#include <tandem/tensor/primitives.h>

namespace tandem { inline namespace v0 { namespace distributed {

namespace {

constexpr int kListTag = -1;  // of internal messages; tags of callers are not negative
// A list: number of messages, NcclId, then a key for each message.
constexpr int64_t kListNumbers = 64;
constexpr size_t kIdNumbers = sizeof(NcclId) / sizeof(int64_t);
constexpr size_t kMaxListed = kListNumbers - 1 - kIdNumbers;
/// How long the leader waits for the other messages of a batch after the first one was matched. It must not wait
/// longer, because the other rank may start them one by one and wait for each.
constexpr std::chrono::milliseconds kMaxBatchDelay{5};
constexpr int kMaxNcclBlocks = 64;  // NCCL's own limit

int half_of(Device device) { return std::max(1, cuda::device_properties(device).num_multiprocessors / 2); }

/// The identity of a GPU, as in P2pRequest::gpu.
uint64_t identity_of(Device device) {
  const uint64_t hash = hash_name(gpu_identity(device));
  return hash > kNotDirect ? hash : kNotDirect + 1;
}

/// The key of a message, equal on both ranks.
int64_t key_of(const Message& message, bool leads) {
  return message.transfer.number * 2 + (message.transfer.sends == leads ? 1 : 0);
}

}  // namespace

// --- SerialThread ---

void SerialThread::post(std::function<void()> f) {
  if (!thread_.joinable()) thread_ = start_rank_thread([this] { run(); });
  {
    std::lock_guard lock(mutex_);
    functions_.push_back(std::move(f));
  }
  changed_.notify_one();
}

void SerialThread::run() {
  for (;;) {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [&] { return !functions_.empty(); });
    const std::function<void()> f = std::move(functions_.front());
    functions_.pop_front();
    lock.unlock();
    if (!f) return;
    f();
  }
}

void SerialThread::close() {
  if (!thread_.joinable()) return;
  post({});
  thread_.join();
}

// --- thread blocks ---

std::shared_ptr<const int> reserve_blocks(Device device) {
  if (env_string("NCCL_LAUNCH_ORDER_IMPLICIT").value_or("0") != "0") return nullptr;
  struct BlocksInUse {
    std::mutex mutex;
    std::map<int, int> by_gpu;
  };
  static auto* const all = new BlocksInUse;  // never destroyed, because groups may outlive main
  std::unique_lock lock(all->mutex);
  int& used = all->by_gpu[device.index];
  const int left = half_of(device) - used;
  if (left <= 0) return nullptr;
  const auto quarter = static_cast<unsigned int>(std::clamp(left / 4, 1, kMaxNcclBlocks));
  const auto count = static_cast<int>(std::bit_floor(quarter));  // NCCL rounds up
  used += count;
  lock.unlock();
  return {new int(count), [&used](const int* reserved) {
            std::lock_guard releasing(all->mutex);
            used -= *reserved;
            delete reserved;
          }};
}

int max_collective_blocks(Device device) { return std::min(half_of(device), kMaxNcclBlocks); }

// --- GpuMessage ---

/// State of the direct messages between this rank and one other rank. Used by the executor, unless stated.
struct GpuPair {
  const int peer;
  const bool leads;
  const std::shared_ptr<const int> blocks;                // null: no direct messages
  std::optional<NcclId> id = {};                          // constant when it is set
  std::vector<std::shared_ptr<GpuMessage>> matched = {};  // direct messages that are not launched
  // Of a follower:
  std::deque<std::vector<int64_t>> lists = {};  // received, but not launched
  std::shared_ptr<Message> awaited = {};        // receives the next list

  std::shared_ptr<NcclBackend> nccl = {};  // used by the thread
  SerialThread thread = {};                // connects and launches; may wait for the other rank. Ends before the rest
};

GpuMessage::GpuMessage(const Tensor& tensor_, Message& message, std::byte* data) : tensor(tensor_) {
  const P2pRequest& t = message.transfer;
  batch.transfers.push_back({t.sends, data, t.num_elements, t.dtype, cuda::Event(tensor.device())});
  batch.transfers.back().ready.record(cuda::current_stream(tensor.device()));
  batch.kept = std::exchange(message.kept, {});
  batch.before = std::exchange(message.before, {});
  batch.after = std::exchange(message.after, {});
  batch.shown_title = message.title();
  batch.shown = message.shown_name();
  batch.timeout = message.timeout;
}

bool Message::is_complete() const { return gpu != nullptr ? gpu->is_complete.load() : transfer.done; }

void GpuMessage::join() const {
  const auto work = is_complete && task.valid() ? task.get() : nullptr;
  if (work != nullptr) work->join();
}

// --- GpuMessages ---

GpuMessages::GpuMessages(const ProcessGroupOptions& options, NcclBackend::Options nccl, std::function<void()> wake)
    : options_(options),
      nccl_options_(std::move(nccl)),
      wake_(std::move(wake)),
      identity_(identity_of(nccl_options_.device)) {}

GpuMessages::~GpuMessages() { close(); }

void GpuMessages::prepare(std::span<const std::shared_ptr<Message>> messages) {
  std::map<int, std::shared_ptr<int>> unmatched;
  std::lock_guard lock(mutex_);
  for (const auto& message : messages) {
    if (message->gpu == nullptr) continue;
    const int peer = message->transfer.peer;
    std::unique_ptr<GpuPair>& pair = pairs_[peer];
    if (pair == nullptr) pair.reset(new GpuPair{peer, options_.rank < peer, reserve_blocks(device())});
    message->gpu->owner = this;
    message->gpu->pair = pair.get();
    message->transfer.gpu = pair->blocks != nullptr ? identity_ : kNotDirect;
    message->transfer.stage = [this, waiting = message.get()] { stage(*waiting); };
    auto& num_unmatched = unmatched[peer];
    if (num_unmatched == nullptr) num_unmatched = std::make_shared<int>(0);
    message->gpu->num_unmatched = num_unmatched;
    ++*num_unmatched;
  }
}

std::vector<std::shared_ptr<NcclBackend>> GpuMessages::nccl_backends() {
  std::lock_guard lock(mutex_);
  return nccl_backends_;
}

/// Ends all communicators at the same time: each may wait until the other rank ends its own.
void GpuMessages::close() {
  std::map<int, std::unique_ptr<GpuPair>> pairs;
  {
    std::lock_guard lock(mutex_);
    pairs.swap(pairs_);
    nccl_backends_.clear();
  }
  for (const auto& [peer, pair] : pairs) {
    if (pair->id) pair->thread.post([ends = pair.get()] { ends->nccl.reset(); });
  }
  pairs.clear();
  copies_.close();
}

// --- staged messages ---

/// Runs f on the thread. The executor notices when it is done.
GpuTask GpuMessages::post(SerialThread& thread, std::function<std::shared_ptr<GpuWork>()> f) {
  const Promise<std::shared_ptr<GpuWork>> promise;
  thread.post([promise, f = std::move(f), wake = wake_] {
    try {
      promise.set_value(f());
    } catch (...) {
      promise.set_exception(std::current_exception());
    }
    wake();
  });
  return promise.future();
}

/// As P2pRequest::stage.
void GpuMessages::stage(Message& message) {
  GpuMessage& m = *message.gpu;
  --*m.num_unmatched;
  m.host = empty(m.tensor.shape(), {m.tensor.dtype()});
  if (!message.transfer.sends) {
    message.transfer.data = m.host.data_ptr();
    return;
  }
  m.phase = GpuMessage::Phase::kCopyingOut;
  copy(message.gpu);
}

/// Copies the data of a staged message between the GPU and host memory.
void GpuMessages::copy(const std::shared_ptr<GpuMessage>& message) {
  message->task = post(copies_, [message]() -> std::shared_ptr<GpuWork> {
    const GpuTransfer& transfer = message->batch.transfers[0];
    transfer.ready.synchronize();
    const cuda::Stream side = cuda::side_stream(message->tensor.device(), 0);
    const cuda::StreamGuard on(side);
    primitives::copy(transfer.sends ? message->tensor : message->host,
                     transfer.sends ? message->host : message->tensor);
    const cuda::Event copied(message->tensor.device());
    copied.record(side);
    copied.synchronize();
    return nullptr;
  });
}

// --- progress ---

bool GpuMessages::advance(std::vector<std::shared_ptr<Message>>& active) {
  bool moved = false;
  for (const auto& message : active) {
    if (!message->ended && message->gpu != nullptr) moved |= advance_one(*message);
  }
  wake_at_ = Clock::time_point::max();
  std::vector<GpuPair*> pairs;
  {
    std::lock_guard lock(mutex_);
    for (const auto& [peer, pair] : pairs_) pairs.push_back(pair.get());
  }
  for (GpuPair* const pair : pairs) moved |= pair->leads ? lead(*pair, active) : follow(*pair, active);
  return moved;
}

/// Moves the message to its next phase if the previous one is over.
bool GpuMessages::advance_one(Message& message) {
  using Phase = GpuMessage::Phase;
  GpuMessage& m = *message.gpu;
  const bool is_over = m.phase == Phase::kTransferring
                           ? message.transfer.done
                           : m.task.valid() && m.task.is_completed() && !m.task.exception() &&
                                 (m.list == nullptr || m.list->transfer.done);
  if (!is_over) return false;
  if (m.phase == Phase::kCopyingOut) {
    m.phase = Phase::kTransferring;
    message.transfer.data = m.host.data_ptr();
  } else if (m.phase == Phase::kTransferring && message.transfer.direct) {
    m.phase = Phase::kEnding;
    --*m.num_unmatched;
    m.key = key_of(message, m.pair->leads);
    m.matched = Clock::now();
    m.pair->matched.push_back(message.gpu);
  } else if (m.phase == Phase::kTransferring && !message.transfer.sends) {
    m.phase = Phase::kEnding;
    copy(message.gpu);
  } else {
    m.tensor = {};
    m.host = {};
    m.list = {};
    m.is_complete = true;
  }
  return true;
}

/// An internal message with a list of messages, from the leader to the follower.
std::shared_ptr<Message> GpuMessages::list_message(const GpuPair& pair, bool sends, const Tensor& list) const {
  auto message = std::make_shared<Message>();
  const P2POp::Kind kind = sends ? P2POp::Kind::kSend : P2POp::Kind::kRecv;
  prepare_message(*message, "list", options_, {kind, list, pair.peer}, {.name = "messages between GPUs"});
  message->is_internal = true;
  message->timeout = {};
  message->transfer.tag = kListTag;
  return message;
}

/// Launches the matched messages, and sends their list to the follower. Keeps messages of a batch until all of its
/// messages are matched, but at most for kMaxBatchDelay.
bool GpuMessages::lead(GpuPair& pair, std::vector<std::shared_ptr<Message>>& added) {
  if (pair.matched.empty()) return false;
  const Clock::time_point now = Clock::now();
  Matched messages;
  const Tensor list = zeros({kListNumbers}, {kInt64});
  int64_t* const numbers = list.data<int64_t>();
  std::erase_if(pair.matched, [&](const auto& message) {
    const bool is_whole = *message->num_unmatched <= 0;
    if (messages.size() == kMaxListed || (!is_whole && now < message->matched + kMaxBatchDelay)) {
      if (!is_whole) wake_at_ = std::min(wake_at_, message->matched + kMaxBatchDelay);
      return false;
    }
    numbers[1 + kIdNumbers + messages.size()] = message->key;
    messages.push_back(message);
    return true;
  });
  if (messages.empty()) return false;
  if (!pair.id) pair.id = NcclBackend::make_id();
  numbers[0] = static_cast<int64_t>(messages.size());
  std::memcpy(numbers + 1, pair.id->data(), pair.id->size());
  added.push_back(list_message(pair, true, list));
  for (const auto& message : messages) message->list = added.back();
  launch(pair, messages);
  return true;
}

/// Receives the leader's lists and launches their messages, when these are matched on this rank too.
bool GpuMessages::follow(GpuPair& pair, std::vector<std::shared_ptr<Message>>& added) {
  bool moved = false;
  if (pair.awaited != nullptr && pair.awaited->transfer.done) {
    const auto* const numbers = reinterpret_cast<const int64_t*>(pair.awaited->transfer.data);
    const auto count = std::min(static_cast<size_t>(std::max<int64_t>(numbers[0], 0)), kMaxListed);
    const int64_t* const keys = numbers + 1 + kIdNumbers;
    if (!pair.id) std::memcpy(pair.id.emplace().data(), numbers + 1, sizeof(NcclId));
    pair.lists.emplace_back(keys, keys + count);
    pair.awaited = nullptr;
    moved = true;
  }
  const auto find = [&](int64_t key) {
    return std::find_if(pair.matched.begin(), pair.matched.end(), [&](const auto& m) { return m->key == key; });
  };
  const auto is_matched = [&](int64_t key) { return find(key) != pair.matched.end(); };
  while (!pair.lists.empty() && std::all_of(pair.lists.front().begin(), pair.lists.front().end(), is_matched)) {
    Matched messages;
    for (const int64_t key : pair.lists.front()) {
      const auto entry = find(key);
      messages.push_back(*entry);
      pair.matched.erase(entry);
    }
    pair.lists.pop_front();
    launch(pair, messages);
    moved = true;
  }
  const bool is_listed = std::all_of(pair.matched.begin(), pair.matched.end(), [&](const auto& m) {
    return std::any_of(pair.lists.begin(), pair.lists.end(),
                       [&](const auto& list) { return std::find(list.begin(), list.end(), m->key) != list.end(); });
  });
  // A list is received for each matched message that no list contains. So both ranks have equally many internal
  // messages.
  if (is_listed || pair.awaited != nullptr) return moved;
  pair.awaited = list_message(pair, false, zeros({kListNumbers}, {kInt64}));
  added.push_back(pair.awaited);
  return true;
}

// --- launching ---

void GpuMessages::launch(GpuPair& pair, const Matched& messages) {
  const auto batch = std::make_shared<MessageBatch>();
  const bool is_timed =
      std::all_of(messages.begin(), messages.end(), [](const auto& m) { return m->batch.timeout.count() > 0; });
  for (const auto& m : messages) {
    MessageBatch& one = m->batch;
    batch->transfers.push_back(std::move(one.transfers[0]));
    std::move(one.kept.begin(), one.kept.end(), std::back_inserter(batch->kept));
    std::move(one.before.begin(), one.before.end(), std::back_inserter(batch->before));
    std::move(one.after.begin(), one.after.end(), std::back_inserter(batch->after));
    if (is_timed) batch->timeout = std::max(batch->timeout, one.timeout);
    batch->shown += str(batch->shown.empty() ? "" : ", ", one.shown);
    m->tensor = {};
  }
  batch->shown_title = messages.front()->batch.shown_title;
  if (messages.size() > 1) batch->shown_title += str(" and ", messages.size() - 1, " more");
  const GpuTask task = post(pair.thread, [this, &pair, batch] {
    if (pair.nccl == nullptr) connect(pair, batch->timeout);
    return pair.nccl->launch(*batch);
  });
  for (const auto& m : messages) m->task = task;
}

/// Creates the communicator. Blocks until the other rank does so too.
void GpuMessages::connect(GpuPair& pair, std::chrono::milliseconds timeout) {
  NcclBackend::Options nccl_options = nccl_options_;
  nccl_options.rank = pair.leads ? 0 : 1;
  nccl_options.world_size = 2;
  nccl_options.is_ordered = false;
  nccl_options.max_blocks = *pair.blocks;
  const Clock::time_point deadline = timeout.count() > 0 ? Clock::now() + timeout : Clock::time_point::max();
  pair.nccl = NcclBackend::join(std::move(nccl_options), *pair.id, deadline);
  {
    std::lock_guard lock(mutex_);
    nccl_backends_.push_back(pair.nccl);
  }
  if (nccl_options_.latch->is_failing()) pair.nccl->abort_after(std::chrono::milliseconds(0));
}

}}}  // namespace tandem::v0::distributed
