// Transfers the data of the running collective.
#include <algorithm>
#include <cstring>
#include <functional>
#include <utility>

#include <tandem/distributed/backends/accumulate.h>
#include <tandem/distributed/backends/gloo/gloo_backend.h>
#include <tandem/tensor/reduce.h>

namespace tandem { inline namespace v0 { namespace distributed::gloo {

namespace {

constexpr uint64_t kNoSlot = ~uint64_t{0};  // the data is inside a signature

}  // namespace

void GlooBackend::open_streams() {
  streaming_ = true;
  for (int rank = 0; rank < size_; ++rank) {
    if (!is_peer(rank)) continue;
    Peer& p = peer(rank);
    p.out[0].ready = p.out[0].total;
    const std::string& data = p.signatures.front().data;
    const int64_t total = p.in[0].total;
    const bool is_inline = total <= static_cast<int64_t>(kInlineBytes);
    if (static_cast<int64_t>(data.size()) != (is_inline ? total : 0)) {
      fail(job_rank(options_, rank), "gloo: received a signature with a wrong data length");
    }
    if (total == 0 || !is_inline) continue;
    Frame frame;
    frame.peer = rank;
    frame.data_index = kNoSlot;
    frame.data = reinterpret_cast<const std::byte*>(data.data());
    frame.data_bytes = total;
    accept(rank, std::move(frame));
  }
}

int64_t GlooBackend::chunk_bytes(int64_t total) const {
  constexpr int64_t kSmallest = 32 << 10;
  return std::min(tuning_.chunk_bytes, std::max(kSmallest, (total / 8 + 63) / 64 * 64));
}

bool GlooBackend::move() {
  bool moved = note_arrivals();
  for (int rank = 0; rank < size_; ++rank) moved |= is_peer(rank) && take_data(rank);
  look_ahead();
  moved |= reduce_chunks();
  moved |= send_chunks();
  if (own_bytes_ > 0) {
    std::memcpy(own_target_, own_part_, static_cast<size_t>(own_bytes_));
    own_bytes_ = 0;
    moved = true;
  }
  return moved;
}

bool GlooBackend::note_arrivals() {
  bool moved = false;
  for (int rank = 0; rank < size_; ++rank) {
    if (!is_peer(rank)) continue;
    Peer& p = peer(rank);
    const uint64_t arrived = link(rank).arrived_data();
    while (!p.in_flight.empty() && p.in_flight.front().index <= arrived) {
      const InFlightChunk& chunk = p.in_flight.front();
      p.out[chunk.stream].arrived += chunk.num_bytes;
      p.in_flight.pop_front();
      moved = true;
    }
  }
  return moved;
}

bool GlooBackend::take_data(int from) {
  Peer& p = peer(from);
  bool moved = false;
  // A rank that has completed this collective may already send data of the next one, if that is announced.
  while (!p.data.empty() && p.data.front().channel != number_ + 1) {
    moved = true;
    Frame frame = std::move(p.data.front());
    p.data.pop_front();
    const bool fits = frame.channel == number_ && frame.stream < kStreams;
    const Incoming* in = fits ? &p.in[frame.stream] : nullptr;
    if (!fits || frame.offset != static_cast<uint64_t>(in->arrived) ||
        frame.data_bytes != std::min(chunk_bytes(in->total), in->total - in->arrived)) {
      fail(job_rank(options_, from), "gloo: received unexpected data");
    }
    accept(from, std::move(frame));
  }
  return moved;
}

void GlooBackend::accept(int from, Frame frame) {
  Peer& p = peer(from);
  Incoming& in = p.in[frame.stream];
  in.arrived += frame.data_bytes;
  if (in.base == nullptr) {
    p.held.push_back(std::move(frame));
    return;
  }
  std::memcpy(in.base + in.done, frame.data, static_cast<size_t>(frame.data_bytes));
  in.done += frame.data_bytes;
  if (frame.data_index != kNoSlot) link(from).release(frame.data_index);
  if (from == forwards_from_) {
    for (Peer& other : peers_) other.out[1].ready = in.done;
  }
}

bool GlooBackend::reduce_chunks() {
  Reduction& r = reduction_;
  bool moved = false;
  while (r.done < r.total) {
    int64_t num_bytes = 0;
    for (int rank = 0; rank < size_; ++rank) {
      if (!is_peer(rank)) {
        inputs_[static_cast<size_t>(rank)] = r.own + r.done;
        continue;
      }
      if (peer(rank).held.empty()) return moved;
      inputs_[static_cast<size_t>(rank)] = peer(rank).held.front().data;
      num_bytes = peer(rank).held.front().data_bytes;
    }
    for (const Peer& p : peers_) {
      if (r.in_place && p.out[0].total > 0 && p.out[0].arrived < r.done + num_bytes) return moved;
      if (r.ring > 0 && p.out[1].total > 0 && p.out[1].arrived < r.done + num_bytes - r.ring) return moved;
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
    for (int rank = 0; rank < size_; ++rank) {
      if (!is_peer(rank)) continue;
      Peer& p = peer(rank);
      const uint64_t slot = p.held.front().data_index;
      p.held.pop_front();
      if (slot != kNoSlot) link(rank).release(slot);
      if (forwards_from_ < 0) p.out[1].ready = std::min(r.done, p.out[1].total);
    }
    send_chunks();  // the links should not idle while more is reduced
  }
  return moved;
}

bool GlooBackend::send_chunks() {
  bool moved = false;
  for (bool any = true; any;) {
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

bool GlooBackend::send_chunk(int to, int stream) {
  Peer& p = peer(to);
  Outgoing& out = p.out[stream];
  const int64_t num_bytes = std::min(chunk_bytes(out.total), out.total - out.sent);
  if (num_bytes <= 0 || out.sent + num_bytes > out.ready) return false;
  const bool last = out.sent + num_bytes == out.total;
  const std::byte* data = out.base + (out.ring > 0 ? out.sent % out.ring : out.sent);
  const bool want_ack = last || out.ack_each;
  const uint64_t index =
      link(to).try_send_data(data, num_bytes, stream == kAhead ? number_ + 1 : number_,
                             static_cast<uint8_t>(stream % kStreams), static_cast<uint64_t>(out.sent), want_ack);
  if (index == 0) return false;
  p.in_flight.push_back({index, stream, num_bytes});
  out.sent += num_bytes;
  return true;
}

/// Starts sending inputs of the next collective after the data of this one, when all ranks are known to have announced
/// it and this collective does not write those inputs. All data of this collective is sent before them, so no rank
/// waits for a slot that they occupy.
void GlooBackend::look_ahead() {
  if (sends_ahead_ || prefetched_.empty() || prefetched_.front().input == nullptr) return;
  const Prefetched& next = prefetched_.front();
  const int64_t total = next.frame.signature.num_elements * size_of(next.frame.signature.dtype);
  if (call_->moves_data) {
    if (call_->kind != CollectiveKind::kAllReduce) return;
    const std::less<const std::byte*> before;
    if (before(next.input, call_->output + call_->num_bytes()) && before(call_->output, next.input + total)) return;
  }
  for (int rank = 0; rank < size_; ++rank) {
    const auto& signatures = peer(rank).signatures;
    if (is_peer(rank) && (signatures.size() < 2 || !(signatures[1].signature == next.frame.signature))) return;
  }
  for (int rank = 0; rank < size_; ++rank) {
    if (!is_peer(rank)) continue;
    const Slice part = input_of(rank, total);
    Outgoing& out = peer(rank).out[kAhead];
    out = {next.input + part.begin, part.num_bytes};
    out.ready = out.total;
  }
  sends_ahead_ = true;
}

bool GlooBackend::is_complete() {
  if (reduction_.done < reduction_.total) return false;
  for (int rank = 0; rank < size_; ++rank) {
    if (is_peer(rank) && is_missing(rank)) return false;
  }
  return true;
}

}}}  // namespace tandem::v0::distributed::gloo
