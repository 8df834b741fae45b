// all_reduce of data that does not fit into the slots.
#include <algorithm>

#include <tandem/distributed/backends/shm/copy.h>
#include <tandem/distributed/backends/shm/shm_backend.h>
#include <tandem/tensor/reduce.h>

namespace tandem { inline namespace v0 { namespace distributed::shm {

std::byte* ShmBackend::staging(int rank, int64_t round, int reducer) const {
  return segment(rank) + layout_.staging + ((round % tuning_.slots) * size_ + reducer) * block_bytes_;
}

std::byte* ShmBackend::one_shot_input(int rank, int64_t round) const {
  return segment(rank) + layout_.staging + static_cast<size_t>(buffer_index_) * layout_.ring_bytes +
         (round % tuning_.slots) * block_bytes_;
}

std::byte* ShmBackend::results(int rank, int64_t round) const {
  return segment(rank) + layout_.results + (round % tuning_.slots) * block_bytes_;
}

Advance ShmBackend::step_one_shot() {
  bool moved = false;
  // Sends before the signatures are compared: peers have completed the last collective that used this ring, as for the
  // slots. A ring slot is free when all peers have consumed the previous round in it.
  if (staged_ < rounds_ && peers_passed(&Counters::consumed, staged_ + 1 - tuning_.slots)) {
    run(Stage::kSend, staged_, [&] {
      const Block b = block(staged_, num_bytes_);
      put(staged_, one_shot_input(rank_, staged_), call_->input + b.begin, b.num_bytes);
    });
    notifier_.publish(own().counters.staged, stamp(number_, ++staged_));
    moved = true;
  }
  if (matched_ == size_ && consumed_ < staged_ && peers_passed(&Counters::staged, consumed_ + 1)) {
    run(Stage::kReduce, consumed_, [&] { reduce_one_shot(consumed_); });
    notifier_.publish(own().counters.consumed, stamp(number_, ++consumed_));
    moved = true;
  }
  return consumed_ == rounds_ ? Advance::kDone : moved ? Advance::kMoved : Advance::kIdle;
}

void ShmBackend::reduce_one_shot(int64_t round) {
  const Block b = block(round, num_bytes_);
  for (int rank = 0; rank < size_; ++rank) {
    inputs_[static_cast<size_t>(rank)] = rank == rank_ ? call_->input + b.begin : one_shot_input(rank, round);
  }
  primitives::reduce(call_->op, call_->dtype, inputs_, b.num_bytes / size_of(call_->dtype), call_->output + b.begin);
}

Advance ShmBackend::step_two_shot() {
  const int64_t slots = tuning_.slots;
  bool moved = false;
  // A staging slot is free when its round is consumed here: then all peers have produced that round, so they have read
  // the slot.
  if (staged_ < rounds_ && staged_ < consumed_ + slots) {
    run(Stage::kSend, staged_, [&] { stage(staged_); });
    notifier_.publish(own().counters.staged, stamp(number_, ++staged_));
    moved = true;
  }
  if (produced_ < staged_ && peers_passed(&Counters::staged, produced_ + 1) &&
      peers_passed(&Counters::consumed, produced_ + 1 - slots)) {
    run(Stage::kReduce, produced_, [&] { reduce_round(produced_); });
    notifier_.publish(own().counters.produced, stamp(number_, ++produced_));
    moved = true;
  }
  if (consumed_ < staged_ && peers_passed(&Counters::produced, consumed_ + 1)) {
    run(Stage::kTake, consumed_, [&] { copy_results(consumed_); });
    notifier_.publish(own().counters.consumed, stamp(number_, ++consumed_));
    moved = true;
  }
  if (produced_ == rounds_ && consumed_ == rounds_) return Advance::kDone;
  return moved ? Advance::kMoved : Advance::kIdle;
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
