// Data flow of each collective, through the slots and in rounds.
#include <algorithm>

#include <tandem/base/error.h>
#include <tandem/distributed/backends/shm/copy.h>
#include <tandem/distributed/backends/shm/shm_backend.h>
#include <tandem/tensor/reduce.h>

namespace tandem { inline namespace v0 { namespace distributed::shm {

ShmBackend::Block ShmBackend::block(int64_t index, int64_t num_bytes) const {
  const int64_t begin = std::min(index * block_bytes_, num_bytes);
  return {begin, std::min(block_bytes_, num_bytes - begin)};
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
  return rank == rank_ || rounds <= 0 ||
         (header(rank).counters.*counter).load(std::memory_order_seq_cst) >= stamp(number_, rounds);
}

bool ShmBackend::can_move(int rank) const {
  if (path_ == Path::kNothing || path_ == Path::kSlots) return true;
  using Counter = std::atomic<int64_t> Counters::*;
  const auto rounds_of = [&](int of, Counter counter) {
    return std::max((header(of).counters.*counter).load(std::memory_order_acquire) - stamp(number_, 0), int64_t{0});
  };
  const auto others_passed = [&](Counter counter, int64_t rounds, bool (ShmBackend::*takes_part)(int) const) {
    for (int other = 0; other < size_; ++other) {
      if (other == rank || (takes_part != nullptr && !(this->*takes_part)(other))) continue;
      if (rounds_of(other, counter) < rounds) return false;
    }
    return true;
  };
  const int64_t staged = rounds_of(rank, &Counters::staged);
  const int64_t produced = rounds_of(rank, &Counters::produced);
  const int64_t consumed = rounds_of(rank, &Counters::consumed);
  const int64_t slots = tuning_.slots;
  switch (path_) {
    case Path::kOneShot:
      return (staged < rounds_ && others_passed(&Counters::consumed, staged + 1 - slots, nullptr)) ||
             (consumed < staged && others_passed(&Counters::staged, consumed + 1, nullptr));
    case Path::kTwoShot:
      return (staged < rounds_ && staged < consumed + slots) ||
             (produced < staged && others_passed(&Counters::staged, produced + 1, nullptr) &&
              others_passed(&Counters::consumed, produced + 1 - slots, nullptr)) ||
             (consumed < staged && others_passed(&Counters::produced, consumed + 1, nullptr));
    default:
      return (sends(rank) && produced < rounds_ &&
              others_passed(&Counters::consumed, produced + 1 - slots, &ShmBackend::takes)) ||
             (takes(rank) && consumed < rounds_ &&
              others_passed(&Counters::produced, consumed + 1, &ShmBackend::contributes));
  }
}

// --- data flow ---

bool ShmBackend::contributes(int rank) const {
  switch (call_->kind) {
    case CollectiveKind::kBarrier: return false;
    case CollectiveKind::kBroadcast:
    case CollectiveKind::kScatter: return rank == call_->root;
    default: return true;
  }
}

bool ShmBackend::takes(int rank) const {
  switch (call_->kind) {
    case CollectiveKind::kBarrier: return false;
    case CollectiveKind::kBroadcast: return rank != call_->root;  // the root has the data already
    case CollectiveKind::kReduce:
    case CollectiveKind::kGather: return rank == call_->root;
    default: return true;
  }
}

bool ShmBackend::sends(int rank) const {
  const bool to_root = call_->kind == CollectiveKind::kReduce || call_->kind == CollectiveKind::kGather;
  return size_ > 1 && contributes(rank) && !(to_root && rank == call_->root);
}

bool ShmBackend::combines() const {
  return call_->kind == CollectiveKind::kAllReduce || call_->kind == CollectiveKind::kReduce ||
         call_->kind == CollectiveKind::kReduceScatter;
}

bool ShmBackend::sends_to_each() const {
  return call_->kind == CollectiveKind::kScatter || call_->kind == CollectiveKind::kReduceScatter ||
         call_->kind == CollectiveKind::kAllToAll;
}

int64_t ShmBackend::part_bytes(int from, int to) const {
  switch (call_->kind) {
    case CollectiveKind::kAllGather: {
      return call_->outputs[static_cast<size_t>(from)].num_elements * size_of(call_->dtype);
    }
    case CollectiveKind::kAllToAll: return parts(from)[to].num_elements * size_of(call_->dtype);
    default: return num_bytes_;
  }
}

const std::byte* ShmBackend::outgoing(int to) const {
  return sends_to_each() ? call_->inputs[static_cast<size_t>(to)].data : call_->input;
}

std::byte* ShmBackend::incoming(int from) const {
  const bool in_parts = call_->kind == CollectiveKind::kGather || call_->kind == CollectiveKind::kAllGather ||
                        call_->kind == CollectiveKind::kAllToAll;
  return in_parts ? call_->outputs[static_cast<size_t>(from)].data : call_->output;
}

void ShmBackend::choose_path() {
  // Ranks with equal signatures (and counts, once they are known) choose the same path. Before the counts are known, a
  // rank of an all_to_all knows only its own parts. It writes them into its slot in case all ranks can do so.
  path_ = Path::kNothing;
  fills_rings_ = false;
  if (!call_->moves_data) return;
  const bool to_each = sends_to_each();
  int64_t longest = num_bytes_;                                                             // of the longest part
  int64_t in_slot = to_each ? (size_ - 1) * round_up(num_bytes_, kAlignment) : num_bytes_;  // in the fullest slot
  if (call_->kind == CollectiveKind::kAllGather) {
    longest = 0;
    for (int from = 0; from < size_; ++from) longest = std::max(longest, part_bytes(from, rank_));
    in_slot = longest;
  }
  if (call_->kind == CollectiveKind::kAllToAll) {
    longest = in_slot = 0;
    for (int from = 0; from < size_; ++from) {
      if (matched_ < size_ && from != rank_) continue;
      for (int to = 0; to < size_; ++to) longest = std::max(longest, part_bytes(from, to));
      in_slot = std::max(in_slot, slot_offset(from, size_));
    }
  }
  if (in_slot <= tuning_.slot_bytes || size_ == 1) {
    path_ = Path::kSlots;
    return;
  }
  int64_t blocks = 1;  // blocks of a part in a round
  int64_t largest = tuning_.chunk_bytes;
  const auto share = [&](int n) { return std::max(tuning_.chunk_bytes / n / kAlignment, int64_t{1}) * kAlignment; };
  if (call_->kind != CollectiveKind::kAllReduce) {
    path_ = Path::kExchange;
    if (to_each) largest = share(size_ - 1);
  } else if (size_ == 2 && num_bytes_ <= tuning_.one_shot_bytes) {
    path_ = Path::kOneShot;
  } else {
    path_ = Path::kTwoShot;
    blocks = size_;
    largest = share(size_);
  }
  const int64_t limit = tuning_.streamed_bytes * (call_->kind == CollectiveKind::kAllReduce ? 1 : 2);
  fills_rings_ = primitives::kHasNontemporalCopy && longest * (to_each ? size_ - 1 : 1) > limit;
  // All rounds have equal size, so the last one is not shorter than the others.
  rounds_ = (longest + blocks * largest - 1) / (blocks * largest);
  TANDEM_CHECK(CommError, rounds_ <= kMaxRounds, to_string(call_->kind), ": ", longest,
               " bytes exceed the limit of the shm backend; use the gloo backend");
  block_bytes_ = std::min(largest, round_up((longest + rounds_ * blocks - 1) / (rounds_ * blocks), kAlignment));
}

// --- through the slots ---

int64_t ShmBackend::slot_offset(int from, int to) const {
  int64_t offset = 0;
  if (!sends_to_each()) return offset;
  for (int rank = 0; rank < to; ++rank) offset += rank == from ? 0 : round_up(part_bytes(from, rank), kAlignment);
  return offset;
}

void ShmBackend::send_to_slot() {
  if (!sends_to_each()) return copy_to_peer(slot(rank_), call_->input, part_bytes(rank_, rank_));
  for (int to = 0; to < size_; ++to) {
    if (to != rank_) copy_to_peer(slot(rank_) + slot_offset(rank_, to), outgoing(to), part_bytes(rank_, to));
  }
}

void ShmBackend::finish_slots() {
  if (!takes(rank_)) return;
  if (combines()) {
    if (size_ == 1) return copy_bytes(call_->output, outgoing(0), num_bytes_);
    for (int from = 0; from < size_; ++from) {
      inputs_[static_cast<size_t>(from)] = from == rank_ ? outgoing(rank_) : slot(from) + slot_offset(from, rank_);
    }
    primitives::reduce(call_->op, call_->dtype, inputs_, call_->num_elements, call_->output);
    return;
  }
  for (int from = 0; from < size_; ++from) {
    if (!contributes(from)) continue;
    const std::byte* data = from == rank_ ? outgoing(rank_) : slot(from) + slot_offset(from, rank_);
    copy_bytes(incoming(from), data, part_bytes(from, rank_));
  }
}

// --- in rounds ---

Advance ShmBackend::step_exchange() {
  const bool sending = sends(rank_);
  const bool taking = takes(rank_);
  const auto all_takers_consumed = [&](int64_t rounds) {
    for (int rank = 0; rank < size_; ++rank) {
      if (takes(rank) && !passed(rank, &Counters::consumed, rounds)) return false;
    }
    return true;
  };
  const auto all_have_sent = [&](int64_t rounds) {
    for (int rank = 0; rank < size_; ++rank) {
      if (contributes(rank) && !passed(rank, &Counters::produced, rounds)) return false;
    }
    return true;
  };
  bool moved = false;
  if (sending && produced_ < rounds_ && all_takers_consumed(produced_ + 1 - tuning_.slots)) {
    run(Stage::kSend, produced_, [&] { send_round(produced_); });
    notifier_.publish(own().counters.produced, stamp(number_, ++produced_));
    moved = true;
  }
  if (taking && consumed_ < rounds_ && all_have_sent(consumed_ + 1)) {
    run(Stage::kTake, consumed_, [&] { take_round(consumed_); });
    notifier_.publish(own().counters.consumed, stamp(number_, ++consumed_));
    moved = true;
  }
  if ((!sending || produced_ == rounds_) && (!taking || consumed_ == rounds_)) return Advance::kDone;
  return moved ? Advance::kMoved : Advance::kIdle;
}

/// Address of the block that `to` reads from `from` in that round.
std::byte* ShmBackend::exchanged(int from, int to, int64_t round) const {
  const int64_t blocks = sends_to_each() ? size_ - 1 : 1;
  const int64_t index = !sends_to_each() ? 0 : to < from ? to : to - 1;
  return segment(from) + layout_.results + ((round % tuning_.slots) * blocks + index) * block_bytes_;
}

void ShmBackend::put(int64_t round, std::byte* out, const std::byte* in, int64_t num_bytes) const {
  if (is_tried() ? store_tuner_.uses_cached_stores(round) : fills_rings_ && store_tuner_.prefers_cached_stores()) {
    copy_bytes(out, in, num_bytes);
  } else {
    copy_to_peer(out, in, num_bytes);
  }
}

void ShmBackend::run(StreamingStoreTuner::Stage stage, int64_t round, FunctionRef<void()> body) {
  if (is_tried()) {
    store_tuner_.run(stage, round, block_bytes_, body);
  } else {
    body();
  }
}

void ShmBackend::send_round(int64_t round) {
  if (!sends_to_each()) {
    const Block b = block(round, part_bytes(rank_, rank_));
    put(round, exchanged(rank_, rank_, round), call_->input + b.begin, b.num_bytes);
    return;
  }
  for (int to = 0; to < size_; ++to) {
    if (to == rank_) continue;
    const Block b = block(round, part_bytes(rank_, to));
    if (b.num_bytes > 0) put(round, exchanged(rank_, to, round), outgoing(to) + b.begin, b.num_bytes);
  }
}

void ShmBackend::take_round(int64_t round) {
  const auto read_from = [&](int from, int64_t begin) {
    return from == rank_ ? outgoing(rank_) + begin : exchanged(from, rank_, round);
  };
  if (combines()) {
    const Block b = block(round, num_bytes_);
    for (int from = 0; from < size_; ++from) inputs_[static_cast<size_t>(from)] = read_from(from, b.begin);
    primitives::reduce(call_->op, call_->dtype, inputs_, b.num_bytes / size_of(call_->dtype), call_->output + b.begin);
    return;
  }
  for (int from = 0; from < size_; ++from) {
    if (!contributes(from)) continue;
    const Block b = block(round, part_bytes(from, rank_));
    if (b.num_bytes > 0) copy_bytes(incoming(from) + b.begin, read_from(from, b.begin), b.num_bytes);
  }
}

}}}  // namespace tandem::v0::distributed::shm
