#include <tandem/distributed/backends/shm/shm_backend.h>

#include <poll.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>

#include <tandem/base/rank_context.h>
#include <tandem/base/trace.h>
#include <tandem/distributed/backends/shm/join.h>

namespace tandem { inline namespace v0 { namespace distributed::shm {

namespace {

// If a rank is killed after it has advanced a counter but before it rings, sleeping peers wake up after this time.
constexpr std::chrono::milliseconds kLongestSleep{50};
// A waiting rank begins to sleep more often than this, also if the machine is loaded.
constexpr std::chrono::nanoseconds kSilence = 6 * kLongestSleep;
// The store reports deaths earlier and knows more about them, unless its host does not respond.
constexpr std::chrono::nanoseconds kStoreTime = std::chrono::seconds(1);

/// Whether the process of `peer` has ended, even if its exit status was not taken. False if this is not known.
bool has_ended(const SegmentHeader& peer, const SegmentHeader& own) {
  if (peer.pid == own.pid || own.pid_namespace == 0 || peer.pid_namespace != own.pid_namespace) return false;
  const FileDescriptor process(static_cast<int>(syscall(SYS_pidfd_open, peer.pid, 0)));
  if (!process) return errno == ESRCH;
  pollfd polled = {process.get(), POLLIN, 0};
  return poll(&polled, 1, 0) > 0;
}

}  // namespace

ShmBackend::ShmBackend(const ProcessGroupOptions& options, const Tuning& tuning)
    : options_(options),
      rank_(options.rank),
      size_(options.world_size),
      tuning_(tuning),
      layout_(options.world_size, tuning_),
      mapping_(join(options, layout_)),
      notifier_(*mapping_, rank_),
      messages_(options_, tuning_, layout_, *mapping_, notifier_),
      death_ns_(static_cast<size_t>(options.world_size)),
      ends_(static_cast<size_t>(options.world_size)),
      inputs_(static_cast<size_t>(options.world_size)),
      store_tuner_(tuning_.trial_bytes) {
  cpu_set_t cores = {};
  for (int rank = 0; rank < size_; ++rank) CPU_OR(&cores, &cores, &header(rank).cores);
  if (size_ <= CPU_COUNT(&cores)) max_polls_ = 1500;  // each rank can have a core of its own
}

std::byte* ShmBackend::slot(int rank) const {
  return segment(rank) + layout_.slots + static_cast<size_t>(buffer_index_ * tuning_.slot_bytes);
}

// --- sleep and wake-up ---

void ShmBackend::do_sleep(FunctionRef<bool()> changed, Clock::time_point until) {
  std::atomic<uint32_t>& count = mapping_->doorbell(rank_).count;
  own().last_sleep_ns.store(trace_now_ns(), std::memory_order_relaxed);
  own().sleepers.fetch_add(1, std::memory_order_seq_cst);
  const uint32_t before = count.load(std::memory_order_seq_cst);
  if (!changed()) {
    const auto left = until - Clock::now();
    if (left > left.zero()) notifier_.wait(before, std::min<std::chrono::nanoseconds>(left, kLongestSleep));
    if (count.load(std::memory_order_relaxed) == before) detect_deaths();
  }
  own().sleepers.fetch_sub(1, std::memory_order_seq_cst);
}

void ShmBackend::do_cancel() {
  own().has_left.store(true, std::memory_order_seq_cst);
  for (int rank = 0; rank < size_; ++rank) notifier_.notify(rank);
}

bool ShmBackend::is_silent(int rank) const {
  // Compared with this rank's last sleep, because all ranks may have been stopped.
  const auto last_sleep = [&](int of) { return header(of).last_sleep_ns.load(std::memory_order_relaxed); };
  return last_sleep(rank_) - last_sleep(rank) > kSilence.count();
}

void ShmBackend::detect_deaths() {
  for (int rank = 0; rank < size_; ++rank) {
    std::atomic<int64_t>& death = death_ns_[static_cast<size_t>(rank)];
    if (rank != rank_ && death == 0 && is_silent(rank) && has_ended(header(rank), own())) death = trace_now_ns();
  }
}

const Backend::PeerEnd* ShmBackend::do_peer_end(int rank) {
  auto& end = ends_[static_cast<size_t>(rank)];
  const int64_t death = death_ns_[static_cast<size_t>(rank)];
  if (!end && header(rank).has_left.load(std::memory_order_seq_cst)) {
    end = {true, "left the group", Clock::now()};
  } else if (!end && death != 0 && trace_now_ns() - death >= kStoreTime.count()) {
    end = {false, "died (its process ended)", Clock::now()};
  }
  return end ? &*end : nullptr;
}

// --- one collective ---

void ShmBackend::do_start(const Collective& collective) {
  call_ = &collective;
  buffer_index_ = static_cast<int>(++number_ & 1);
  num_bytes_ = collective.num_bytes();
  matched_ = 0;
  if (collective.kind == CollectiveKind::kAllToAll) post_parts();
  choose_path();
  if (is_tried()) store_tuner_.begin(num_bytes_);

  SegmentHeader& header = own();
  write_call_info(header.call_info[buffer_index_], collective.shape, collective.name, collective.where);
  const size_t tensors_bytes = collective.tensors.copy(header.tensors[buffer_index_], kMaxShownTensors);
  header.call_info[buffer_index_].tensors_bytes = static_cast<uint32_t>(tensors_bytes);

  if (path_ == Path::kSlots && sends(rank_)) send_to_slot();
  const int previous = 1 - buffer_index_;
  const bool same_text = number_ > 1 && collective.kind == header.signatures[previous].signature.kind &&
                         collective.name == header.call_info[previous].name;
  header.last_collective.write(collective, same_text, trace_now_ns());
  SignatureSlot& signature_slot = header.signatures[buffer_index_];
  signature_slot.signature = collective;
  notifier_.publish(signature_slot.seq, number_);
}

Advance ShmBackend::do_advance() {
  const Advance result = step();
  if (result == Advance::kDone) {
    own().finished.store(number_, std::memory_order_release);
    if (trace_enabled()) {
      constexpr const char* kNames[] = {"nothing", "slots", "one-shot", "two-shot", "exchange"};
      const int64_t now = trace_now_ns();
      record_trace({str(to_string(call_->kind), ": ", kNames[static_cast<int>(path_)]), "algorithm",
                    job_rank(options_, rank_), RankContext::current().trace_thread, now, now});
    }
    if (is_tried()) store_tuner_.end(rounds_);
  }
  return result;
}

Advance ShmBackend::step() {
  const bool matched = match_signatures();
  if (path_ == Path::kOneShot) return step_rounds();  // sends before the signatures are compared
  // Until all ranks have arrived, peers may read data of a one-shot all_reduce in the ring of a two-shot one.
  if (!matched) return Advance::kIdle;
  if (path_ == Path::kTwoShot || path_ == Path::kExchange) return step_rounds();
  if (path_ == Path::kSlots) finish_slots();
  return Advance::kDone;
}

bool ShmBackend::match_signatures() {
  if (matched_ == size_) return true;
  const SignatureSlot& mine = own().signatures[buffer_index_];
  bool some_missing = false;
  for (int rank = matched_; rank < size_; ++rank) {
    if (rank != rank_) {
      const SignatureSlot& theirs = signature_slot(rank);
      if (theirs.seq.load(std::memory_order_seq_cst) != number_) {
        some_missing = true;  // but a later one that differs explains a failure of the group
        continue;
      }
      if (!(mine.signature == theirs.signature)) {
        throw_call_mismatch(options_, {rank_, describe_signature(rank_)}, {rank, describe_signature(rank)});
      }
    }
    if (!some_missing) matched_ = rank + 1;
  }
  if (some_missing) return false;
  if (call_->kind == CollectiveKind::kAllToAll) {
    match_parts();
    choose_path();  // again: now the counts of all ranks are known
  }
  return true;
}

std::string ShmBackend::describe_signature(int rank) const {
  const CallInfo& call_info = header(rank).call_info[buffer_index_];
  const std::string_view tensors(header(rank).tensors[buffer_index_], call_info.tensors_bytes);
  return describe_call(signature_slot(rank).signature, call_info.shape, tensors, call_info.name, call_info.file,
                       call_info.line);
}

const PostedPart* ShmBackend::parts(int rank) const {
  return reinterpret_cast<const PostedPart*>(segment(rank) + layout_.parts +
                                             static_cast<size_t>(buffer_index_) * layout_.parts_bytes);
}

void ShmBackend::post_parts() {
  PostedPart* posted = const_cast<PostedPart*>(parts(rank_));
  for (const auto* const parts : {&call_->inputs, &call_->outputs}) {
    for (const Part& part : *parts) {
      posted->num_elements = part.num_elements;
      posted->shape_hash = hash_shape(part.shape);
      posted->shape = part.shape;
      ++posted;
    }
  }
}

void ShmBackend::match_parts() const {
  // Compares the whole table, so that every rank finds the same pair.
  for (int from = 0; from < size_; ++from) {
    for (int to = 0; to < size_; ++to) {
      const PostedPart& sent = parts(from)[to];
      const PostedPart& expected = parts(to)[size_ + from];
      if (sent.num_elements == expected.num_elements && sent.shape_hash == expected.shape_hash) continue;
      throw_parts_disagree(options_, call_->dtype, {from, describe_signature(from)}, sent.shape,
                           {to, describe_signature(to)}, expected.shape);
    }
  }
}

// --- the rest ---

LastStarted ShmBackend::do_last_started(int rank) const {
  const LastCollective::Seen seen = header(rank).last_collective.read();
  return {seen.seq, std::chrono::nanoseconds(trace_now_ns() - seen.ns), seen.what};
}

std::vector<int> ShmBackend::do_awaited() {
  std::vector<int> ranks;
  for (int rank = 0; rank < size_; ++rank) {
    if (rank == rank_) continue;
    // A rank that has not posted its signature may wait in another part of a composed backend; then it sleeps.
    const bool has_posted = signature_slot(rank).seq.load(std::memory_order_seq_cst) == number_;
    if (matched_ == size_ ? do_needs(rank) && can_move(rank) : !has_posted && is_silent(rank)) ranks.push_back(rank);
  }
  return ranks;
}

std::string ShmBackend::describe() const {
  return str("1 host x ", size_, ": shm between ", options_.thread_ranks ? "threads" : "processes");
}

std::unique_ptr<Backend> make_shm_backend(const ProcessGroupOptions& options, const Tuning& tuning) {
  return std::make_unique<ShmBackend>(options, tuning);
}

}}}  // namespace tandem::v0::distributed::shm
