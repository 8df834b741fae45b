// One backward pass: the first leaf hook calls begin(). Each leaf hook decrements the counters of the buckets that
// contain its parameter; launch() starts the all-reduce of complete buckets, always in index order. finish() runs at
// the end of backward: it sets missing gradients to zero, launches the remaining buckets, and all-gathers a control
// record of each rank. Parameters that were frozen at construction have no bucket; when all ranks train them, finish()
// averages them.
#include <tandem/distributed/ddp/gradient_reducer.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <utility>

#include <tandem/autograd/engine.h>
#include <tandem/base/log.h>
#include <tandem/base/rank_context.h>
#include <tandem/base/trace.h>
#include <tandem/distributed/context.h>
#include <tandem/distributed/ddp/gradient_reducer_impl.h>
#include <tandem/distributed/ddp/parameter_digest.h>
#include <tandem/tensor/cuda_capture.h>
#include <tandem/tensor/factories.h>
#include <tandem/tensor/primitives.h>

namespace tandem { inline namespace v0 { namespace distributed {

namespace {

/// The calling rank's Context; null if the program created its group without one.
Context* context_or_null() { return RankContext::current().distributed_slot ? &Context::current() : nullptr; }

/// The control records of all ranks; those of equal sizes. Collective.
std::vector<ControlRecord> exchange(const ControlRecord& mine, ProcessGroup& group, const char* name) {
  constexpr size_t kHeader = 1 + sizeof mine.num_changes;
  const size_t num_parameters = mine.used.size(), num_bytes = kHeader + (num_parameters + 3) / 4;
  std::vector<uint8_t> bytes(num_bytes);
  bytes[0] = static_cast<uint8_t>((mine.stop_requested ? 1 : 0) | (mine.changed_in_backward ? 2 : 0));
  std::memcpy(&bytes[1], &mine.num_changes, sizeof mine.num_changes);
  for (size_t p = 0; p < num_parameters; ++p) {
    const int bits = (mine.used[p] ? 1 : 0) | (mine.trained[p] ? 2 : 0);
    bytes[kHeader + p / 4] = static_cast<uint8_t>(bytes[kHeader + p / 4] | bits << (p % 4 * 2));
  }
  const Tensor all = empty({group.size(), static_cast<int64_t>(num_bytes)}, {kUInt8});
  group.all_gather(all, from_vector(bytes, {static_cast<int64_t>(num_bytes)}), {.name = name});
  std::vector<ControlRecord> records(static_cast<size_t>(group.size()));
  const uint8_t* from = all.data<uint8_t>();
  for (ControlRecord& record : records) {
    record.stop_requested = (from[0] & 1) != 0;
    record.changed_in_backward = (from[0] & 2) != 0;
    std::memcpy(&record.num_changes, from + 1, sizeof record.num_changes);
    for (size_t p = 0; p < num_parameters; ++p) {
      const int bits = from[kHeader + p / 4] >> (p % 4 * 2);
      record.used.push_back((bits & 1) != 0);
      record.trained.push_back((bits & 2) != 0);
    }
    from += num_bytes;
  }
  return records;
}

/// Calls `f` before each replay of the graph that is being captured.
void before_replays(std::function<void(bool is_first)> f) {
  struct Observer final : cuda::ReplayObserver {
    void begin_replay(bool is_first) override { call(is_first); }
    std::function<void(bool is_first)> call;
  };
  const auto observer = std::make_shared<Observer>();
  observer->call = std::move(f);
  cuda::observe_replays(observer);
}

}  // namespace

std::string to_string(Shard shard) {
  constexpr std::array<const char*, 4> kNames = {"none", "optimizer", "gradients", "parameters"};
  return kNames[static_cast<size_t>(shard)];
}

void GradientReducer::Impl::make_buckets() {
  const size_t n = plan.buckets.size();
  for (size_t i = 0; i < n; ++i) {
    const BucketPlan::Bucket& range = plan.buckets[i];
    Bucket bucket;
    bucket.index = static_cast<int>(i);
    const std::string& first = parameters[static_cast<size_t>(range.last_parameter)].name;
    const std::string& last = parameters[static_cast<size_t>(range.first_parameter)].name;
    bucket.name = str("bucket ", i, " of ", n, ": '", first, "'", first == last ? "" : str(" .. '", last, "'"));
    buckets.push_back(std::move(bucket));
  }
}

/// The memory of buckets that no ranks divide.
void GradientReducer::Impl::make_memory() {
  for (const auto& b : plan.buffers) {
    memory.push_back(Storage::allocate(b.device, b.num_elements * size_of(b.dtype)));
    primitives::fill(make_view(memory.back(), b.dtype, {b.num_elements}, {1}, 0),
                     0);  // the padding is all-reduced as well
  }
  const size_t n = plan.buckets.size();
  for (size_t i = 0; i < n; ++i) {
    const BucketPlan::Bucket& range = plan.buckets[i];
    const auto buffer = static_cast<size_t>(range.buffer);
    buckets[i].values =
        make_view(memory[buffer], plan.buffers[buffer].dtype, {range.end - range.begin}, {1}, range.begin);
  }
  for (size_t p = 0; is_planned(p); ++p) {
    Parameter& parameter = parameters[p];
    const BucketPlan::Placement& placement = plan.placements[p];
    const auto buffer = static_cast<size_t>(placement.buffer);
    const int64_t bytes = size_of(plan.buffers[buffer].dtype);
    const int64_t count = parameter.tensor.numel();
    const auto slice = Storage::alias(memory[buffer], placement.offset * bytes, count * bytes);
    const Shape& shape = parameter.tensor.shape();
    parameter.leaf->set_slot(make_view(slice, parameter.tensor.dtype(), shape, row_major_strides(shape), 0));
    parameter.has_slot = true;
    parameter.first_bucket = static_cast<int>(n);
    parameter.last_bucket = -1;
    for (size_t i = 0; i < n; ++i) {
      const BucketPlan::Bucket& range = plan.buckets[i];
      // An empty parameter counts for the bucket at its offset, so that each parameter is counted at least once.
      const bool overlaps = range.buffer == placement.buffer && placement.offset < range.end &&
                            range.begin < placement.offset + std::max<int64_t>(count, 1);
      if (!overlaps) continue;
      parameter.first_bucket = std::min(parameter.first_bucket, static_cast<int>(i));
      parameter.last_bucket = static_cast<int>(i);
      ++buckets[i].num_parameters;
      if (count == 0) continue;
      const int64_t begin = std::max(range.begin, placement.offset);
      const int64_t end = std::min(range.end, placement.offset + count);
      buckets[i].slices.push_back({parameter.name, static_cast<int>(p), shape,
                                   buckets[i].values.slice(0, begin - range.begin, end - range.begin),
                                   end - begin == count});
    }
  }
}

/// The memory of buckets that the ranks divide.
void GradientReducer::Impl::make_shards(const std::vector<std::string>& unit_names,
                                        const std::vector<size_t>& unit_of) {
  NamedTensors divided;
  for (size_t p = 0; is_planned(p); ++p) divided.emplace_back(parameters[p].name, parameters[p].tensor);
  if (options.shard == Shard::kParameters) {
    units = ParameterUnits::create(group, plan, divided, options, unit_names, unit_of);
    shards = units;
    for (size_t i = 0; i < buckets.size(); ++i) buckets[i].name = str("gradients of ", units->label(i));
    if (group->rank() == 0) log(LogLevel::kInfo, "DistributedDataParallel: units", units->table());
  } else {
    shards = make_ref<ParameterShards>(group, plan, divided, options);
  }
  shards->attach();
  for (size_t i = 0; i < buckets.size(); ++i) {
    Bucket& bucket = buckets[i];
    bucket.num_parameters = static_cast<int>(shards->contents(i).size());
    for (const size_t p : shards->contents(i)) {
      parameters[p].first_bucket = parameters[p].last_bucket = static_cast<int>(i);
      parameters[p].has_slot = true;
    }
    if (options.hooks.empty()) continue;
    const Tensor& whole = shards->gradients(i);
    bucket.values = make_view(whole.storage(), whole.dtype(), {whole.numel()}, {1}, 0);
    for (const size_t p : shards->contents(i)) {
      const Parameter& parameter = parameters[p];
      const int64_t begin = plan.placements[p].offset - plan.buckets[i].begin, count = parameter.tensor.numel();
      if (count == 0) continue;
      bucket.slices.push_back({parameter.name, static_cast<int>(p), parameter.tensor.shape(),
                               bucket.values.slice(0, begin, begin + count), true});
    }
  }
}

void GradientReducer::Impl::broadcast_values(const NamedTensors& tensors) {
  for (const auto& [name, tensor] : tensors)
    group->broadcast(tensor, 0, {.name = str("initial value of '", name, "'")});
}

/// Before the first all-reduce of a backward that a cuda::Graph captures.
void GradientReducer::Impl::begin_capture() {
  TANDEM_CHECK(
      StateError, shards == nullptr,
      "Graph: gradients that ranks divide cannot be captured; construct DistributedDataParallel without shard, or "
      "train without a graph");
  const Device device = buckets.front().values.device();
  TANDEM_CHECK(StateError, cuda::is_capturing(device), "Graph: the all-reduce of gradients on ", device,
               " cannot be captured; do it before or after the capture");
  TANDEM_CHECK(StateError, hooks == nullptr, "Graph: communication hooks (", describe(options.hooks),
               ") cannot be captured, because replays would not update their state; construct DistributedDataParallel "
               "without hooks, or train without a graph");
  before_replays([weak = std::weak_ptr(self)](bool is_first) {
    const auto impl = weak.lock();
    TANDEM_CHECK(StateError, impl != nullptr,
                 "Graph: the DistributedDataParallel of a captured backward was destroyed; capture a new Graph");
    TANDEM_CHECK(StateError, is_first || *(*impl)->no_sync_depth == 0,
                 "Graph: a captured backward averages gradients, but no_sync() is active; release its handle, or "
                 "capture a second Graph within no_sync()");
  });
  cuda::on_replay([this] { timer.exclude_step(); });
}

void GradientReducer::Impl::begin() {
  if (cuda::is_capturing()) begin_capture();
  // If backward throws, finish() is not called. The destructor then aborts the group, because other ranks wait for
  // this one.
  struct AbortGuard {
    Impl* impl;
    bool finished = false;
    ~AbortGuard() {
      if (finished) return;
      impl->in_backward = false;
      impl->abort_quietly("backward failed before all gradients were exchanged");
    }
  };
  auto guard = std::make_shared<AbortGuard>(this);
  autograd::queue_callback([this, guard] {
    guard->finished = true;
    in_backward = false;
    finish();
  });
  in_backward = true;
  next_bucket = 0;
  for (Bucket& bucket : buckets) bucket.missing = bucket.num_parameters;
  changes_at_begin = num_changes();
  timer.begin();
}

void GradientReducer::Impl::on_gradient(size_t parameter) {
  if (*no_sync_depth > 0 || (!is_planned(parameter) && !is_trained(parameter))) return;
  if (!in_backward) begin();
  if (!is_planned(parameter)) return;  // finish() averages it
  const Parameter& p = parameters[parameter];
  for (int i = p.first_bucket; i <= p.last_bucket; ++i) {
    if (plan.buckets[static_cast<size_t>(i)].buffer == plan.placements[parameter].buffer) {
      --buckets[static_cast<size_t>(i)].missing;
    }
  }
  // Between gathers of units, ranks that use other parameters would start averages in another order.
  if (units && options.unused == UnusedParameters::kAllow) return;
  while (next_bucket < buckets.size() && buckets[next_bucket].missing == 0) launch(next_bucket++);
}

void GradientReducer::Impl::launch(size_t i) {
  Bucket& bucket = buckets[i];
  if (shards) {
    for (const size_t p : shards->contents(i)) {
      if (!parameters[p].leaf->filled()) primitives::fill(parameters[p].leaf->slot(), 0);
    }
  }
  bucket.work = timer.launch([&] {
    if (shards && !hooks) return shards->average_async(i, bucket.name);
    return hooks ? hooks->launch(i) : group->all_reduce_async(bucket.values, ReduceOp::kAvg, {.name = bucket.name});
  });
}

void GradientReducer::Impl::finish() {
  timer.end_backward();
  TraceSpan span("wait for gradients", "wait");
  std::vector<bool> used;
  for (size_t p = 0; p < parameters.size(); ++p) {
    const Parameter& parameter = parameters[p];
    const bool is_launched = is_planned(p) && static_cast<size_t>(parameter.last_bucket) < next_bucket;
    used.push_back(is_launched || has_gradient(p));  // with shards, the gradient may be averaged and gone
    if (is_planned(p) && !shards && !parameter.leaf->filled()) primitives::fill(parameter.leaf->slot(), 0);
  }
  try {
    while (next_bucket < buckets.size()) launch(next_bucket++);
  } catch (const CommError&) {
    throw;
  } catch (...) {
    abort_quietly("backward failed before all gradients were exchanged");  // the other ranks are waiting for this one
    throw;
  }
  if (hooks) {  // it starts collectives until the last bucket is complete
    for (Bucket& bucket : buckets) bucket.work.wait();
    hooks->end_step();
  }
  std::vector<ControlRecord> records;
  try {
    records = exchange_records(used, "control record");
  } catch (const CommError&) {
    for (Bucket& bucket : buckets) bucket.work.wait();  // throws the root cause
    throw;
  }
  for (Bucket& bucket : buckets) bucket.work.wait();
  if (shards) {
    for (size_t i = 0; i < buckets.size(); ++i) shards->end_average(i);
  }
  const bool captures = cuda::is_capturing();
  if (captures) follow_replays(used);
  check_usage(records);
  if (!captures) check_values(records);
  timer.finish();
}

std::vector<ControlRecord> GradientReducer::Impl::exchange_records(const std::vector<bool>& used, const char* name) {
  Context* context = context_or_null();
  const uint32_t changes = num_changes();
  ControlRecord mine = {
      context != nullptr && context->stop_requested(), changes != changes_at_begin, changes - equal_at, used, {}};
  for (size_t p = 0; p < parameters.size(); ++p) mine.trained.push_back(is_trained(p));
  std::vector<ControlRecord> records = exchange(mine, *group, name);
  for (const ControlRecord& record : records) {
    if (record.stop_requested && context != nullptr) context->set_stop_agreed();
  }
  return records;
}

/// During capture of a cuda::Graph: each replay exchanges control records, for requests to stop. It throws if other
/// parameters have gradients than at capture, because the graph fills the slots of those without.
void GradientReducer::Impl::follow_replays(const std::vector<bool>& used) {
  before_replays([this, used](bool is_first) {  // the observer of begin_capture() has checked that this exists
    if (is_first) return;
    changes_at_begin = num_changes();
    check_values(exchange_records(used, "control record of a replay"));
  });
  cuda::on_replay([this, used] {
    for (size_t p = 0; p < parameters.size(); ++p) {
      const Parameter& parameter = parameters[p];
      TANDEM_CHECK(StateError, parameter.leaf->filled() == used[p], "Graph: the gradient of '", parameter.name, "' is ",
                   used[p] ? "empty" : "filled", " after backward; at capture it was ", used[p] ? "filled" : "empty",
                   "; call zero_grad as before the capture, or capture a new Graph");
    }
  });
}

/// Marks the gradients, averages those without a bucket, and throws if ranks used or trained other parameters.
void GradientReducer::Impl::check_usage(const std::vector<ControlRecord>& records) {
  std::string unused, frozen_somewhere;
  std::vector<Tensor> without_bucket;
  for (size_t p = 0; p < parameters.size(); ++p) {
    Parameter& parameter = parameters[p];
    std::vector<size_t> without, frozen;
    for (size_t r = 0; r < records.size(); ++r) {
      if (!records[r].used[p]) without.push_back(r);
      if (!records[r].trained[p]) frozen.push_back(r);
    }
    const bool is_frozen = frozen.size() == records.size();
    if (is_frozen && !is_planned(p)) continue;
    if (!frozen.empty() && !is_frozen) frozen_somewhere += str("\n  '", parameter.name, "'", on_ranks(*group, frozen));
    if (!without.empty()) {
      unused +=
          str("\n  '", parameter.name, "'", on_ranks(*group, without), without == frozen ? ", where it is frozen" : "");
    }
    autograd::Leaf& leaf = *parameter.leaf;
    if (without.size() == records.size()) {
      leaf.mark_empty();
      continue;
    }
    if (!is_planned(p)) {
      if (!std::exchange(parameter.has_slot, true)) leaf.set_slot(empty(leaf.shape(), {leaf.dtype(), leaf.device()}));
      if (!leaf.filled()) primitives::fill(leaf.slot(), 0);
      without_bucket.push_back(leaf.slot());
    }
    mark_averaged(leaf);
  }
  if (!without_bucket.empty()) {
    group->all_reduce_coalesced(without_bucket, ReduceOp::kAvg, {.name = "gradients without a bucket"});
  }
  TANDEM_CHECK(StateError, unused.empty() || options.unused == UnusedParameters::kAllow,
               "DistributedDataParallel: backward did not reach these parameters", unused,
               "\n  use them in the loss, or construct with unused = UnusedParameters::kAllow");
  TANDEM_CHECK(StateError, frozen_somewhere.empty(),
               "DistributedDataParallel: these parameters are frozen on some ranks only", frozen_somewhere,
               "\n  set requires_grad to the same value on all ranks");
}

/// The sum of the version counters of all trained parameters. Equal steps on all ranks change it equally. With units, a
/// hash of the values that were written to whole parameters.
uint32_t GradientReducer::Impl::num_changes() const {
  if (units) return units->hash_of_changes();
  uint32_t sum = 0;
  for (size_t p = 0; p < parameters.size(); ++p) sum += is_trained(p) ? parameters[p].tensor.version() : 0;
  return sum;
}

/// If parameters were changed more often on some ranks than on others, or during backward, before their gradients were
/// averaged: throws unless all ranks have the same values. With units, each element is on one rank only, so all ranks
/// must have written the same.
void GradientReducer::Impl::check_values(const std::vector<ControlRecord>& records) {
  const bool is_equal = std::all_of(records.begin(), records.end(), [&](const ControlRecord& record) {
    return (units || !record.changed_in_backward) && record.num_changes == records[0].num_changes;
  });
  if (is_equal) return;
  if (units) return units->check_changes();
  NamedTensors trained;
  for (size_t p = 0; p < parameters.size(); ++p) {
    if (is_trained(p)) trained.emplace_back(parameters[p].name, parameters[p].tensor);
  }
  check_same_values(trained, *group);
  equal_at = num_changes();
}

void GradientReducer::Impl::mark_averaged(autograd::Leaf& leaf) {
  if (autograd::LeafShard* const shard = leaf.shard()) {
    shard->is_filled = true;
    return;
  }
  const auto mark = [leaf = RefPtr<autograd::Leaf>(&leaf)] {
    leaf->slot().storage()->bump_version("all_reduce");
    leaf->mark_filled();
  };
  if (cuda::is_capturing()) {
    cuda::on_replay(mark);
    if (!leaf.filled()) cuda::on_failed_capture([leaf = RefPtr<autograd::Leaf>(&leaf)] { leaf->mark_empty(); });
  }
  mark();
}

GradientReducer::GradientReducer(NamedTensors parameters, NamedTensors buffers, std::shared_ptr<ProcessGroup> group,
                                 ReducerOptions options, const std::vector<std::string>& unit_of)
    : impl_(std::make_unique<Impl>()) {
  TANDEM_CHECK(StateError, group != nullptr, "GradientReducer: the group is null");
  Impl& impl = *impl_;
  impl.group = std::move(group);
  const bool has_hooks = !options.hooks.empty();
  TANDEM_CHECK(ValueError, options.hook_report_every >= 0, "GradientReducer: hook_report_every ",
               options.hook_report_every, " is negative");
  TANDEM_CHECK(ValueError, has_hooks || options.hook_report_every == 0,
               "GradientReducer: hook_report_every requires hooks");
  for (const auto& hook : options.hooks) TANDEM_CHECK(ValueError, hook != nullptr, "GradientReducer: a hook is null");
  TANDEM_CHECK(ValueError, !has_hooks || options.shard <= Shard::kOptimizer,
               "GradientReducer: hooks average whole gradients, which do not exist with Shard::k",
               options.shard == Shard::kGradients ? "Gradients" : "Parameters", "; use Shard::kOptimizer");
  if (has_hooks && options.hooks.front()->needs_whole_parameters()) options.buckets.split = false;
  impl.options = options;
  impl.buffers = std::move(buffers);
  const bool is_divided = options.shard != Shard::kNone;
  std::string compared;
  if (has_hooks)
    compared = str("communication hooks ", describe(options.hooks), ", report every ", options.hook_report_every, "\n");
  if (is_divided) compared += str("shard ", to_string(options.shard), "\n");
  const bool has_units = options.shard == Shard::kParameters;
  TANDEM_CHECK(ValueError, has_units || (options.units.empty() && !options.keep_after_forward),
               "GradientReducer: units and keep_after_forward require Shard::kParameters");
  for (size_t i = 0; has_units && i < unit_of.size(); ++i)
    compared += str("shard parameters: '", parameters[i].first, "' in unit '", unit_of[i], "'\n");
  check_same_parameters(parameters, impl.buffers, compared, *impl.group);
  for (const auto& named : parameters) {
    if (!has_units || !named.second.requires_grad()) impl.broadcast_values({named});  // the others unit by unit
  }
  impl.broadcast_values(impl.buffers);
  std::vector<ParameterInfo> infos;
  std::vector<std::string> unit_names = {""};
  std::vector<size_t> units;  // of the trained parameters
  for (const bool is_trained : {true, false}) {
    for (size_t i = 0; i < parameters.size(); ++i) {
      auto& [name, tensor] = parameters[i];
      if (tensor.requires_grad() != is_trained) continue;
      if (is_trained) {
        const std::string unit = i < unit_of.size() ? unit_of[i] : "";
        const auto found = std::find(unit_names.begin(), unit_names.end(), unit);
        units.push_back(static_cast<size_t>(found - unit_names.begin()));
        if (found == unit_names.end()) unit_names.push_back(unit);
      }
      autograd::Leaf& leaf = autograd::leaf(tensor.requires_grad_(true));  // a frozen one may be trained later
      tensor.requires_grad_(is_trained);
      TANDEM_CHECK(StateError, !is_trained || !leaf.has_foreign_slot(), "GradientReducer: the gradient of '", name,
                   "' is already stored in the buckets of another DistributedDataParallel");
      if (is_trained) infos.push_back({name, tensor.numel(), tensor.dtype(), tensor.device()});
      impl.parameters.push_back({name, tensor, RefPtr<autograd::Leaf>(&leaf), {}, 0, 0, false});
    }
  }
  impl.all_parameters = std::move(parameters);
  TANDEM_CHECK(ValueError, !infos.empty(), "GradientReducer: no parameter requires grad");
  impl.plan = has_units ? plan_units(infos, units, impl.group->size())
                        : plan_buckets(infos, options.buckets, is_divided ? impl.group->size() : 0);
  const Device device = infos.front().device;
  if (!device.is_cpu() && impl.group->size() > 1) impl.timer.use_gpu(device);  // a group uses one GPU per rank
  impl.make_buckets();
  is_divided ? impl.make_shards(unit_names, units) : impl.make_memory();
  if (has_hooks) {
    impl.hooks = std::make_unique<MeasuredCommHooks>(impl.group, options.hooks,
                                                     std::vector<GradBucket>(impl.buckets.begin(), impl.buckets.end()),
                                                     options.hook_report_every);
  }
  for (size_t p = 0; p < impl.parameters.size(); ++p) {
    impl.parameters[p].hook = impl.parameters[p].leaf->add_hook([&impl, p](const Tensor&) { impl.on_gradient(p); });
  }
  impl.equal_at = impl.num_changes();
}

GradientReducer::~GradientReducer() {
  for (Impl::Bucket& bucket : impl_->buckets) {
    if (bucket.work.valid() && !bucket.work.is_completed()) {
      impl_->abort_quietly("a DistributedDataParallel was destroyed while gradients were being all-reduced");
    }
  }
  // The threads that complete buckets may still write to them.
  for (Impl::Bucket& bucket : impl_->buckets) {
    try {
      if (bucket.work.valid()) bucket.work.wait();
    } catch (const std::exception&) {
      // Already thrown to the caller, or caused by the abort above.
    }
  }
  for (Impl::Parameter& parameter : impl_->parameters) {
    if (parameter.has_slot && parameter.leaf->shard() == nullptr) parameter.leaf->set_slot({});
  }
}

HookHandle GradientReducer::no_sync() {
  ++*impl_->no_sync_depth;
  return HookHandle([depth = impl_->no_sync_depth] { --*depth; });
}

void GradientReducer::broadcast_buffers() {
  for (const auto& [name, tensor] : impl_->buffers)
    impl_->group->broadcast(tensor, 0, {.name = str("buffer '", name, "'")});
}

void GradientReducer::check_not_replaced(const NamedTensors& parameters, const NamedTensors& buffers) const {
  check_same_tensors("parameter", impl_->all_parameters, parameters);
  check_same_tensors("buffer", impl_->buffers, buffers);
}

std::vector<std::pair<std::string, RefPtr<ModuleObserver>>> GradientReducer::units() const {
  if (!impl_->units) return {};
  return impl_->units->observers();
}

HookHandle GradientReducer::gathered(const std::vector<std::string>& units) {
  return impl_->units ? impl_->units->gather(units) : HookHandle();
}

const BucketPlan& GradientReducer::plan() const { return impl_->plan; }

Shard GradientReducer::shard() const { return impl_->options.shard; }

OverlapReport GradientReducer::report() const { return impl_->timer.report(); }

void GradientReducer::reset_report() { impl_->timer.reset(); }

void GradientReducer::exclude_step() { impl_->timer.exclude_step(); }

HookReport GradientReducer::hook_report() const { return impl_->hooks ? impl_->hooks->report() : HookReport{}; }

State GradientReducer::state_dict() const { return impl_->hooks ? impl_->hooks->state_dict() : State{}; }

void GradientReducer::load_state_dict(const State& state) {
  TANDEM_CHECK(StateError, impl_->hooks || state.empty(),
               "GradientReducer: the state belongs to communication hooks, but this reducer has none");
  if (impl_->hooks) impl_->hooks->load_state_dict(state);
}

void GradientReducer::load_state_dict(int num_ranks, const std::function<State(int rank)>& saved) {
  load_state_dict(mean_over_ranks(num_ranks, saved));
}

}}}  // namespace tandem::v0::distributed
