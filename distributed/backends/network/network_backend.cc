#include <tandem/distributed/backends/network/network_backend.h>

#include <algorithm>
#include <utility>

#include <tandem/base/error.h>

namespace tandem { inline namespace v0 { namespace distributed::network {

namespace {

std::string call_of(const SignatureFrame& f) {
  return describe_call(f.signature, f.shape, f.tensors, f.name, f.file, f.line);
}

/// Sets the fields that differ for each receiver.
void set_parts(SignatureFrame& frame, const Collective& collective, int to) {
  if (collective.kind != CollectiveKind::kAllToAll) return;
  frame.sent = collective.inputs[static_cast<size_t>(to)].shape;
  frame.expected = collective.outputs[static_cast<size_t>(to)].shape;
}

}  // namespace

NetworkBackend::NetworkBackend(const ProcessGroupOptions& options, const Tuning& tuning)
    : options_(options),
      rank_(options.rank),
      size_(options.world_size),
      tuning_(tuning),
      last_(static_cast<size_t>(options.world_size)),
      peers_(static_cast<size_t>(options.world_size)),
      inputs_(static_cast<size_t>(options.world_size)),
      mesh_(options, tuning),
      layout_(mesh_.hosts()),
      sums_by_host_(layout_.num_hosts() > 1 && layout_.num_hosts() < options.world_size),
      messages_(options, tuning, mesh_) {
  for (int rank = 0; rank < size_; ++rank) {
    if (is_peer(rank)) peer_ranks_.push_back(rank);
  }
}

std::string NetworkBackend::link_name() const {
  return mesh_.interface_name().empty() ? "gloo" : str("gloo over ", mesh_.interface_name());
}

// --- one collective ---

void NetworkBackend::do_start(const Collective& collective) {
  call_ = &collective;
  ++number_;
  const bool is_prefetched = !prefetched_.empty();
  if (is_prefetched) {
    own_ = std::move(prefetched_.front().frame);
    prefetched_.pop_front();
  } else {
    own_ = make_signature(collective, number_);
  }
  note_started(rank_, own_);
  for (Peer& p : peers_) {
    p.matched = false;
    for (int stream = 0; stream < kStreams; ++stream) {
      p.out[stream] = {};
      p.in[stream] = {};
    }
  }
  unmatched_ = size_ - 1;
  streaming_ = false;
  parts_disagree_ = false;
  reduction_ = {};
  forwards_from_ = -1;
  own_part_.reset();
  plan();
  int64_t num_bytes = 0;
  for (Peer& p : peers_) {
    for (int stream = 0; stream < kStreams; ++stream) num_bytes += p.out[stream].total + p.in[stream].total;
    p.out[0].sent = p.out[kAhead].sent;
    p.out[0].taken = p.out[kAhead].taken;
    p.out[kAhead] = {};
    for (InFlightChunk& chunk : p.in_flight) chunk.stream = 0;
  }
  sends_ahead_ = false;
  mesh_.serve_by_thread(num_bytes >= kLongTransfer);
  if (is_prefetched) return;
  for (const int to : peer_ranks_) post_signature(to, own_);
}

bool NetworkBackend::do_prefetch_signature(const Collective& next, bool input_is_ready) {
  // Only if no signature carries data: the data may be results of the running collective.
  const bool sends_no_data = !next.moves_data || smallest_first_stream(next) > static_cast<int64_t>(kInlineBytes);
  if (!sends_no_data || prefetched_.size() == kMaxPrefetched) return false;
  const bool sends_input = next.kind == CollectiveKind::kAllReduce && next.moves_data && input_is_ready;
  prefetched_.push_back({make_signature(next, number_ + prefetched_.size() + 1), sends_input ? next.input : nullptr});
  SignatureFrame& frame = prefetched_.back().frame;
  for (const int to : peer_ranks_) {
    set_parts(frame, next, to);
    link(to).send(FrameType::kSignature, encode(frame));
  }
  return true;
}

SignatureFrame NetworkBackend::make_signature(const Collective& collective, uint64_t number) {
  SignatureFrame frame;
  frame.number = number;
  frame.seq = collective.seq;
  frame.signature = collective;
  frame.shape = collective.shape;
  frame.tensors = collective.tensors;
  frame.name = collective.name;
  frame.file = collective.where.file_name();
  frame.line = collective.where.line();
  if (collective.kind == CollectiveKind::kAllToAll) {
    for (const Part& part : collective.inputs) frame.sends.push_back({part.num_elements, hash_shape(part.shape)});
    for (const Part& part : collective.outputs) frame.expects.push_back({part.num_elements, hash_shape(part.shape)});
  }
  return frame;
}

void NetworkBackend::post_signature(int to, SignatureFrame& frame) {
  Outgoing& out = peer(to).out[0];
  set_parts(frame, *call_, to);
  frame.data.clear();
  if (out.total <= static_cast<int64_t>(kInlineBytes)) {
    frame.data.assign(reinterpret_cast<const char*>(out.base), static_cast<size_t>(out.total));
    out.sent = out.taken = out.total;
  }
  link(to).send(FrameType::kSignature, encode(frame));
}

Advance NetworkBackend::do_advance() {
  bool moved = dispatch();
  moved |= match_signatures();
  if (unmatched_ == 0 && !parts_disagree_) {
    if (!streaming_) open_streams();
    moved |= move();
    if (is_complete()) {
      for (Peer& p : peers_) {
        if (!p.signatures.empty()) p.signatures.pop_front();
      }
      finished_.store(number_, std::memory_order_release);
      mesh_.serve_unsent();
      return Advance::kDone;
    }
  }
  return moved ? Advance::kMoved : Advance::kIdle;
}

bool NetworkBackend::dispatch() {
  frames_.clear();
  mesh_.take(frames_, drains_ || mesh_.any_ended());  // also what another thread is reading
  const bool any = !frames_.empty();
  for (Frame& frame : frames_) {
    try {
      take_frame(frame);
    } catch (const IoError& e) {
      throw_peer_error(options_, frame.peer, e.what());
    }
  }
  return any;
}

void NetworkBackend::take_frame(Frame& frame) {
  Peer& from = peer(frame.peer);
  switch (frame.type) {
    case FrameType::kSignature:
      from.signatures.push_back(decode_signature(frame.payload, size_));
      // A collective that is only announced has not started yet.
      if (from.signatures.back().number <= finished_.load() + 1) note_started(frame.peer, from.signatures.back());
      return;
    case FrameType::kData:
      if ((frame.channel & kMessageBit) != 0) {
        // The receive may have failed; then its memory may be freed.
        if (!is_cancelled_) messages_.take(frame);
      } else {
        note_arrived(frame.peer, frame.stream, frame.data_bytes);
      }
      return;
    case FrameType::kOffer:
    case FrameType::kAnswer: messages_.take(frame); return;
    case FrameType::kGoodbye: return;
  }
}

bool NetworkBackend::match_signatures() {
  if (unmatched_ == 0) return false;
  bool moved = false;
  for (const int rank : peer_ranks_) {
    Peer& p = peer(rank);
    if (p.matched || p.signatures.empty()) continue;
    const SignatureFrame& theirs = p.signatures.front();
    if (theirs.number != number_) throw_peer_error(options_, rank, "gloo: received a signature out of order");
    if (!(theirs.signature == own_.signature)) {
      throw_call_mismatch(options_, {rank_, call_of(own_)}, {rank, call_of(theirs)});
    }
    note_started(rank, theirs);
    p.matched = moved = true;
    --unmatched_;
  }
  if (unmatched_ == 0 && call_->kind == CollectiveKind::kAllToAll) check_parts();
  return moved;
}

void NetworkBackend::check_parts() {
  const auto at = [](const std::vector<PartFrame>& list, int rank) {
    return static_cast<size_t>(rank) < list.size() ? list[static_cast<size_t>(rank)] : PartFrame();
  };
  const auto frame_of = [&](int rank) -> const SignatureFrame& {
    return rank == rank_ ? own_ : peers_[static_cast<size_t>(rank)].signatures.front();
  };
  for (int from = 0; from < size_; ++from) {
    for (int to = 0; to < size_; ++to) {
      if (at(frame_of(from).sends, to) == at(frame_of(to).expects, from)) continue;
      // All ranks find the same pair. The two ranks of this pair have both shapes, and fail the group.
      parts_disagree_ = true;
      if (from != rank_ && to != rank_) return;
      const ShownShape sent = from == rank_ ? call_->inputs[static_cast<size_t>(to)].shape : frame_of(from).sent;
      const ShownShape expected = to == rank_ ? call_->outputs[static_cast<size_t>(from)].shape : frame_of(to).expected;
      throw_parts_disagree(options_, call_->dtype, {from, call_of(frame_of(from))}, sent, {to, call_of(frame_of(to))},
                           expected);
    }
  }
}

// --- failures ---

bool NetworkBackend::is_missing(int rank, bool has_ended) {
  const Peer& p = peer(rank);
  if (!p.matched) return true;
  if (!streaming_) return false;
  for (int stream = 0; stream < kStreams; ++stream) {
    const Incoming& in = p.in[stream];
    if (p.out[stream].taken < p.out[stream].total) return true;
    if (in.arrived == in.total) continue;
    const int64_t early = has_ended ? link(rank).early_bytes(number_, static_cast<uint8_t>(stream)) : 0;
    if (in.arrived + early < in.total) return true;
  }
  return false;
}

std::vector<int> NetworkBackend::do_awaited() {
  std::vector<int> causes;
  std::vector<int> missing;
  for (const int rank : peer_ranks_) {
    if (!streaming_ || !is_missing(rank)) continue;
    missing.push_back(rank);
    // A rank is a cause if it has not sent its input, or does not receive data that was already sent to it. Such a rank
    // does not wait for another rank.
    const Peer& p = peer(rank);
    const bool waits_to_be_reduced = p.in[0].ring > 0 && p.in[0].arrived > reduction_.done;
    const bool owes_input = p.in[0].arrived < p.in[0].total && !waits_to_be_reduced;
    const bool takes_nothing = std::any_of(
        p.out, p.out + kStreams, [](const Outgoing& out) { return out.taken < out.total && out.sent == out.total; });
    if (owes_input || takes_nothing) causes.push_back(rank);
  }
  return causes.empty() ? missing : causes;
}

void NetworkBackend::do_cancel() {
  is_cancelled_ = true;
  mesh_.cancel();
  mesh_.wake();
}

bool NetworkBackend::do_drain(int rank) {
  drains_ = true;
  link(rank).expect_end();
  return mesh_.end(rank) != nullptr;
}

// --- the rest ---

void NetworkBackend::note_started(int rank, const SignatureFrame& frame) {
  std::string what = to_string(frame.signature.kind);
  if (!frame.name.empty()) what += str(" '", frame.name, "'");
  std::lock_guard lock(last_mutex_);
  auto& last = last_[static_cast<size_t>(rank)];
  if (last.first.seq < frame.seq) last = {{.seq = frame.seq, .what = std::move(what)}, Clock::now()};
}

LastStarted NetworkBackend::do_last_started(int rank) const {
  std::lock_guard lock(last_mutex_);
  auto [last, when] = last_[static_cast<size_t>(rank)];
  if (last.seq > 0) last.ago = Clock::now() - when;
  return last;
}

// --- messages ---

Advance NetworkBackend::do_advance_p2p() {
  bool moved = dispatch();
  moved |= messages_.advance();
  if (!messages_.any()) mesh_.serve_unsent();
  return moved ? Advance::kMoved : Advance::kIdle;
}

std::unique_ptr<Backend> make_network_backend(const ProcessGroupOptions& options, const Tuning& tuning) {
  return std::make_unique<NetworkBackend>(options, tuning);
}

}}}  // namespace tandem::v0::distributed::network
