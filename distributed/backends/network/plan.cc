// Which data each rank sends to each other rank, for each kind of collective.
#include <algorithm>

#include <tandem/base/math.h>
#include <tandem/distributed/backends/network/network_backend.h>

namespace tandem { inline namespace v0 { namespace distributed::network {

NetworkBackend::Slice NetworkBackend::slice(int64_t total, int index, int count) {
  const int64_t each = round_up((total + count - 1) / count, kUnit);
  const int64_t begin = std::min(index * each, total);
  return {begin, std::min(each, total - begin)};
}

NetworkBackend::Slice NetworkBackend::input_of(int rank, int64_t total) const {
  return is_exchanged(total) ? Slice{0, total} : slice(total, rank, size_);
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
  const bool has_slices = call_->kind == CollectiveKind::kAllReduce || call_->kind == CollectiveKind::kReduce ||
                          call_->kind == CollectiveKind::kBroadcast;
  if (!has_slices || is_exchanged(call_->num_bytes())) return plan_exchange();
  call_->kind == CollectiveKind::kBroadcast ? plan_broadcast() : plan_reduction();
}

/// In one step, each rank sends its data to the ranks that take it.
void NetworkBackend::plan_exchange() {
  const Collective& c = *call_;
  const auto num_bytes = [&](const std::vector<Part>& parts, int rank) {
    return (parts.empty() ? c.num_elements : parts[static_cast<size_t>(rank)].num_elements) * size_of(c.dtype);
  };
  const bool reduces = is_reduction(c.kind);
  for (int rank = 0; rank < size_; ++rank) {
    const bool sends = c.contributes(rank_) && c.takes(rank);
    const bool receives = c.takes(rank_) && c.contributes(rank);
    const bool is_own_part = c.kind == CollectiveKind::kAllGather;  // as large as its place in the outputs
    if (is_peer(rank)) {
      const int64_t sent = is_own_part ? num_bytes(c.outputs, rank_) : num_bytes(c.inputs, rank);
      if (sends) peer(rank).out[0] = {c.data_to(rank), sent};
      if (receives) peer(rank).in[0] = {reduces ? nullptr : c.data_from(rank), num_bytes(c.outputs, rank)};
    } else if (receives && reduces) {
      reduction_ = {c.data_to(rank), c.output, c.num_bytes()};
      reduction_.in_place = c.input == c.output;
    } else if (receives && c.data_to(rank) != c.data_from(rank)) {
      own_part_ = {c.data_from(rank), num_bytes(c.outputs, rank)};
    }
  }
}

/// Every rank reduces one slice of all inputs, so the order of sums (tensor/sum_order.h) needs no transfers: each rank
/// sends and receives 2 (N - 1) / N of the tensor in two steps, the least bytes for any order.
void NetworkBackend::plan_reduction() {
  const int64_t total = call_->num_bytes();
  const bool gets_result = call_->takes(rank_);
  const Slice own = slice(total, rank_, size_);
  reduction_ = {call_->input + own.begin, nullptr, own.num_bytes};
  if (gets_result) {
    reduction_.out = call_->output + own.begin;
  } else {  // the caller's tensor must not change: results are kept in a ring until they have arrived
    reduction_.ring = std::min(round_up(own.num_bytes, kUnit), 4 * chunk_bytes(own.num_bytes));
    scratch_.resize(static_cast<size_t>(reduction_.ring));
    reduction_.out = scratch_.data();
  }
  for (const int rank : peer_ranks_) {
    const Slice theirs = input_of(rank, total);
    Peer& p = peer(rank);
    p.out[0] = {call_->input + theirs.begin, theirs.num_bytes};
    p.in[0] = {nullptr, own.num_bytes};
    if (call_->takes(rank)) {
      p.out[1] = {reduction_.out, own.num_bytes};
      p.out[1].ring = reduction_.ring;
    }
    if (gets_result) p.in[1] = {call_->output + theirs.begin, theirs.num_bytes};
  }
}

void NetworkBackend::plan_broadcast() {
  const int64_t total = call_->num_bytes();
  const int root = call_->root;
  // Slices are numbered by rank; the root is skipped.
  const auto slice_of = [&](int rank) { return slice(total, rank < root ? rank : rank - 1, size_ - 1); };
  if (rank_ != root) forwards_from_ = root;
  for (const int rank : peer_ranks_) {
    Peer& p = peer(rank);
    const Slice part = slice_of(rank == root ? rank_ : rank);
    std::byte* const data = call_->output + part.begin;
    if (rank_ == root) {
      p.out[0] = {data, part.num_bytes};
    } else if (rank == root) {
      p.in[0] = {data, part.num_bytes};
    } else {
      const Slice own = slice_of(rank_);
      p.out[1] = {call_->output + own.begin, own.num_bytes};
      p.in[1] = {data, part.num_bytes};
    }
  }
}

}}}  // namespace tandem::v0::distributed::network
