#include <tandem/distributed/backends/hierarchical/hierarchical_backend.h>

#include <algorithm>
#include <climits>
#include <cstring>
#include <utility>

#include <tandem/base/error.h>
#include <tandem/base/math.h>
#include <tandem/distributed/backends/accumulate.h>

namespace tandem { inline namespace v0 { namespace distributed {

namespace {

using Kind = CollectiveKind;

constexpr int64_t kGrain = 16;  // slices are multiples of this many elements, so that each begins on a cache line

void make_room(RefPtr<Storage>& storage, int64_t num_bytes) {
  if (storage == nullptr || storage->num_bytes() < num_bytes) storage = Storage::allocate(Device(), num_bytes);
}

}  // namespace

HierarchicalBackend::HierarchicalBackend(const ProcessGroupOptions& options, const HostLayout& layout,
                                         HostBackends backends, const HostTuning& tuning)
    : options_(options),
      layout_(layout),
      link_(backends.link),
      tuning_(tuning),
      host_(layout.host_of(options.rank)),
      local_rank_(layout.local_rank(options.rank)),
      local_size_(static_cast<int>(members(host_).size())),
      local_(std::move(backends.local)),
      flat_(std::move(backends.flat)),
      cross_(std::move(backends.cross)) {
  // This rank sleeps in the local backend, which other processes wake. The other backends run on threads of this
  // process, so they can wake the local one.
  flat_->do_notify([this] { local_->do_wake(); });
  if (cross_ != nullptr) cross_->do_notify([this] { local_->do_wake(); });
}

std::string HierarchicalBackend::describe() const {
  const size_t flows = layout_.is_even() ? layout_.hosts.front().size() : 1;
  return str(layout_.describe(), ": ", local_->name(), " inside, ", link_, " across (", flows,
             flows == 1 ? " flow)" : " flows)");
}

int HierarchicalBackend::max_polls() const {
  return std::min({flat_->max_polls(), local_->max_polls(), cross_ == nullptr ? INT_MAX : cross_->max_polls()});
}

void HierarchicalBackend::do_cancel() {
  local_->do_cancel();
  flat_->do_cancel();
  if (cross_ != nullptr) cross_->do_cancel();
}

const Backend::PeerEnd* HierarchicalBackend::do_peer_end(int rank) {
  const PeerEnd* const end = flat_->do_peer_end(rank);
  return end != nullptr && do_drain(rank) ? end : nullptr;
}

bool HierarchicalBackend::do_drain(int rank) {
  const int local = rank_in_local(rank), other = rank_in_cross(rank);
  bool is_drained = flat_->do_drain(rank);
  if (local >= 0) is_drained &= local_->do_drain(local);
  if (other >= 0) is_drained &= cross_->do_drain(other);
  return is_drained;
}

/// A rank that waits for a rank which waits for `rank` fails with the group.
bool HierarchicalBackend::do_needs(int rank) {
  if (!has_phases_ || !matched_) return flat_->do_needs(rank);
  const int local = rank_in_local(rank), other = rank_in_cross(rank);
  return (local_runs_ && local >= 0 && local_->do_needs(local)) ||
         (cross_runs_ && other >= 0 && cross_->do_needs(other));
}

std::vector<int> HierarchicalBackend::do_awaited() {
  if (!has_phases_ || !matched_) return flat_->do_awaited();
  std::vector<int> ranks;
  if (local_runs_) {
    for (const int local : local_->do_awaited()) ranks.push_back(members(host_)[static_cast<size_t>(local)]);
  }
  if (!cross_runs_) return ranks;
  std::vector<int> others = cross_->do_awaited();
  for (int other = 0; others.empty() && other < layout_.num_hosts(); ++other) {
    if (cross_->do_last_started(other).seq < cross_call_.seq) others.push_back(other);
  }
  // One of several ranks of a host may wait inside it, and one of several awaited hosts for another one.
  if (others.size() != 1) return ranks;
  const std::vector<int>& host = members(others.front());
  if (host.size() == 1) ranks.push_back(host.front());
  return ranks;
}

// --- one collective ---

bool HierarchicalBackend::has_phases(const Collective& c) const {
  constexpr Kind kKinds[] = {Kind::kReduce, Kind::kBroadcast, Kind::kAllGather, Kind::kReduceScatter};
  const bool is_large = total_bytes(c) > tuning_.leader_bytes && std::ranges::find(kKinds, c.kind) != std::end(kKinds);
  return c.moves_data && (is_large || c.kind == Kind::kAllReduce);
}

void HierarchicalBackend::do_start(const Collective& collective) {
  call_ = &collective;
  has_phases_ = has_phases(collective);
  if (!has_phases_) return flat_->do_start(collective);
  flat_call_ = signature_of(collective);
  flat_->do_start(flat_call_);

  matched_ = local_runs_ = cross_runs_ = false;
  failed_ = nullptr;
  cross_seq_ += num_chunks_;
  prepared_ = crossed_ = delivered_ = num_chunks_ = 0;
  step_ = 0;
  // All values below depend only on the signature and the layout, so ranks with equal signatures agree on them.
  kind_ = collective.kind;
  partial_ = is_reduction(kind_) ? partial_dtype(collective.op, collective.dtype) : collective.dtype;
  flows_ = layout_.is_even() && total_bytes(collective) > tuning_.leader_bytes ? local_size_ : 1;
  crosses_ = flows_ > 1 || local_rank_ == 0;
  longest_ = collective.num_elements;
  if (kind_ == Kind::kAllGather) {
    longest_ = 0;
    for (const Part& part : collective.outputs) longest_ = std::max(longest_, part.num_elements);
  }
  const bool has_parts = kind_ == Kind::kReduceScatter || kind_ == Kind::kAllGather;
  num_roots_ = has_parts && flows_ == 1 ? options_.world_size : 1;
  if (has_parts && flows_ == 1) kind_ = is_reduction(kind_) ? Kind::kReduce : Kind::kBroadcast;
  const int parts_in_chunk = has_parts && flows_ > 1 ? options_.world_size : 1;
  if (longest_ == 0) return;
  const int64_t most = ceil_div(longest_ * size_of(collective.dtype) * parts_in_chunk, tuning_.chunk_bytes);
  chunk_elements_ = round_up(ceil_div(longest_, most), kGrain * (parts_in_chunk > 1 ? 1 : flows_));
  num_chunks_ = ceil_div(longest_, chunk_elements_) * num_roots_;
  if (!is_reduction(kind_)) return;

  const int64_t longest = width(piece(0).count);
  slot_bytes_ = kind_ == Kind::kReduceScatter ? layout_.num_hosts() * chunk_elements_ : longest;
  slot_bytes_ = round_up(slot_bytes_ * size_of(partial_), 64);
  make_room(slots_, slot_bytes_ * tuning_.ahead);
  if (partial_ != collective.dtype) make_room(wide_, flows_ * longest * size_of(partial_));
}

bool HierarchicalBackend::do_prefetch_signature(const Collective& next, bool input_is_ready) {
  return flat_->do_prefetch_signature(has_phases(next) ? signature_of(next) : next, input_is_ready);
}

Advance HierarchicalBackend::do_advance() {
  if (!has_phases_) return flat_->do_advance();
  bool moved = false;
  if (!matched_) {
    const Advance result = flat_->do_advance();
    matched_ = result == Advance::kDone;
    moved = result != Advance::kIdle;
    if (matched_ && call_->kind == Kind::kAllGather) {  // the phases use only the outputs
      const Part& own = call_->outputs[static_cast<size_t>(options_.rank)];
      const bool is_there = own.data == call_->input || own.num_elements == 0;
      if (!is_there) std::memcpy(own.data, call_->input, static_cast<size_t>(own.num_elements * size_of(call_->dtype)));
    }
  }
  if (failed_ == nullptr && (matched_ || is_reduction(kind_))) {
    try {
      moved |= advance_local();
      moved |= advance_cross();
    } catch (const GroupError&) {
      // Ranks with different calls may have started phases that do not match. The signature check then gives the better
      // error.
      failed_ = std::current_exception();
    }
  }
  if (matched_ && failed_ != nullptr) std::rethrow_exception(failed_);
  if (matched_ && delivered_ == num_chunks_) return Advance::kDone;
  return moved ? Advance::kMoved : Advance::kIdle;
}

// --- chunks and their parts ---

HierarchicalBackend::Piece HierarchicalBackend::piece(int64_t index) const {
  const bool has_roots = num_roots_ > 1;
  Piece p = {};
  p.root = has_roots ? static_cast<int>(index % num_roots_) : call_->root;
  const auto root = static_cast<size_t>(p.root);
  // The input is only read; Part has no const version.
  Part input = {const_cast<std::byte*>(call_->input), longest_};
  Part output = {call_->output, longest_};
  if (has_roots && call_->kind == Kind::kReduceScatter) input = call_->inputs[root];
  if (has_roots && call_->kind == Kind::kAllGather) output = call_->outputs[root];
  p.begin = index / num_roots_ * chunk_elements_;
  p.count = std::clamp(output.num_elements - p.begin, int64_t{0}, chunk_elements_);
  p.input = cut(input, p);
  p.output = cut(output, p);
  return p;
}

HierarchicalBackend::Range HierarchicalBackend::slice(int64_t count, int local) const {
  const int64_t width = std::min(round_up(ceil_div(count, flows_), kGrain), count);
  return {std::min(local * width, count - width), width};
}

HierarchicalBackend::Range HierarchicalBackend::own_part(int64_t count, int local) const {
  const int64_t width = slice(count, local).count;
  const int64_t begin = std::min(local * width, count);
  return {begin, std::min(width, count - begin)};
}

Part HierarchicalBackend::cut(const Part& part, Range range) const {
  const int64_t count = std::clamp(part.num_elements - range.begin, int64_t{0}, range.count);
  return {count == 0 || part.data == nullptr ? nullptr : part.data + range.begin * size_of(call_->dtype), count};
}

Part HierarchicalBackend::part_of(const std::vector<Part>& parts, int host, int local, Range range) const {
  return cut(parts[static_cast<size_t>(members(host)[static_cast<size_t>(local)])], range);
}

// --- phases ---

bool HierarchicalBackend::advance_local() {
  bool moved = false;
  for (;;) {
    if (local_runs_) {
      const Advance result = local_->do_advance();
      if (result != Advance::kDone) return moved || result == Advance::kMoved;
      local_runs_ = false;
    }
    // The next phase depends only on the numbers of completed phases, so all ranks of the host run the same order.
    if (prepared_ < std::min(num_chunks_, delivered_ + tuning_.ahead)) {
      local_runs_ = start_prepare(piece(prepared_), step_++);
      if (!local_runs_) ++prepared_, step_ = 0;
    } else if (delivered_ < num_chunks_ && matched_ && (!crosses_ || delivered_ < crossed_)) {
      local_runs_ = start_deliver(piece(delivered_), step_++);
      if (!local_runs_) ++delivered_, step_ = 0;
    } else {
      return moved;
    }
    moved = true;
  }
}

bool HierarchicalBackend::advance_cross() {
  if (!crosses_) return false;
  bool moved = false;
  for (;;) {
    if (cross_runs_) {
      const Advance result = cross_->do_advance();
      if (result != Advance::kDone) return moved || result == Advance::kMoved;
      ++crossed_;
      cross_runs_ = false;
      moved = true;
    }
    if (crossed_ == prepared_) return moved;
    cross_call_ = cross_call(crossed_);
    cross_->do_start(cross_call_);
    cross_runs_ = true;
    if (crossed_ + 1 < num_chunks_) cross_->do_prefetch_signature(cross_call(crossed_ + 1), false);
  }
}

Collective HierarchicalBackend::signature_of(Collective c) {
  c.input = c.output = nullptr;
  c.inputs = c.outputs = {};
  c.moves_data = false;
  c.kept = nullptr;
  return c;
}

Collective HierarchicalBackend::inner(Kind kind, DType dtype, int64_t num_elements) const {
  Collective c;
  static_cast<Signature&>(c) = {.kind = kind,
                                .op = partial_op(call_->op),
                                .dtype = dtype,
                                .num_elements = num_elements,
                                .name_hash = call_->name_hash};
  c.seq = call_->seq;
  c.shape = {num_elements};
  c.name = call_->name;
  c.where = call_->where;
  return c;
}

bool HierarchicalBackend::start_prepare(const Piece& p, int step) {
  const bool has_parts = kind_ == Kind::kReduceScatter;
  if (!is_reduction(kind_)) {
    if (step > 0 || kind_ == Kind::kAllGather || !is_on_this_host(p.root)) return false;
    local_call_ = inner(kind_, partial_, p.count);
    local_call_.root = layout_.local_rank(p.root);
    local_call_.input = local_call_.output = p.output.data;
  } else {
    if (step == (has_parts ? layout_.num_hosts() : 1)) return false;
    const int64_t size = size_of(partial_);
    local_call_ = inner(flows_ > 1 ? Kind::kReduceScatter : Kind::kReduce, partial_, width(p.count));
    for (int local = 0; local < flows_; ++local) {
      Part in = has_parts ? part_of(call_->inputs, step, local, p) : cut(p.input, slice(p.count, local));
      if (partial_ != call_->dtype) {
        std::byte* const wide = wide_->data() + local * in.num_elements * size;
        widen(call_->dtype, in.data, in.num_elements, wide);
        in.data = wide;
      }
      local_call_.inputs.push_back(in);
    }
    if (flows_ == 1) {
      local_call_.root = 0;
      local_call_.input = local_call_.inputs[0].data;
      local_call_.inputs.clear();
    }
    local_call_.output = slot(prepared_) + step * chunk_elements_ * size;
  }
  local_->do_start(local_call_);
  return true;
}

Collective HierarchicalBackend::cross_call(int64_t index) const {
  const Piece p = piece(index);
  Collective c = inner(kind_, partial_, width(p.count));
  c.seq = cross_seq_ + index + 1;
  if (p.root >= 0) c.root = layout_.host_of(p.root);
  if (kind_ == Kind::kReduceScatter) {
    for (int host = 0; host < layout_.num_hosts(); ++host) {
      c.inputs.push_back({slot(index) + host * chunk_elements_ * size_of(partial_), p.count});
    }
    c.output = c.inputs[static_cast<size_t>(host_)].data;
  } else if (kind_ == Kind::kAllGather) {
    c.num_elements = 0;
    for (int host = 0; host < layout_.num_hosts(); ++host) {
      c.outputs.push_back(part_of(call_->outputs, host, local_rank_, p));
      c.num_elements += c.outputs.back().num_elements;
    }
    c.input = c.outputs[static_cast<size_t>(host_)].data;
  } else if (kind_ == Kind::kBroadcast) {
    const Part part = cut(p.output, own_part(p.count, local_rank_));
    c.num_elements = part.num_elements;
    c.input = c.output = part.data;
  } else {
    c.input = c.output = slot(index);
  }
  return c;
}

bool HierarchicalBackend::start_deliver(const Piece& p, int step) {
  const int64_t size = size_of(partial_);
  const bool is_root = p.root == options_.rank;
  const Range own = own_part(p.count, local_rank_);
  const auto finish = [&](const std::byte* result, const Part& out) {
    if (out.num_elements == 0) return;
    finish_partial(call_->op, call_->dtype, options_.world_size, result, out.num_elements, out.data);
  };
  // The own part of the slice in the slot.
  const auto own_result = [&] { return slot(delivered_) + (own.begin - slice(p.count, local_rank_).begin) * size; };
  if (kind_ == Kind::kReduceScatter) {
    finish(slot(delivered_) + host_ * chunk_elements_ * size, p.output);
    return false;
  }
  if (kind_ == Kind::kReduce) {
    if (!is_on_this_host(p.root)) return false;
    std::byte* const target = !is_root ? nullptr : partial_ == call_->dtype ? p.output.data : wide_->data();
    if (step > 0) {
      if (is_root) finish(target, p.output);
      return false;
    }
    local_call_ = inner(Kind::kAllToAll, partial_, 0);
    for (int local = 0; local < local_size_; ++local) {
      const Range theirs = own_part(p.count, local);
      local_call_.inputs.push_back({own_result(), local == layout_.local_rank(p.root) ? own.count : 0});
      local_call_.outputs.push_back({is_root ? target + theirs.begin * size : nullptr, is_root ? theirs.count : 0});
    }
  } else {
    if (kind_ == Kind::kBroadcast && is_on_this_host(p.root)) return false;
    if (step == (kind_ == Kind::kAllGather ? layout_.num_hosts() : 1)) return false;
    if (is_reduction(kind_)) finish(own_result(), cut(p.output, own));
    local_call_ = inner(flows_ > 1 ? Kind::kAllGather : Kind::kBroadcast, call_->dtype, 0);
    std::vector<Part>& parts = local_call_.outputs;
    for (int local = 0; local < local_size_; ++local) {
      const bool has_parts = kind_ == Kind::kAllGather;
      parts.push_back(has_parts ? part_of(call_->outputs, step, local, p) : cut(p.output, own_part(p.count, local)));
      local_call_.num_elements += parts.back().num_elements;
    }
    local_call_.input = local_call_.output = parts[flows_ > 1 ? static_cast<size_t>(local_rank_) : 0].data;
    if (flows_ == 1) {
      local_call_.root = 0;
      parts.clear();
    }
  }
  local_->do_start(local_call_);
  return true;
}

}}}  // namespace tandem::v0::distributed
