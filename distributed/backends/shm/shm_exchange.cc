// Data flow of each collective, through the slots and in rounds.
#include <algorithm>

#include <tandem/base/error.h>
#include <tandem/base/math.h>
#include <tandem/distributed/backends/shm/copy.h>
#include <tandem/distributed/backends/shm/shm_backend.h>
#include <tandem/tensor/reduce.h>

namespace tandem { inline namespace v0 { namespace distributed::shm {

ShmBackend::Block ShmBackend::block(int64_t index, int64_t num_bytes) const {
  const int64_t begin = std::min(index * block_bytes_, num_bytes);
  return {begin, std::min(block_bytes_, num_bytes - begin)};
}

// --- progress ---

int64_t ShmBackend::rounds_of(int rank, Counter counter) const {
  return std::max((header(rank).counters.*counter).load(std::memory_order_seq_cst) - stamp(number_, 0), int64_t{0});
}

bool ShmBackend::others_passed(int rank, Counter counter, int64_t rounds,
                               bool (Collective::*takes_part)(int) const) const {
  for (int other = 0; other < size_; ++other) {
    if (other != rank && (call_->*takes_part)(other) && rounds_of(other, counter) < rounds) return false;
  }
  return true;
}

bool ShmBackend::can_stage(int rank) const {
  // A staging slot is free when its round is consumed by its rank: then all peers have produced that round, so they
  // have read the slot.
  const int64_t staged = rounds_of(rank, &Counters::staged);
  return path_ == Path::kTwoShot && staged < rounds_ && staged < rounds_of(rank, &Counters::consumed) + tuning_.slots;
}

bool ShmBackend::can_produce(int rank) const {
  const int64_t produced = rounds_of(rank, &Counters::produced);
  if (!sends(rank) || produced == rounds_) return false;
  const bool has_inputs =
      path_ != Path::kTwoShot || (produced < rounds_of(rank, &Counters::staged) &&
                                  others_passed(rank, &Counters::staged, produced + 1, &Collective::contributes));
  return has_inputs && others_passed(rank, &Counters::consumed, produced + 1 - tuning_.slots, &Collective::takes);
}

bool ShmBackend::can_consume(int rank) const {
  const int64_t consumed = rounds_of(rank, &Counters::consumed);
  if (!call_->takes(rank)) return false;
  // The result of an all_reduce may replace its input, which is sent before.
  const int64_t limit = path_ == Path::kTwoShot   ? rounds_of(rank, &Counters::staged)
                        : path_ == Path::kOneShot ? rounds_of(rank, &Counters::produced)
                                                  : rounds_;
  return consumed < limit && others_passed(rank, &Counters::produced, consumed + 1, &Collective::contributes);
}

bool ShmBackend::can_move(int rank) const {
  return path_ == Path::kNothing || path_ == Path::kSlots || can_stage(rank) || can_produce(rank) || can_consume(rank);
}

Advance ShmBackend::step_rounds() {
  bool moved = false;
  if (can_stage(rank_)) {
    run(Stage::kSend, &Counters::staged, [&](int64_t round) { stage(round); });
    moved = true;
  }
  if (can_produce(rank_)) {
    if (path_ == Path::kTwoShot) {
      run(Stage::kReduce, &Counters::produced, [&](int64_t round) { reduce_round(round); });
    } else {
      run(Stage::kSend, &Counters::produced, [&](int64_t round) { send_round(round); });
    }
    moved = true;
  }
  if (matched_ == size_ && can_consume(rank_)) {
    run(Stage::kTake, &Counters::consumed,
        [&](int64_t round) { path_ == Path::kTwoShot ? copy_results(round) : take_round(round); });
    moved = true;
  }
  const bool has_sent = !sends(rank_) || rounds_of(rank_, &Counters::produced) == rounds_;
  const bool has_taken = !call_->takes(rank_) || rounds_of(rank_, &Counters::consumed) == rounds_;
  return has_sent && has_taken ? Advance::kDone : moved ? Advance::kMoved : Advance::kIdle;
}

// --- data flow ---

bool ShmBackend::sends(int rank) const {
  const bool to_root = call_->kind == CollectiveKind::kReduce || call_->kind == CollectiveKind::kGather;
  return size_ > 1 && call_->contributes(rank) && !(to_root && rank == call_->root);
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
    if (to != rank_) copy_to_peer(slot(rank_) + slot_offset(rank_, to), call_->data_to(to), part_bytes(rank_, to));
  }
}

void ShmBackend::finish_slots() {
  if (!call_->takes(rank_)) return;
  if (is_reduction(call_->kind)) {
    if (size_ == 1) return copy_bytes(call_->output, call_->data_to(0), num_bytes_);
    for (int from = 0; from < size_; ++from) {
      inputs_[static_cast<size_t>(from)] =
          from == rank_ ? call_->data_to(rank_) : slot(from) + slot_offset(from, rank_);
    }
    primitives::reduce(call_->op, call_->dtype, inputs_, call_->num_elements, call_->output);
    return;
  }
  for (int from = 0; from < size_; ++from) {
    if (!call_->contributes(from)) continue;
    const std::byte* data = from == rank_ ? call_->data_to(rank_) : slot(from) + slot_offset(from, rank_);
    copy_bytes(call_->data_from(from), data, part_bytes(from, rank_));
  }
}

// --- in rounds ---

/// Address of the block that `to` reads from `from` in that round.
std::byte* ShmBackend::exchanged(int from, int to, int64_t round) const {
  const int64_t blocks = sends_to_each() ? size_ - 1 : 1;
  const int64_t index = !sends_to_each() ? 0 : to < from ? to : to - 1;
  // Of a one-shot all_reduce, collectives with odd and even numbers use separate rings.
  const size_t ring = path_ == Path::kOneShot
                          ? layout_.staging + static_cast<size_t>(buffer_index_) * layout_.ring_bytes
                          : layout_.results;
  return segment(from) + ring + ((round % tuning_.slots) * blocks + index) * block_bytes_;
}

void ShmBackend::put(int64_t round, std::byte* out, const std::byte* in, int64_t num_bytes) const {
  if (is_tried() ? store_tuner_.uses_cached_stores(round) : fills_rings_ && store_tuner_.prefers_cached_stores()) {
    copy_bytes(out, in, num_bytes);
  } else {
    copy_to_peer(out, in, num_bytes);
  }
}

void ShmBackend::run(Stage stage, Counter counter, FunctionRef<void(int64_t round)> body) {
  const int64_t round = rounds_of(rank_, counter);
  if (is_tried()) {
    store_tuner_.run(stage, round, block_bytes_, [&] { body(round); });
  } else {
    body(round);
  }
  notifier_.publish(own().counters.*counter, stamp(number_, round + 1));
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
    if (b.num_bytes > 0) put(round, exchanged(rank_, to, round), call_->data_to(to) + b.begin, b.num_bytes);
  }
}

void ShmBackend::take_round(int64_t round) {
  const auto read_from = [&](int from, int64_t begin) {
    return from == rank_ ? call_->data_to(rank_) + begin : exchanged(from, rank_, round);
  };
  if (is_reduction(call_->kind)) {
    const Block b = block(round, num_bytes_);
    for (int from = 0; from < size_; ++from) inputs_[static_cast<size_t>(from)] = read_from(from, b.begin);
    primitives::reduce(call_->op, call_->dtype, inputs_, b.num_bytes / size_of(call_->dtype), call_->output + b.begin);
    return;
  }
  for (int from = 0; from < size_; ++from) {
    if (!call_->contributes(from)) continue;
    const Block b = block(round, part_bytes(from, rank_));
    if (b.num_bytes > 0) copy_bytes(call_->data_from(from) + b.begin, read_from(from, b.begin), b.num_bytes);
  }
}

// --- two-shot all_reduce ---

std::byte* ShmBackend::staging(int rank, int64_t round, int reducer) const {
  return segment(rank) + layout_.staging + ((round % tuning_.slots) * size_ + reducer) * block_bytes_;
}

std::byte* ShmBackend::results(int rank, int64_t round) const {
  return segment(rank) + layout_.results + (round % tuning_.slots) * block_bytes_;
}

void ShmBackend::stage(int64_t round) {
  for (int reducer = 0; reducer < size_; ++reducer) {
    if (reducer == rank_) continue;
    const Block b = block(round * size_ + reducer, num_bytes_);
    put(round, staging(rank_, round, reducer), call_->input + b.begin, b.num_bytes);
  }
}

void ShmBackend::reduce_round(int64_t round) {
  const Block b = block(round * size_ + rank_, num_bytes_);
  for (int rank = 0; rank < size_; ++rank) {
    inputs_[static_cast<size_t>(rank)] = rank == rank_ ? call_->input + b.begin : staging(rank, round, rank_);
  }
  // Reduces in tiles that are still in the L1 cache when they are sent.
  constexpr int64_t kTileBytes = 8 << 10;
  for (int64_t done = 0; done < b.num_bytes; done += kTileBytes) {
    const int64_t num_bytes = std::min(kTileBytes, b.num_bytes - done);
    std::byte* out = call_->output + b.begin + done;
    primitives::reduce(call_->op, call_->dtype, inputs_, num_bytes / size_of(call_->dtype), out);
    put(round, results(rank_, round) + done, out, num_bytes);
    for (const std::byte*& input : inputs_) input += num_bytes;
  }
}

void ShmBackend::copy_results(int64_t round) {
  for (int rank = 0; rank < size_; ++rank) {
    if (rank == rank_) continue;
    const Block b = block(round * size_ + rank, num_bytes_);
    copy_bytes(call_->output + b.begin, results(rank, round), b.num_bytes);
  }
}

}}}  // namespace tandem::v0::distributed::shm
