// Which data each rank sends to each other rank, for each kind of collective.
#include <algorithm>
#include <cstring>

#include <tandem/base/math.h>
#include <tandem/distributed/backends/network/network_backend.h>
#include <tandem/tensor/reduce.h>

namespace tandem { inline namespace v0 { namespace distributed::network {

NetworkBackend::Slice NetworkBackend::slice(int64_t total, int index, int count) {
  const int64_t each = round_up((total + count - 1) / count, kUnit);
  const int64_t begin = std::min(index * each, total);
  return {begin, std::min(each, total - begin)};
}

NetworkBackend::Slice NetworkBackend::input_of(int rank, int64_t total) const {
  if (size_ == 2 || total <= static_cast<int64_t>(kInlineBytes)) return {0, total};
  return slice(total, rank, size_);
}

int64_t NetworkBackend::smallest_first_stream(const Collective& collective) const {
  const int64_t smallest_slice = collective.num_bytes() / size_ - kUnit * size_;
  switch (collective.kind) {
    case CollectiveKind::kAllReduce:
    case CollectiveKind::kReduce:
    case CollectiveKind::kBroadcast: return smallest_slice;
    case CollectiveKind::kReduceScatter: return collective.num_bytes();
    case CollectiveKind::kAllGather:
      return collective.outputs[static_cast<size_t>(rank_)].num_elements * size_of(collective.dtype);
    default: return 0;
  }
}

void NetworkBackend::plan() {
  if (!call_->moves_data) return;
  switch (call_->kind) {
    case CollectiveKind::kAllReduce: plan_reduction(true); break;
    case CollectiveKind::kReduce: plan_reduction(false); break;
    case CollectiveKind::kBroadcast: plan_broadcast(); break;
    case CollectiveKind::kBarrier: break;
    default: plan_parts();
  }
}

/// Every rank reduces one slice of all inputs, so the order of sums (tensor/sum_order.h) needs no transfers: each rank
/// sends and receives 2 (N - 1) / N of the tensor in two steps, the least bytes for any order. Two ranks, and small
/// tensors, exchange whole inputs in one step.
void NetworkBackend::plan_reduction(bool to_all) {
  const int64_t total = call_->num_bytes();
  const bool gets_result = to_all || call_->root == rank_;
  if (size_ == 2 || total <= static_cast<int64_t>(kInlineBytes)) {
    for (int rank = 0; rank < size_; ++rank) {
      if (!is_peer(rank)) continue;
      if (to_all || call_->root == rank) peer(rank).out[0] = {call_->input, total};
      if (gets_result) peer(rank).in[0] = {nullptr, total};
    }
    if (!gets_result) return;
    reduction_ = {call_->input, call_->output, total};
    reduction_.in_place = to_all && call_->input == call_->output;
    return;
  }
  const Slice own = slice(total, rank_, size_);
  reduction_ = {call_->input + own.begin, nullptr, own.num_bytes};
  if (gets_result) {
    reduction_.out = call_->output + own.begin;
  } else {  // the caller's tensor must not change: results are kept in a ring until they have arrived
    reduction_.ring = std::min(round_up(own.num_bytes, kUnit), 4 * chunk_bytes(own.num_bytes));
    scratch_.resize(static_cast<size_t>(reduction_.ring));
    reduction_.out = scratch_.data();
  }
  for (int rank = 0; rank < size_; ++rank) {
    if (!is_peer(rank)) continue;
    const Slice theirs = input_of(rank, total);
    Peer& p = peer(rank);
    p.out[0] = {call_->input + theirs.begin, theirs.num_bytes};
    p.in[0] = {nullptr, own.num_bytes};
    if (to_all || call_->root == rank) {
      p.out[1] = {reduction_.out, own.num_bytes};
      p.out[1].ring = reduction_.ring;
    }
    if (gets_result) p.in[1] = {call_->output + theirs.begin, theirs.num_bytes};
  }
}

void NetworkBackend::plan_broadcast() {
  const int64_t total = call_->num_bytes();
  const int root = call_->root;
  if (size_ == 2 || total <= static_cast<int64_t>(kInlineBytes)) {
    for (int rank = 0; rank < size_; ++rank) {
      if (is_peer(rank) && rank_ == root) peer(rank).out[0] = {call_->input, total};
    }
    if (rank_ != root) peer(root).in[0] = {call_->output, total};
    return;
  }
  // Slices are numbered by rank; the root is skipped.
  const auto slice_of = [&](int rank) { return slice(total, rank < root ? rank : rank - 1, size_ - 1); };
  if (rank_ == root) {
    for (int rank = 0; rank < size_; ++rank) {
      if (!is_peer(rank)) continue;
      const Slice theirs = slice_of(rank);
      peer(rank).out[0] = {call_->input + theirs.begin, theirs.num_bytes};
    }
    return;
  }
  const Slice own = slice_of(rank_);
  forwards_from_ = root;
  peer(root).in[0] = {call_->output + own.begin, own.num_bytes};
  for (int rank = 0; rank < size_; ++rank) {
    if (!is_peer(rank) || rank == root) continue;
    const Slice theirs = slice_of(rank);
    peer(rank).out[1] = {call_->output + own.begin, own.num_bytes};
    peer(rank).in[1] = {call_->output + theirs.begin, theirs.num_bytes};
  }
}

void NetworkBackend::plan_parts() {
  const int64_t element = size_of(call_->dtype);
  const int64_t total = call_->num_bytes();
  const bool is_root = call_->root == rank_;
  const auto input = [&](int rank) { return call_->inputs[static_cast<size_t>(rank)]; };
  const auto output = [&](int rank) { return call_->outputs[static_cast<size_t>(rank)]; };
  for (int rank = 0; rank < size_; ++rank) {
    if (!is_peer(rank)) continue;
    Peer& p = peer(rank);
    switch (call_->kind) {
      case CollectiveKind::kAllGather:
        p.out[0] = {call_->input, output(rank_).num_elements * element};
        p.in[0] = {output(rank).data, output(rank).num_elements * element};
        break;
      case CollectiveKind::kGather:
        if (rank == call_->root) p.out[0] = {call_->input, total};
        if (is_root) p.in[0] = {output(rank).data, total};
        break;
      case CollectiveKind::kScatter:
        if (is_root) p.out[0] = {input(rank).data, total};
        if (rank == call_->root) p.in[0] = {call_->output, total};
        break;
      case CollectiveKind::kReduceScatter:
        p.out[0] = {input(rank).data, total};
        p.in[0] = {nullptr, total};
        break;
      case CollectiveKind::kAllToAll:
        p.out[0] = {input(rank).data, input(rank).num_elements * element};
        p.in[0] = {output(rank).data, output(rank).num_elements * element};
        break;
      default: break;
    }
  }
  switch (call_->kind) {
    case CollectiveKind::kAllGather:
      plan_own_part(call_->input, output(rank_).data, output(rank_).num_elements * element);
      break;
    case CollectiveKind::kGather:
      if (is_root) plan_own_part(call_->input, output(rank_).data, total);
      break;
    case CollectiveKind::kScatter:
      if (is_root) plan_own_part(input(rank_).data, call_->output, total);
      break;
    case CollectiveKind::kReduceScatter: reduction_ = {input(rank_).data, call_->output, total}; break;
    case CollectiveKind::kAllToAll:
      plan_own_part(input(rank_).data, output(rank_).data,
                    std::min(input(rank_).num_elements, output(rank_).num_elements) * element);
      break;
    default: break;
  }
}

void NetworkBackend::plan_own_part(const std::byte* from, std::byte* to, int64_t num_bytes) {
  own_part_ = from;
  own_target_ = to;
  own_bytes_ = from == to ? 0 : num_bytes;
}

void NetworkBackend::finish_alone() {
  const Collective& c = *call_;
  if (!c.moves_data) return;
  if (c.kind == CollectiveKind::kAllReduce || c.kind == CollectiveKind::kReduce ||
      c.kind == CollectiveKind::kReduceScatter) {
    inputs_[0] = c.kind == CollectiveKind::kReduceScatter ? c.inputs[0].data : c.input;
    primitives::reduce(c.op, c.dtype, inputs_, c.num_elements, c.output);
    return;
  }
  if (c.kind == CollectiveKind::kBroadcast || c.kind == CollectiveKind::kBarrier) return;
  plan_parts();
  if (own_bytes_ > 0) std::memcpy(own_target_, own_part_, static_cast<size_t>(own_bytes_));
}

}}}  // namespace tandem::v0::distributed::network
