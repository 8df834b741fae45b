// Transfers the data of the running collective.
#include <algorithm>
#include <cstring>
#include <functional>
#include <utility>

#include <tandem/distributed/backends/accumulate.h>
#include <tandem/distributed/backends/network/network_backend.h>
#include <tandem/tensor/reduce.h>

namespace tandem { inline namespace v0 { namespace distributed::network {

void NetworkBackend::open_streams() {
  streaming_ = true;
  for (const int rank : peer_ranks_) {
    Peer& p = peer(rank);
    p.out[0].ready = p.out[0].total;
    std::string& data = p.signatures.front().data;
    Incoming& first = p.in[0];
    const bool is_inline = first.total <= static_cast<int64_t>(kInlineBytes);
    if (static_cast<int64_t>(data.size()) != (is_inline ? first.total : 0)) {
      throw_peer_error(options_, rank, "gloo: received a signature with a wrong data length");
    }
    if (is_inline && first.base != nullptr) {
      std::memcpy(first.base, data.data(), data.size());
    } else if (is_inline) {
      first.base = reinterpret_cast<std::byte*>(data.data());
    } else if (first.base == nullptr) {
      first.ring = kWindow * chunk_bytes(first.total);
      const int64_t needed = std::min(first.ring, first.total);
      if (p.window_bytes < needed) {
        p.window = std::make_unique_for_overwrite<std::byte[]>(static_cast<size_t>(needed));
        p.window_bytes = needed;
      }
      first.base = p.window.get();
      post_window(rank);
    }
    if (is_inline) note_arrived(rank, 0, first.total);
    for (int stream = 0; stream < kStreams; ++stream) {
      const Incoming& in = p.in[stream];
      if (in.ring > 0 || in.arrived == in.total) continue;
      link(rank).post(number_, static_cast<uint8_t>(stream), 0, in.base, in.total);
    }
  }
}

/// Posts the memory of chunks that have been reduced for the next chunks.
void NetworkBackend::post_window(int from) {
  Incoming& in = peer(from).in[0];
  while (in.posted < in.total && in.posted < reduction_.done + in.ring) {
    const int64_t num_bytes = std::min(chunk_bytes(in.total), in.total - in.posted);
    link(from).post(number_, 0, static_cast<uint64_t>(in.posted), in.base + in.posted % in.ring, num_bytes);
    in.posted += num_bytes;
  }
}

int64_t NetworkBackend::chunk_bytes(int64_t total) const {
  constexpr int64_t kSmallest = 32 << 10;
  return std::min(tuning_.chunk_bytes, std::max(kSmallest, (total / 8 + 63) / 64 * 64));
}

bool NetworkBackend::move() {
  bool moved = note_sent();
  look_ahead();
  moved |= reduce_chunks();
  moved |= send_chunks();
  if (own_part_) {
    const auto [target, num_bytes] = *std::exchange(own_part_, std::nullopt);
    if (num_bytes > 0) std::memcpy(target, call_->data_to(rank_), static_cast<size_t>(num_bytes));
    moved = true;
  }
  return moved;
}

bool NetworkBackend::note_sent() {
  bool moved = false;
  for (const int rank : peer_ranks_) {
    Peer& p = peer(rank);
    const uint64_t sent = link(rank).sent_data();
    while (!p.in_flight.empty() && p.in_flight.front().index <= sent) {
      const InFlightChunk& chunk = p.in_flight.front();
      p.out[chunk.stream].taken += chunk.num_bytes;
      p.in_flight.pop_front();
      moved = true;
    }
  }
  return moved;
}

void NetworkBackend::note_arrived(int from, int stream, int64_t num_bytes) {
  Incoming& in = peer(from).in[stream];
  in.arrived += num_bytes;
  if (from != forwards_from_) return;
  for (Peer& other : peers_) other.out[1].ready = in.arrived;
}

bool NetworkBackend::reduce_chunks() {
  Reduction& r = reduction_;
  bool moved = false;
  while (r.done < r.total) {
    const int64_t num_bytes = std::min(chunk_bytes(r.total), r.total - r.done);
    for (int rank = 0; rank < size_; ++rank) {
      const Incoming& in = peer(rank).in[0];
      if (is_peer(rank) && in.arrived < r.done + num_bytes) return moved;
      inputs_[static_cast<size_t>(rank)] =
          is_peer(rank) ? in.base + (in.ring > 0 ? r.done % in.ring : r.done) : r.own + r.done;
    }
    for (const Peer& p : peers_) {
      if (r.in_place && p.out[0].total > 0 && p.out[0].taken < r.done + num_bytes) return moved;
      if (r.ring > 0 && p.out[1].total > 0 && p.out[1].taken < r.done + num_bytes - r.ring) return moved;
    }
    std::byte* out = r.out + (r.ring > 0 ? r.done % r.ring : r.done);
    const int64_t count = num_bytes / size_of(call_->dtype);
    if (sums_by_host_) {
      reduce_by_hosts(layout_, call_->op, call_->dtype, inputs_, count, partial_results_, out);
    } else {
      primitives::reduce(call_->op, call_->dtype, inputs_, count, out);
    }
    r.done += num_bytes;
    moved = true;
    for (const int rank : peer_ranks_) {
      Peer& p = peer(rank);
      if (p.in[0].ring > 0) post_window(rank);
      if (forwards_from_ < 0) p.out[1].ready = std::min(r.done, p.out[1].total);
    }
    send_chunks();  // the connections should not idle while more is reduced
  }
  return moved;
}

bool NetworkBackend::send_chunks() {
  bool moved = false;
  bool any = true;
  for (int round = 0; any && round < kWindow; ++round) {  // then read what has arrived
    any = false;
    // Each rank begins with the next rank, so that not all ranks send to the same one. Results are sent first because
    // other ranks wait for them.
    for (int i = 1; i < size_; ++i) {
      const int to = (rank_ + i) % size_;
      const Outgoing* out = peer(to).out;
      const bool is_sent = out[0].sent == out[0].total && out[1].sent == out[1].total;
      any |= is_sent ? send_chunk(to, kAhead) : send_chunk(to, 1) || send_chunk(to, 0);
    }
    moved |= any;
  }
  return moved;
}

bool NetworkBackend::send_chunk(int to, int stream) {
  Peer& p = peer(to);
  Outgoing& out = p.out[stream];
  const int64_t num_bytes = std::min(chunk_bytes(out.total), out.total - out.sent);
  if (num_bytes <= 0 || out.sent + num_bytes > out.ready) return false;
  const std::byte* data = out.base + (out.ring > 0 ? out.sent % out.ring : out.sent);
  const uint64_t index =
      link(to).try_send_data(data, num_bytes, stream == kAhead ? number_ + 1 : number_,
                             static_cast<uint8_t>(stream % kStreams), static_cast<uint64_t>(out.sent));
  if (index == 0) return false;
  p.in_flight.push_back({index, stream, num_bytes});
  out.sent += num_bytes;
  return true;
}

/// Starts sending inputs of the next collective after the data of this one, when all ranks are known to have announced
/// it and this collective does not write those inputs. All data of this collective is sent before them, so no rank
/// waits for memory that they occupy.
void NetworkBackend::look_ahead() {
  if (sends_ahead_ || prefetched_.empty() || prefetched_.front().input == nullptr) return;
  const Prefetched& next = prefetched_.front();
  const int64_t total = next.frame.signature.num_elements * size_of(next.frame.signature.dtype);
  if (call_->moves_data) {
    if (call_->kind != CollectiveKind::kAllReduce) return;
    const std::less<const std::byte*> before;
    if (before(next.input, call_->output + call_->num_bytes()) && before(call_->output, next.input + total)) return;
  }
  for (const int rank : peer_ranks_) {
    const auto& signatures = peer(rank).signatures;
    if (signatures.size() < 2 || !(signatures[1].signature == next.frame.signature)) return;
  }
  for (const int rank : peer_ranks_) {
    const Slice part = input_of(rank, total);
    Outgoing& out = peer(rank).out[kAhead];
    out = {next.input + part.begin, part.num_bytes};
    out.ready = out.total;
  }
  sends_ahead_ = true;
}

bool NetworkBackend::is_complete() {
  if (reduction_.done < reduction_.total) return false;
  return std::none_of(peer_ranks_.begin(), peer_ranks_.end(), [&](int rank) { return is_missing(rank); });
}

}}}  // namespace tandem::v0::distributed::network
