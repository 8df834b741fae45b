#include <tandem/distributed/backends/hierarchical/hierarchical_backend.h>

#include <algorithm>
#include <climits>
#include <utility>

#include <tandem/base/error.h>
#include <tandem/base/math.h>
#include <tandem/distributed/backends/accumulate.h>

namespace tandem { inline namespace v0 { namespace distributed {

namespace {

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
      inside_(options_inside(options, layout).ranks),
      local_rank_(layout.local_rank(options.rank)),
      local_size_(static_cast<int>(inside_.size())),
      local_(std::move(backends.local)),
      flat_(std::move(backends.flat)),
      cross_(std::move(backends.cross)) {
  // This rank sleeps in the local backend, which other processes wake. The other backends run on threads of this
  // process, so they can wake the local one.
  if (cross_ != nullptr) across_ = options_across(options, layout).ranks;
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

void HierarchicalBackend::do_abort(int culprit, const std::string& reason) {
  // The local backend first: the others wait briefly until peers have received data in flight.
  local_->do_abort(culprit, reason);
  flat_->do_abort(culprit, reason);
  if (cross_ != nullptr) cross_->do_abort(culprit, reason);
}

void HierarchicalBackend::do_notify_failure(int culprit, const std::string& reason) {
  // Each phase fails if it needs the culprit. A rank that waits for a failed rank is notified by the failed rank's
  // do_abort.
  const auto concerns = [&](const std::vector<int>& ranks) {
    return culprit < 0 || std::find(ranks.begin(), ranks.end(), culprit) != ranks.end();
  };
  flat_->do_notify_failure(culprit, reason);
  if (concerns(inside_)) local_->do_notify_failure(culprit, reason);
  if (cross_ != nullptr && concerns(across_)) cross_->do_notify_failure(culprit, reason);
}

std::vector<int> HierarchicalBackend::do_awaited() {
  if (call_->kind != CollectiveKind::kAllReduce || !call_->moves_data || !matched_) return flat_->do_awaited();
  std::vector<int> ranks;
  const std::vector<int>& own_host = layout_.hosts[static_cast<size_t>(layout_.host_of(options_.rank))];
  if (local_phase_ != Phase::kNone) {
    for (const int local : local_->do_awaited()) ranks.push_back(own_host[static_cast<size_t>(local)]);
  }
  if (!cross_runs_) return ranks;
  std::vector<int> others = cross_->do_awaited();
  for (int other = 0; others.empty() && other < layout_.num_hosts(); ++other) {
    if (cross_->do_last_started(other).seq < call_->seq) others.push_back(other);
  }
  // One of several ranks of a host may wait inside it, and one of several awaited hosts for another one.
  if (others.size() != 1) return ranks;
  const std::vector<int>& host = layout_.hosts[static_cast<size_t>(others.front())];
  if (host.size() == 1) ranks.push_back(host.front());
  return ranks;
}

// --- one collective ---

void HierarchicalBackend::do_start(const Collective& collective) {
  call_ = &collective;
  if (collective.kind != CollectiveKind::kAllReduce || !collective.moves_data) return flat_->do_start(collective);
  flat_call_ = collective;
  flat_call_.moves_data = false;
  flat_->do_start(flat_call_);

  matched_ = false;
  failed_ = nullptr;
  reduced_ = crossed_ = gathered_ = 0;
  local_phase_ = Phase::kNone;
  cross_runs_ = false;
  // All values below depend only on the signature and the layout, so ranks with equal signatures agree on them.
  partial_ = partial_dtype(collective.op, collective.dtype);
  flows_ = layout_.is_even() && collective.num_bytes() > tuning_.leader_bytes ? local_size_ : 1;
  crosses_ = flows_ > 1 || local_rank_ == 0;
  const int64_t count = collective.num_elements;
  num_chunks_ = ceil_div(collective.num_bytes(), tuning_.chunk_bytes);
  if (count == 0) return;
  chunk_elements_ = round_up(ceil_div(count, num_chunks_), kGrain * flows_);
  num_chunks_ = ceil_div(count, chunk_elements_);

  const int64_t longest = chunk(0).count;
  slot_bytes_ = round_up(slice(longest, 0).count * size_of(partial_), 64);
  make_room(slots_, slot_bytes_ * tuning_.ahead);
  if (partial_ != collective.dtype) {
    make_room(wide_, longest * size_of(partial_));
    make_room(narrow_, slice(longest, 0).count * size_of(collective.dtype));
  }
}

bool HierarchicalBackend::do_prefetch_signature(const Collective& next, bool input_is_ready) {
  Collective signature = next;
  if (next.kind == CollectiveKind::kAllReduce) signature.moves_data = false;
  return flat_->do_prefetch_signature(signature, input_is_ready);
}

Advance HierarchicalBackend::do_advance() {
  if (call_->kind != CollectiveKind::kAllReduce || !call_->moves_data) return flat_->do_advance();
  bool moved = false;
  if (!matched_) {
    const Advance result = flat_->do_advance();
    matched_ = result == Advance::kDone;
    moved = result != Advance::kIdle;
  }
  if (failed_ == nullptr) {
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
  if (matched_ && gathered_ == num_chunks_) return Advance::kDone;
  return moved ? Advance::kMoved : Advance::kIdle;
}

HierarchicalBackend::Range HierarchicalBackend::chunk(int64_t index) const {
  const int64_t begin = index * chunk_elements_;
  return {begin, std::min(chunk_elements_, call_->num_elements - begin)};
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

std::byte* HierarchicalBackend::slot(int64_t chunk_index) const {
  return slots_->data() + chunk_index % tuning_.ahead * slot_bytes_;
}

bool HierarchicalBackend::advance_local() {
  bool moved = false;
  for (;;) {
    if (local_phase_ != Phase::kNone) {
      const Advance result = local_->do_advance();
      if (result != Advance::kDone) return moved || result == Advance::kMoved;
      ++(local_phase_ == Phase::kReduce ? reduced_ : gathered_);
      local_phase_ = Phase::kNone;
      moved = true;
    }
    // The next phase depends only on the numbers of completed phases, so all ranks of the host run the same order.
    if (reduced_ < std::min(num_chunks_, gathered_ + tuning_.ahead)) {
      start_reduce();
    } else if (gathered_ < num_chunks_ && matched_ && (!crosses_ || gathered_ < crossed_)) {
      start_gather();
    } else {
      return moved;
    }
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
    if (crossed_ == reduced_) return moved;
    start_cross();
  }
}

Collective HierarchicalBackend::inner(CollectiveKind kind, DType dtype, int64_t num_elements) const {
  Collective c;
  c.kind = kind;
  c.op = partial_op(call_->op);
  c.dtype = dtype;
  c.num_elements = num_elements;
  c.name_hash = call_->name_hash;
  c.seq = call_->seq;
  c.shape = {num_elements};
  c.name = call_->name;
  c.where = call_->where;
  return c;
}

void HierarchicalBackend::start_reduce() {
  const Range range = chunk(reduced_);
  const int64_t size = size_of(partial_);
  // The input is only read; Part has no const version.
  std::byte* input = const_cast<std::byte*>(call_->input) + range.begin * size_of(call_->dtype);
  if (partial_ != call_->dtype) {
    widen(call_->dtype, input, range.count, wide_->data());
    input = wide_->data();
  }
  if (flows_ > 1) {
    const int64_t width = slice(range.count, 0).count;
    local_call_ = inner(CollectiveKind::kReduceScatter, partial_, width);
    for (int local = 0; local < local_size_; ++local) {
      local_call_.inputs.push_back({input + slice(range.count, local).begin * size, width});
    }
  } else {
    local_call_ = inner(CollectiveKind::kReduce, partial_, range.count);
    local_call_.root = 0;
    local_call_.input = input;
  }
  if (crosses_) local_call_.output = slot(reduced_);
  local_->do_start(local_call_);
  local_phase_ = Phase::kReduce;
}

void HierarchicalBackend::start_cross() {
  cross_call_ = inner(CollectiveKind::kAllReduce, partial_, slice(chunk(crossed_).count, 0).count);
  cross_call_.input = cross_call_.output = slot(crossed_);
  cross_->do_start(cross_call_);
  cross_runs_ = true;
  if (crossed_ + 1 < num_chunks_) {
    cross_->do_prefetch_signature(
        inner(CollectiveKind::kAllReduce, partial_, slice(chunk(crossed_ + 1).count, 0).count), false);
  }
}

void HierarchicalBackend::start_gather() {
  const Range range = chunk(gathered_);
  const DType dtype = call_->dtype;
  const int64_t size = size_of(dtype);
  std::byte* output = call_->output + range.begin * size;
  const std::byte* result = slot(gathered_);
  if (flows_ > 1) {
    std::byte* finished = partial_ != dtype ? narrow_->data() : slot(gathered_);
    const int64_t width = slice(range.count, local_rank_).count;
    finish_partial(call_->op, dtype, options_.world_size, result, width, finished);
    local_call_ = inner(CollectiveKind::kAllGather, dtype, range.count);
    for (int local = 0; local < local_size_; ++local) {
      const Range part = own_part(range.count, local);
      local_call_.outputs.push_back({output + part.begin * size, part.count});
    }
    const int64_t skipped = own_part(range.count, local_rank_).begin - slice(range.count, local_rank_).begin;
    local_call_.input = finished + skipped * size;
  } else {
    if (local_rank_ == 0) finish_partial(call_->op, dtype, options_.world_size, result, range.count, output);
    local_call_ = inner(CollectiveKind::kBroadcast, dtype, range.count);
    local_call_.root = 0;
    local_call_.input = local_call_.output = output;
  }
  local_->do_start(local_call_);
  local_phase_ = Phase::kGather;
}

}}}  // namespace tandem::v0::distributed
