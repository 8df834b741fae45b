#include <tandem/distributed/shm/shm_backend.h>

#include <sys/mman.h>

#include <algorithm>
#include <bit>
#include <cstring>

#include <tandem/base/trace.h>
#include <tandem/distributed/reduce_kernels.h>
#include <tandem/distributed/shm/futex.h>
#include <tandem/distributed/shm/join.h>
#include <tandem/distributed/shm/stream_copy_avx2.h>
#include <tandem/distributed/store/failure_board.h>

namespace tandem::inline v0::distributed::shm {

namespace {

constexpr int64_t kAlignment = 64;
constexpr int64_t kFewBytes = 256;  // up to here the way through the cache is the shorter
// A rank that was killed between advancing a counter and ringing leaves sleepers; this is how long they oversleep.
constexpr std::chrono::milliseconds kLongestSleep{50};

int64_t round_up(int64_t n, int64_t multiple) { return (n + multiple - 1) / multiple * multiple; }

/// Whether each rank can have a core of its own.
bool cores_suffice(const Mapping& mapping, int size) {
  uint64_t all[16] = {};
  for (int rank = 0; rank < size; ++rank) {
    for (size_t i = 0; i < std::size(all); ++i) all[i] |= mapping.header(rank).cores[i];
  }
  int count = 0;
  for (const uint64_t part : all) count += std::popcount(part);
  return size <= count;
}

/// Copies to where peers read next.  Lines that lie dirty in this core's cache reach another core many times slower
/// than lines in memory, where the two cores share no cache; where they do, past the caches costs little.
void send(std::byte* out, const std::byte* in, int64_t num_bytes) {
#if defined(__x86_64__) && !defined(__SANITIZE_THREAD__)  // which does not see what intrinsics store
  if (num_bytes > kFewBytes) {
    stream_copy_avx2(out, in, static_cast<size_t>(num_bytes));
    return;
  }
#endif
  std::memcpy(out, in, static_cast<size_t>(num_bytes));
}

void copy_text(const std::string& text, char* out, size_t room) {
  const size_t n = std::min(text.size(), room - 1);
  std::memcpy(out, text.data(), n);
  out[n] = 0;
}

}  // namespace

ShmBackend::ShmBackend(const ProcessGroupOptions& options, const Tuning& tuning)
    : options_(options),
      rank_(options.rank),
      size_(options.world_size),
      tuning_(tuning),
      layout_(options.world_size, tuning_),
      mapping_(join(options, layout_)),
      inputs_(static_cast<size_t>(options.world_size)),
      poisoned_(static_cast<size_t>(options.world_size)) {
  may_spin_ = cores_suffice(*mapping_, size_);
}

int64_t ShmBackend::part_bytes() const {
  return call_->kind == CollectiveKind::kAllGather ? call_->num_bytes() / size_ : call_->num_bytes();
}

std::byte* ShmBackend::slot(int rank) const {
  return segment(rank) + layout_.slots + static_cast<size_t>(parity_ * tuning_.slot_bytes);
}

// --- waking and being woken ---

template <class T>
void ShmBackend::publish(std::atomic<T>& counter, T value) {
  // Sequentially consistent on both sides: either this rank sees that a peer is about to sleep and rings, or the peer,
  // who looks once more after saying so, sees the counter.
  counter.store(value, std::memory_order_seq_cst);
  for (int rank = 0; rank < size_; ++rank) {
    if (rank != rank_ && header(rank).sleepers.load(std::memory_order_seq_cst) != 0) ring(rank);
  }
}

void ShmBackend::ring(int rank) const {
  std::atomic<uint32_t>& count = mapping_->doorbell(rank).count;
  count.fetch_add(1, std::memory_order_seq_cst);
  futex_wake_all(count);
}

void ShmBackend::do_sleep(FunctionRef<bool()> changed, Clock::time_point until) {
  std::atomic<uint32_t>& count = mapping_->doorbell(rank_).count;
  own().sleepers.fetch_add(1, std::memory_order_seq_cst);
  const uint32_t before = count.load(std::memory_order_seq_cst);
  if (!changed()) {
    const auto left = until - Clock::now();
    if (left > left.zero()) futex_wait(count, before, std::min<std::chrono::nanoseconds>(left, kLongestSleep));
  }
  own().sleepers.fetch_sub(1, std::memory_order_seq_cst);
}

void ShmBackend::do_wake() { ring(rank_); }

void ShmBackend::do_abort(int culprit, const std::string& reason) {
  Poison& poison = own().poison;
  uint32_t state = Poison::kClean;
  if (!poison.state.compare_exchange_strong(state, Poison::kWriting)) return;
  poison.culprit = culprit;
  copy_text(reason, poison.reason, sizeof(poison.reason));
  poison.state.store(Poison::kWritten, std::memory_order_seq_cst);
  for (int rank = 0; rank < size_; ++rank) ring(rank);
}

void ShmBackend::do_hear_failure(int culprit, const std::string& reason) {
  {
    std::lock_guard lock(failures_mutex_);
    failures_.push_back({culprit, reason});
    num_failures_.store(failures_.size(), std::memory_order_release);
  }
  ring(rank_);
}

bool ShmBackend::is_missing(int rank) const { return header(rank).finished.load(std::memory_order_acquire) < number_; }

void ShmBackend::fail(int culprit, const std::string& reason) const {
  throw GroupError(failure_text(" failed", culprit, reason), reason, culprit);
}

// --- one collective ---

void ShmBackend::do_start(const Collective& collective) {
  call_ = &collective;
  parity_ = static_cast<int>(++number_ & 1);
  const int64_t num_bytes = part_bytes();
  choose_path(num_bytes);
  matched_ = 0;
  staged_ = produced_ = consumed_ = 0;
  sources_ = collective.kind == CollectiveKind::kBroadcast ? collective.root == rank_
                                                           : collective.kind != CollectiveKind::kBarrier;

  SegmentHeader& header = own();
  Shown& shown = header.shown[parity_];
  shown.dims = static_cast<int32_t>(std::min<size_t>(collective.shape.size(), kMaxShownDims));
  std::copy_n(collective.shape.begin(), shown.dims, shown.shape);
  copy_text(collective.name, shown.name, sizeof(shown.name));
  shown.line = collective.where.line();
  const std::string_view file = collective.where.file_name();
  const size_t file_size = std::min(file.size(), sizeof(shown.file) - 1);
  std::memcpy(shown.file, file.data(), file_size);
  shown.file[file_size] = 0;

  if (path_ == Path::kSlots && sources_ && size_ > 1) send(slot(rank_), collective.input, num_bytes);
  header.reached_ns.store(trace_now_ns(), std::memory_order_relaxed);
  header.reached.store(collective.seq, std::memory_order_release);
  Record& record = header.records[parity_];
  record.signature = collective;
  publish(record.seq, number_);
}

void ShmBackend::choose_path(int64_t num_bytes) {
  // A function of the signature alone, so that ranks whose signatures are equal take the same.
  if (num_bytes <= tuning_.slot_bytes || size_ == 1) {
    path_ = Path::kSlots;
    return;
  }
  int64_t blocks = 1;  // in a round
  int64_t largest = tuning_.chunk_bytes;
  if (call_->kind != CollectiveKind::kAllReduce) {
    path_ = Path::kTransfer;
  } else if (size_ == 2 && num_bytes <= tuning_.whole_bytes) {
    path_ = Path::kWhole;
  } else {
    path_ = Path::kSlices;
    blocks = size_;
    largest = std::max(tuning_.chunk_bytes / size_ / kAlignment, int64_t{1}) * kAlignment;
  }
  // Equal rounds, so that the last is as long as the others.
  rounds_ = (num_bytes + blocks * largest - 1) / (blocks * largest);
  TANDEM_CHECK(CommError, rounds_ <= kMaxRounds, to_string(call_->kind), ": ", num_bytes, " bytes are too many");
  block_bytes_ = std::min(largest, round_up((num_bytes + rounds_ * blocks - 1) / (rounds_ * blocks), kAlignment));
}

Advance ShmBackend::do_advance() {
  // Failures are read before the counters: what a rank published before it failed still counts.
  const size_t num_heard = num_failures_.load(std::memory_order_acquire);
  int poisoned = -1;
  for (int rank = size_ - 1; rank >= 0; --rank) {
    if (header(rank).poison.state.load(std::memory_order_seq_cst) == Poison::kWritten && is_missing(rank))
      poisoned = rank;
  }
  const Advance result = step();
  if (result == Advance::kDone) own().finished.store(number_, std::memory_order_release);
  if (result != Advance::kIdle) return result;
  if (poisoned >= 0) fail(header(poisoned).poison.culprit, header(poisoned).poison.reason);
  if (num_heard > 0) {
    std::lock_guard lock(failures_mutex_);
    for (size_t i = 0; i < num_heard; ++i) {
      const auto& [culprit, reason] = failures_[i];
      const auto member = std::find(options_.ranks.begin(), options_.ranks.end(), culprit);
      if (culprit < 0 || is_missing(static_cast<int>(member - options_.ranks.begin()))) fail(culprit, reason);
    }
  }
  return Advance::kIdle;
}

Advance ShmBackend::step() {
  const bool matched = match_records();
  switch (path_) {
    case Path::kSlots:
      if (!matched) return Advance::kIdle;
      finish_slots();
      return Advance::kDone;
    case Path::kWhole: return step_whole();
    case Path::kSlices:
      // Nothing is staged before all have arrived: until then peers may read what a whole exchange left in that ring.
      return matched ? step_slices() : Advance::kIdle;
    case Path::kTransfer: break;
  }
  return matched ? step_transfer() : Advance::kIdle;
}

bool ShmBackend::match_records() {
  const Record& mine = own().records[parity_];
  for (; matched_ < size_; ++matched_) {
    if (matched_ == rank_) continue;
    const Record& theirs = record(matched_);
    if (theirs.seq.load(std::memory_order_seq_cst) != number_) return false;
    if (!(mine.signature == theirs.signature)) throw_mismatch(matched_);
  }
  return true;
}

void ShmBackend::throw_mismatch(int peer) const {
  std::string text = "ranks do not agree on what to exchange";
  for (const int rank : {std::min(rank_, peer), std::max(rank_, peer)}) {
    const Record& r = record(rank);
    const Shown& shown = header(rank).shown[parity_];
    const Shape shape(shown.shape, shown.shape + shown.dims);
    text += str("\n  rank ", job_rank(options_, rank), "  ",
                describe_call(r.signature, shape, shown.name, shown.file, shown.line));
  }
  throw GroupError(": " + text, text, job_rank(options_, peer));
}

void ShmBackend::finish_slots() {
  if (size_ == 1 && call_->input == call_->output) return;
  const size_t num_bytes = static_cast<size_t>(part_bytes());
  switch (call_->kind) {
    case CollectiveKind::kBarrier: break;
    case CollectiveKind::kBroadcast:
      if (call_->root != rank_) std::memcpy(call_->output, slot(call_->root), num_bytes);
      break;
    case CollectiveKind::kAllGather:
      for (int rank = 0; rank < size_; ++rank) {
        const std::byte* from = rank == rank_ ? call_->input : slot(rank);
        std::memcpy(call_->outputs[static_cast<size_t>(rank)].data, from, num_bytes);
      }
      break;
    case CollectiveKind::kAllReduce:
      for (int rank = 0; rank < size_; ++rank)
        inputs_[static_cast<size_t>(rank)] = rank == rank_ ? call_->input : slot(rank);
      reduce(call_->op, call_->dtype, inputs_, call_->num_elements, call_->output);
      break;
    default: throw StateError(str("shm: ", to_string(call_->kind), " is not supported yet"));
  }
}

// --- in rounds ---

ShmBackend::Block ShmBackend::block(int64_t index) const {
  const int64_t begin = std::min(index * block_bytes_, part_bytes());
  return {begin, std::min(block_bytes_, part_bytes() - begin)};
}

std::byte* ShmBackend::staging(int rank, int64_t round, int reducer) const {
  return segment(rank) + layout_.staging + ((round % tuning_.slots) * size_ + reducer) * block_bytes_;
}

std::byte* ShmBackend::whole(int rank, int64_t round) const {
  return segment(rank) + layout_.staging + static_cast<size_t>(parity_) * layout_.ring_bytes +
         (round % tuning_.slots) * block_bytes_;
}

std::byte* ShmBackend::results(int rank, int64_t round) const {
  return segment(rank) + layout_.results + (round % tuning_.slots) * block_bytes_;
}

bool ShmBackend::peers_passed(std::atomic<int64_t> Counters::*counter, int64_t rounds) const {
  if (rounds <= 0) return true;
  const int64_t wanted = stamp(number_, rounds);
  for (int rank = 0; rank < size_; ++rank) {
    if (rank != rank_ && (header(rank).counters.*counter).load(std::memory_order_seq_cst) < wanted) return false;
  }
  return true;
}

bool ShmBackend::passed(int rank, std::atomic<int64_t> Counters::*counter, int64_t rounds) const {
  return rank == rank_ || (header(rank).counters.*counter).load(std::memory_order_seq_cst) >= stamp(number_, rounds);
}

Advance ShmBackend::step_whole() {
  bool moved = false;
  // Sends before the signatures are compared: peers have completed the last collective that used this ring, as for
  // slots. A slot of it is free once all have consumed the round before in it.
  if (staged_ < rounds_ && peers_passed(&Counters::consumed, staged_ + 1 - tuning_.slots)) {
    const Block b = block(staged_);
    send(whole(rank_, staged_), call_->input + b.begin, b.num_bytes);
    publish(own().counters.staged, stamp(number_, ++staged_));
    moved = true;
  }
  if (matched_ == size_ && consumed_ < staged_ && peers_passed(&Counters::staged, consumed_ + 1)) {
    const Block b = block(consumed_);
    for (int rank = 0; rank < size_; ++rank) {
      inputs_[static_cast<size_t>(rank)] = rank == rank_ ? call_->input + b.begin : whole(rank, consumed_);
    }
    reduce(call_->op, call_->dtype, inputs_, b.num_bytes / size_of(call_->dtype), call_->output + b.begin);
    publish(own().counters.consumed, stamp(number_, ++consumed_));
    moved = true;
  }
  return consumed_ == rounds_ ? Advance::kDone : moved ? Advance::kMoved : Advance::kIdle;
}

Advance ShmBackend::step_slices() {
  const int64_t slots = tuning_.slots;
  bool moved = false;
  // A slot of the staging ring is free once its round was consumed here: all peers have produced, that is, read it.
  if (staged_ < rounds_ && staged_ < consumed_ + slots) {
    stage(staged_);
    publish(own().counters.staged, stamp(number_, ++staged_));
    moved = true;
  }
  if (produced_ < staged_ && peers_passed(&Counters::staged, produced_ + 1) &&
      peers_passed(&Counters::consumed, produced_ + 1 - slots)) {
    reduce_round(produced_);
    publish(own().counters.produced, stamp(number_, ++produced_));
    moved = true;
  }
  if (consumed_ < staged_ && peers_passed(&Counters::produced, consumed_ + 1)) {
    copy_results(consumed_);
    publish(own().counters.consumed, stamp(number_, ++consumed_));
    moved = true;
  }
  if (produced_ == rounds_ && consumed_ == rounds_) return Advance::kDone;
  return moved ? Advance::kMoved : Advance::kIdle;
}

void ShmBackend::stage(int64_t round) {
  for (int reducer = 0; reducer < size_; ++reducer) {
    if (reducer == rank_) continue;
    const Block b = block(round * size_ + reducer);
    send(staging(rank_, round, reducer), call_->input + b.begin, b.num_bytes);
  }
}

void ShmBackend::reduce_round(int64_t round) {
  const Block b = block(round * size_ + rank_);
  for (int rank = 0; rank < size_; ++rank) {
    inputs_[static_cast<size_t>(rank)] = rank == rank_ ? call_->input + b.begin : staging(rank, round, rank_);
  }
  // In tiles that are still in the L1 cache when they are sent.
  constexpr int64_t kTileBytes = 8 << 10;
  for (int64_t done = 0; done < b.num_bytes; done += kTileBytes) {
    const int64_t num_bytes = std::min(kTileBytes, b.num_bytes - done);
    std::byte* out = call_->output + b.begin + done;
    reduce(call_->op, call_->dtype, inputs_, num_bytes / size_of(call_->dtype), out);
    send(results(rank_, round) + done, out, num_bytes);
    for (const std::byte*& input : inputs_) input += num_bytes;
  }
}

void ShmBackend::copy_results(int64_t round) {
  for (int rank = 0; rank < size_; ++rank) {
    if (rank == rank_) continue;
    const Block b = block(round * size_ + rank);
    std::memcpy(call_->output + b.begin, results(rank, round), static_cast<size_t>(b.num_bytes));
  }
}

Advance ShmBackend::step_transfer() {
  const bool all_sources = call_->kind == CollectiveKind::kAllGather;
  const bool consumes = all_sources || call_->root != rank_;
  const int first_source = all_sources ? 0 : call_->root;
  const int last_source = all_sources ? size_ - 1 : call_->root;
  bool moved = false;
  if (sources_ && produced_ < rounds_ && peers_passed(&Counters::consumed, produced_ + 1 - tuning_.slots)) {
    const Block b = block(produced_);
    send(results(rank_, produced_), call_->input + b.begin, b.num_bytes);
    publish(own().counters.produced, stamp(number_, ++produced_));
    moved = true;
  }
  if (consumes && consumed_ < rounds_) {
    bool ready = true;
    for (int rank = first_source; rank <= last_source; ++rank) {
      ready &= passed(rank, &Counters::produced, consumed_ + 1);
    }
    if (ready) {
      copy_sources(consumed_);
      publish(own().counters.consumed, stamp(number_, ++consumed_));
      moved = true;
    }
  }
  const bool received = !consumes || consumed_ == rounds_;
  const bool sent = !sources_ || produced_ == rounds_;
  return received && sent ? Advance::kDone : moved ? Advance::kMoved : Advance::kIdle;
}

void ShmBackend::copy_sources(int64_t round) {
  const Block b = block(round);
  const auto copy_from = [&](int rank, std::byte* out) {
    const std::byte* from = rank == rank_ ? call_->input + b.begin : results(rank, round);
    if (from != out) std::memcpy(out, from, static_cast<size_t>(b.num_bytes));
  };
  if (call_->kind == CollectiveKind::kBroadcast) {
    copy_from(call_->root, call_->output + b.begin);
    return;
  }
  for (int rank = 0; rank < size_; ++rank) copy_from(rank, call_->outputs[static_cast<size_t>(rank)].data + b.begin);
}

// --- the rest ---

RefPtr<Storage> ShmBackend::do_allocate(int64_t num_bytes) {
  // What travels goes past the caches into rings.  Peers reading it where it lies was measured: slower by half and more
  // wherever the lines are dirty in the writer's cache, and no faster elsewhere.
  return Storage::allocate(Device(), num_bytes);
}

LastStarted ShmBackend::do_last_started(int rank) const {
  const SegmentHeader& h = header(rank);
  LastStarted last;
  last.seq = h.reached.load(std::memory_order_acquire);
  last.ago = std::chrono::nanoseconds(trace_now_ns() - h.reached_ns.load(std::memory_order_relaxed));
  return last;
}

std::string ShmBackend::describe() const {
  return str("1 host x ", size_, ": shm between ", options_.thread_ranks ? "threads" : "processes");
}

void ShmBackend::do_start_transfer(Transfer&) { throw StateError("shm: messages are not supported yet"); }

Advance ShmBackend::do_advance_transfers() { return Advance::kIdle; }

std::unique_ptr<Backend> make_shm_backend(const ProcessGroupOptions& options, const Tuning& tuning) {
  return std::make_unique<ShmBackend>(options, tuning);
}

}  // namespace tandem::inline v0::distributed::shm
