// One backward pass: the first leaf hook calls begin(). Each leaf hook decrements the counters of the buckets that
// contain its parameter; launch() starts the all-reduce of complete buckets, always in index order. finish() runs at
// the end of backward: it sets missing gradients to zero, launches the remaining buckets, and all-gathers a control
// record (used parameters, stop request) of each rank.
#include <tandem/distributed/ddp/gradient_reducer.h>

#include <time.h>

#include <algorithm>
#include <atomic>
#include <cstdio>
#include <deque>
#include <limits>
#include <optional>
#include <utility>

#include <tandem/autograd/engine.h>
#include <tandem/autograd/leaf.h>
#include <tandem/base/log.h>
#include <tandem/base/rank_context.h>
#include <tandem/base/trace.h>
#include <tandem/distributed/context.h>
#include <tandem/distributed/ddp/comm_hook_pipeline.h>
#include <tandem/distributed/ddp/parameter_digest.h>
#include <tandem/tensor/cuda.h>
#include <tandem/tensor/cuda_capture.h>
#include <tandem/tensor/factories.h>
#include <tandem/tensor/gpu_trace_clock.h>
#include <tandem/tensor/primitives.h>

namespace tandem { inline namespace v0 { namespace distributed {

namespace {

int64_t thread_cpu_ns() {
  timespec t{};
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
  return t.tv_sec * 1'000'000'000 + t.tv_nsec;
}

/// The calling rank's Context; null if the program created its group without one.
Context* context_or_null() { return RankContext::current().distributed_slot ? &Context::current() : nullptr; }

}  // namespace

std::string to_string(const OverlapReport& r) {
  char text[256];
  const double hidden = r.comm_ms > 0 ? 100 * (1 - std::min(r.exposed_ms / r.comm_ms, 1.0)) : 0;
  std::snprintf(text, sizeof text,
                "step %.2f ms = local %.2f + exposed %.2f + stolen %.2f (communication %.2f ms, %.0f %% hidden)",
                r.step_ms, r.local_ms, r.exposed_ms, r.stolen_ms, r.comm_ms, hidden);
  return text;
}

struct GradientReducer::Impl {
  struct Parameter {
    std::string name;
    Tensor tensor;
    RefPtr<autograd::Leaf> leaf;
    HookHandle hook;
    int first_bucket;  ///< first and last bucket that contain a slice of the parameter
    int last_bucket;
  };
  struct Bucket {
    Tensor tensor;  ///< view of the buffer
    std::string name;
    int num_parameters = 0;
    int missing = 0;  ///< parameters without a gradient in this backward pass
    Work work;
    std::shared_ptr<std::atomic<int64_t>> done_ns;  ///< completion time; may be written after wait() returns
    int64_t launch_ns = 0;
  };

  std::shared_ptr<ProcessGroup> group;
  ReducerOptions options;
  BucketPlan plan;
  NamedTensors buffers;
  std::vector<Parameter> parameters;
  std::vector<RefPtr<Storage>> memory;  ///< one per plan.buffers
  std::vector<Bucket> buckets;
  std::shared_ptr<int> no_sync_depth = std::make_shared<int>(0);      ///< shared with handles, which may outlive this
  std::shared_ptr<CommHookPipeline> hook_pipeline;                    ///< null without hooks
  const std::shared_ptr<Impl*> self = std::make_shared<Impl*>(this);  ///< for graphs, which may outlive this
  bool in_backward = false;                                           ///< between begin() and finish()
  size_t next_bucket = 0;
  // Times of the current step, and sums over completed steps:
  int64_t step_begin_ns = 0, begin_ns = 0, begin_cpu_ns = 0;
  int64_t steps = 0, step_ns = 0, exposed_ns = 0, stolen_ns = 0, comm_ns = 0;

  /// Events of one step on the GPU.
  struct GpuStep {
    cuda::Event begin, backward_end, end;
    std::shared_ptr<const cuda::ClockAnchor> anchor;           ///< set while tracing
    std::vector<std::pair<cuda::Event, cuda::Event>> buckets;  ///< ready, averaged
  };
  std::optional<Device> gpu;                    ///< the GPU of all buckets, in a group of several ranks
  std::optional<cuda::Event> gpu_backward_end;  ///< of the current step
  std::optional<cuda::Event> gpu_step_begin;
  std::vector<cuda::Event> gpu_launches;  ///< of the current step, by bucket
  std::optional<cuda::GpuTraceClock> gpu_clock;
  std::optional<cuda::Stream> gpu_probe;  ///< separate stream that waits for the buckets in order
  std::deque<GpuStep> gpu_steps;          ///< not added to the sums yet

  void make_buckets();
  void make_hooks();
  void broadcast_values(const NamedTensors& tensors);
  void on_gradient(size_t parameter);
  void begin();
  void begin_capture();
  void launch(size_t bucket);
  void finish();
  size_t num_record_bytes() const { return 1 + (parameters.size() + 7) / 8; }
  std::vector<uint8_t> exchange_records(const std::vector<bool>& used, const char* name);
  void follow_replays(const std::vector<bool>& used);
  void check_usage(const std::vector<uint8_t>& records);
  static void mark_averaged(autograd::Leaf& leaf);
  void exclude_step() {
    step_begin_ns = 0;
    gpu_step_begin.reset();
  }
  void account(int64_t finish_ns, int64_t finish_cpu_ns);
  cuda::Event gpu_time(const cuda::Stream& stream) const;
  void account_on_gpu();
  void sum_gpu_steps(bool all);
  /// abort() that logs errors, for destructors.
  void abort_quietly(const char* reason) noexcept {
    try {
      group->abort(reason);
    } catch (const Error& error) {
      log(LogLevel::kError, "GradientReducer: cannot abort the process group: ", error.what());
    }
  }
};

void GradientReducer::Impl::make_buckets() {
  for (const auto& b : plan.buffers) {
    memory.push_back(Storage::allocate(b.device, b.num_elements * size_of(b.dtype)));
    primitives::fill(make_view(memory.back(), b.dtype, {b.num_elements}, {1}, 0),
                     0);  // the padding is all-reduced as well
  }
  const size_t n = plan.buckets.size();
  for (size_t i = 0; i < n; ++i) {
    const BucketPlan::Bucket& range = plan.buckets[i];
    const auto buffer = static_cast<size_t>(range.buffer);
    Bucket bucket;
    bucket.tensor = make_view(memory[buffer], plan.buffers[buffer].dtype, {range.end - range.begin}, {1}, range.begin);
    const std::string& first = parameters[static_cast<size_t>(range.last_parameter)].name;
    const std::string& last = parameters[static_cast<size_t>(range.first_parameter)].name;
    bucket.name = str("bucket ", i, " of ", n, ": '", first, "'", first == last ? "" : str(" .. '", last, "'"));
    bucket.done_ns = std::make_shared<std::atomic<int64_t>>(0);
    buckets.push_back(std::move(bucket));
  }
  for (size_t p = 0; p < parameters.size(); ++p) {
    Parameter& parameter = parameters[p];
    const BucketPlan::Placement& placement = plan.placements[p];
    const auto buffer = static_cast<size_t>(placement.buffer);
    const int64_t bytes = size_of(plan.buffers[buffer].dtype);
    const int64_t count = parameter.tensor.num_elements();
    const auto slice = Storage::alias(memory[buffer], placement.offset * bytes, count * bytes);
    const Shape& shape = parameter.tensor.shape();
    parameter.leaf->set_slot(make_view(slice, parameter.tensor.dtype(), shape, row_major_strides(shape), 0));
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
    }
  }
}

void GradientReducer::Impl::make_hooks() {
  std::vector<GradBucket> hook_buckets;
  for (size_t i = 0; i < buckets.size(); ++i) {
    hook_buckets.push_back({buckets[i].tensor, static_cast<int>(i), buckets[i].name, {}});
  }
  for (size_t p = 0; p < parameters.size(); ++p) {
    const Parameter& parameter = parameters[p];
    const BucketPlan::Placement& placement = plan.placements[p];
    const int64_t count = parameter.tensor.num_elements();
    for (size_t i = 0; i < buckets.size(); ++i) {
      const BucketPlan::Bucket& range = plan.buckets[i];
      const int64_t begin = std::max(range.begin, placement.offset);
      const int64_t end = std::min(range.end, placement.offset + count);
      if (range.buffer != placement.buffer || begin >= end) continue;
      hook_buckets[i].slices.push_back({parameter.name, static_cast<int>(p), parameter.tensor.shape(),
                                        buckets[i].tensor.slice(0, begin - range.begin, end - range.begin),
                                        end - begin == count});
    }
  }
  hook_pipeline =
      std::make_shared<CommHookPipeline>(group, options.hooks, std::move(hook_buckets), options.hook_report_every);
}

void GradientReducer::Impl::broadcast_values(const NamedTensors& tensors) {
  for (const auto& [name, tensor] : tensors)
    group->broadcast(tensor, 0, {.name = str("initial value of '", name, "'")});
}

/// Before the first all-reduce of a backward that a cuda::Graph captures.
void GradientReducer::Impl::begin_capture() {
  const Device device = buckets.front().tensor.device();
  TANDEM_CHECK(StateError, cuda::is_capturing(device), "Graph: the all-reduce of gradients on ", device,
               " cannot be captured; do it before or after the capture");
  TANDEM_CHECK(StateError, hook_pipeline == nullptr, "Graph: communication hooks (", describe(options.hooks),
               ") cannot be captured, because replays would not update their state; construct DistributedDataParallel "
               "without hooks, or train without a graph");
  class Usage final : public cuda::ReplayObserver {
   public:
    explicit Usage(std::weak_ptr<Impl*> of) : of_(std::move(of)) {}
    void begin_replay(bool is_first) override {
      const auto impl = of_.lock();
      TANDEM_CHECK(StateError, impl != nullptr,
                   "Graph: the DistributedDataParallel of a captured backward was destroyed; capture a new Graph");
      TANDEM_CHECK(StateError, is_first || *(*impl)->no_sync_depth == 0,
                   "Graph: a captured backward averages gradients, but no_sync() is active; release its handle, or "
                   "capture a second Graph within no_sync()");
    }

   private:
    const std::weak_ptr<Impl*> of_;
  };
  cuda::observe_replays(std::make_shared<Usage>(self));
  exclude_step();
  cuda::on_replay([this] { exclude_step(); });
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
  gpu_launches.clear();
  for (Bucket& bucket : buckets) bucket.missing = bucket.num_parameters;
  begin_ns = trace_now_ns();
  begin_cpu_ns = thread_cpu_ns();
}

void GradientReducer::Impl::on_gradient(size_t parameter) {
  if (*no_sync_depth > 0) return;
  if (!in_backward) begin();
  const Parameter& p = parameters[parameter];
  for (int i = p.first_bucket; i <= p.last_bucket; ++i) {
    if (plan.buckets[static_cast<size_t>(i)].buffer == plan.placements[parameter].buffer) {
      --buckets[static_cast<size_t>(i)].missing;
    }
  }
  while (next_bucket < buckets.size() && buckets[next_bucket].missing == 0) launch(next_bucket++);
}

void GradientReducer::Impl::launch(size_t i) {
  Bucket& bucket = buckets[i];
  bucket.launch_ns = trace_now_ns();
  if (gpu && !cuda::is_capturing()) gpu_launches.push_back(gpu_time(cuda::current_stream(*gpu)));
  bucket.work = hook_pipeline ? hook_pipeline->launch(i)
                              : group->all_reduce_async(bucket.tensor, ReduceOp::kAvg, {.name = bucket.name});
  bucket.work.then([done = bucket.done_ns] { *done = trace_now_ns(); });
}

void GradientReducer::Impl::finish() {
  const int64_t finish_ns = trace_now_ns();
  const int64_t finish_cpu_ns = thread_cpu_ns();
  const bool captures = cuda::is_capturing();
  if (gpu && !captures) gpu_backward_end = gpu_time(cuda::current_stream(*gpu));
  TraceSpan span("wait for gradients", "wait");
  std::vector<bool> used;
  for (const Parameter& parameter : parameters) {
    autograd::Leaf& leaf = *parameter.leaf;
    used.push_back(leaf.filled());
    if (!leaf.filled()) primitives::fill(leaf.slot(), 0);
  }
  try {
    while (next_bucket < buckets.size()) launch(next_bucket++);
  } catch (const CommError&) {
    throw;
  } catch (...) {
    abort_quietly("backward failed before all gradients were exchanged");  // the other ranks are waiting for this one
    throw;
  }
  if (hook_pipeline) {  // it starts collectives until the last bucket is complete
    for (Bucket& bucket : buckets) bucket.work.wait();
    hook_pipeline->end_step();
  }
  std::vector<uint8_t> records;
  try {
    records = exchange_records(used, "control record");
  } catch (const CommError&) {
    for (Bucket& bucket : buckets) bucket.work.wait();  // throws the root cause
    throw;
  }
  for (Bucket& bucket : buckets) bucket.work.wait();
  if (captures) follow_replays(used);
  check_usage(records);
  if (!captures) account(finish_ns, finish_cpu_ns);
}

/// Gathers the control records of all ranks: a byte of flags, then a bit per parameter, whether it was used.
std::vector<uint8_t> GradientReducer::Impl::exchange_records(const std::vector<bool>& used, const char* name) {
  const auto record_bytes = static_cast<int64_t>(num_record_bytes());
  const Tensor mine = zeros({record_bytes}, {kUInt8});
  const Tensor all = empty({group->size(), record_bytes}, {kUInt8});
  uint8_t* record = mine.data<uint8_t>();
  Context* context = context_or_null();
  record[0] = context != nullptr && context->stop_requested() ? 1 : 0;
  for (size_t p = 0; p < used.size(); ++p) {
    if (used[p]) record[1 + p / 8] = static_cast<uint8_t>(record[1 + p / 8] | (1u << (p % 8)));
  }
  group->all_gather(all, mine, {.name = name});
  std::vector<uint8_t> records = all.to_vector<uint8_t>();
  for (size_t r = 0; r < records.size(); r += num_record_bytes()) {
    if (records[r] != 0 && context != nullptr) context->set_stop_agreed();
  }
  return records;
}

/// During capture of a cuda::Graph: each replay exchanges control records, for requests to stop. It throws if other
/// parameters have gradients than at capture, because the graph fills the slots of those without.
void GradientReducer::Impl::follow_replays(const std::vector<bool>& used) {
  class Exchange final : public cuda::ReplayObserver {
   public:
    Exchange(std::weak_ptr<Impl*> of, std::vector<bool> used_parameters)
        : of_(std::move(of)), used_(std::move(used_parameters)) {}
    void begin_replay(bool is_first) override {
      const auto impl = of_.lock();  // not null: Usage checks it
      if (!is_first) (*impl)->exchange_records(used_, "control record of a replay");
    }

   private:
    const std::weak_ptr<Impl*> of_;
    const std::vector<bool> used_;
  };
  cuda::observe_replays(std::make_shared<Exchange>(self, used));
  cuda::on_replay([this, used] {
    for (size_t p = 0; p < parameters.size(); ++p) {
      const Parameter& parameter = parameters[p];
      TANDEM_CHECK(StateError, parameter.leaf->filled() == used[p], "Graph: the gradient of '", parameter.name, "' is ",
                   used[p] ? "empty" : "filled", " after backward; at capture it was ", used[p] ? "filled" : "empty",
                   "; call zero_grad as before the capture, or capture a new Graph");
    }
  });
}

void GradientReducer::Impl::check_usage(const std::vector<uint8_t>& records) {
  const size_t record_bytes = num_record_bytes();
  std::string unused;
  for (size_t p = 0; p < parameters.size(); ++p) {
    std::vector<size_t> without;
    for (size_t r = 0; r < static_cast<size_t>(group->size()); ++r) {
      if ((records[r * record_bytes + 1 + p / 8] >> (p % 8) & 1) == 0) without.push_back(r);
    }
    autograd::Leaf& leaf = *parameters[p].leaf;
    if (without.size() == static_cast<size_t>(group->size())) {
      leaf.mark_empty();
    } else {
      mark_averaged(leaf);
    }
    if (without.empty()) continue;
    unused += str("\n  '", parameters[p].name, "' on rank", without.size() == 1 ? "" : "s");
    for (size_t r : without) unused += str(" ", group->ranks()[r]);
  }
  TANDEM_CHECK(StateError, unused.empty() || options.unused == UnusedParameters::kAllow,
               "DistributedDataParallel: backward did not reach these parameters", unused,
               "\n  use them in the loss, or construct with unused = UnusedParameters::kAllow");
}

void GradientReducer::Impl::mark_averaged(autograd::Leaf& leaf) {
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

/// Records a timing event on the stream.
cuda::Event GradientReducer::Impl::gpu_time(const cuda::Stream& stream) const {
  const cuda::Event event(*gpu, true);
  event.record(stream);
  return event;
}

/// Uses GPU timestamps, because the host runs ahead of the GPU.
void GradientReducer::Impl::account_on_gpu() {
  const cuda::Event end = gpu_time(cuda::current_stream(*gpu));
  if (gpu_step_begin) {
    gpu_steps.push_back({*gpu_step_begin, *gpu_backward_end, end, gpu_clock->anchor(), {}});
    const cuda::StreamGuard on(*gpu_probe);
    for (size_t i = 0; i < buckets.size(); ++i) {
      buckets[i].work.wait();  // makes the probe stream wait for the bucket; does not block the host
      gpu_steps.back().buckets.emplace_back(gpu_launches[i], gpu_time(*gpu_probe));
    }
  }
  gpu_step_begin = end;
  sum_gpu_steps(false);
}

void GradientReducer::Impl::sum_gpu_steps(bool all) {
  for (; !gpu_steps.empty(); gpu_steps.pop_front()) {
    const GpuStep& step = gpu_steps.front();
    const cuda::Event& last = step.buckets.back().second;
    if (!all && !(step.end.is_completed() && last.is_completed())) return;
    step.end.synchronize();
    last.synchronize();
    const auto ns = [&](const cuda::Event& event) {
      return static_cast<int64_t>(event.milliseconds_since(step.begin) * 1e6);
    };
    if (step.anchor != nullptr) {
      const auto span = [&](const char* name, const char* category, const cuda::Event& begin, const cuda::Event& end) {
        const int rank = RankContext::current().rank;
        record_trace(
            {name, category, rank, kGpuStepThread, step.anchor->host_ns_of(begin), step.anchor->host_ns_of(end)});
      };
      span("computes", "step", step.begin, step.backward_end);
      span("wait for gradients", "wait", step.backward_end, step.end);
    }
    ++steps;
    step_ns += ns(step.end);
    exposed_ns += ns(step.end) - ns(step.backward_end);
    int64_t covered = std::numeric_limits<int64_t>::min();
    for (const auto& [ready, arrived] : step.buckets) {
      const int64_t from = std::max(ns(ready), covered), until = ns(arrived);
      comm_ns += std::max<int64_t>(until - from, 0);
      covered = std::max(covered, until);
    }
  }
}

void GradientReducer::Impl::account(int64_t finish_ns, int64_t finish_cpu_ns) {
  if (gpu) return account_on_gpu();
  const int64_t now = trace_now_ns();
  if (step_begin_ns != 0) {
    ++steps;
    step_ns += now - step_begin_ns;
    exposed_ns += now - finish_ns;
    stolen_ns += std::max<int64_t>(finish_ns - begin_ns - (finish_cpu_ns - begin_cpu_ns), 0);
    int64_t covered = 0;
    for (const Bucket& bucket : buckets) {
      // done_ns may not be written yet, although the work is complete.
      const int64_t done_ns = *bucket.done_ns < bucket.launch_ns ? now : bucket.done_ns->load();
      const int64_t from = std::max(bucket.launch_ns, covered);
      if (done_ns > from) comm_ns += done_ns - from;
      covered = std::max(covered, done_ns);
    }
  }
  step_begin_ns = now;
}

GradientReducer::GradientReducer(NamedTensors parameters, NamedTensors buffers, std::shared_ptr<ProcessGroup> group,
                                 ReducerOptions options)
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
  if (has_hooks && options.hooks.front()->needs_whole_parameters()) options.buckets.split = false;
  impl.options = options;
  impl.buffers = std::move(buffers);
  const std::string hooks =
      has_hooks ? str(describe(options.hooks), ", report every ", options.hook_report_every) : std::string();
  check_same_parameters(parameters, impl.buffers, hooks, *impl.group);
  impl.broadcast_values(parameters);
  impl.broadcast_values(impl.buffers);
  std::vector<ParameterInfo> infos;
  for (auto& [name, tensor] : parameters) {
    if (!tensor.requires_grad()) continue;
    infos.push_back({name, tensor.num_elements(), tensor.dtype(), tensor.device()});
    autograd::Leaf& leaf = autograd::leaf(tensor);
    TANDEM_CHECK(StateError, !leaf.has_foreign_slot(), "GradientReducer: the gradient of '", name,
                 "' is already stored in the buckets of another DistributedDataParallel");
    impl.parameters.push_back({name, tensor, RefPtr<autograd::Leaf>(&leaf), {}, 0, 0});
  }
  TANDEM_CHECK(ValueError, !infos.empty(), "GradientReducer: no parameter requires grad");
  impl.plan = plan_buckets(infos, options.buckets);
  const Device device = infos.front().device;
  if (!device.is_cpu() && impl.group->size() > 1) {  // a group uses one GPU per rank
    impl.gpu = device;
    impl.gpu_probe.emplace(device);
    impl.gpu_clock.emplace(device);
  }
  impl.make_buckets();
  if (has_hooks) impl.make_hooks();
  for (size_t p = 0; p < impl.parameters.size(); ++p) {
    impl.parameters[p].hook = impl.parameters[p].leaf->add_hook([&impl, p](const Tensor&) { impl.on_gradient(p); });
  }
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
  for (Impl::Parameter& parameter : impl_->parameters) parameter.leaf->set_slot({});
}

HookHandle GradientReducer::no_sync() {
  ++*impl_->no_sync_depth;
  return HookHandle([depth = impl_->no_sync_depth] { --*depth; });
}

void GradientReducer::broadcast_buffers() {
  for (const auto& [name, tensor] : impl_->buffers)
    impl_->group->broadcast(tensor, 0, {.name = str("buffer '", name, "'")});
}

const BucketPlan& GradientReducer::plan() const { return impl_->plan; }

OverlapReport GradientReducer::report() const {
  Impl& impl = *impl_;
  impl.sum_gpu_steps(true);
  OverlapReport report;
  report.steps = impl.steps;
  if (impl.steps == 0) return report;
  const auto mean_ms = [&](int64_t ns) { return static_cast<double>(ns) / 1e6 / static_cast<double>(impl.steps); };
  report.step_ms = mean_ms(impl.step_ns);
  report.exposed_ms = mean_ms(impl.exposed_ns);
  report.stolen_ms = mean_ms(impl.stolen_ns);
  report.comm_ms = mean_ms(impl.comm_ns);
  report.local_ms = report.step_ms - report.exposed_ms - report.stolen_ms;
  return report;
}

HookReport GradientReducer::hook_report() const {
  return impl_->hook_pipeline ? impl_->hook_pipeline->report() : HookReport{};
}

State GradientReducer::state_dict() const {
  return impl_->hook_pipeline ? impl_->hook_pipeline->state_dict() : State{};
}

void GradientReducer::load_state_dict(const State& state) {
  TANDEM_CHECK(StateError, impl_->hook_pipeline || state.empty(),
               "GradientReducer: the state belongs to communication hooks, but this reducer has none");
  if (impl_->hook_pipeline) impl_->hook_pipeline->load_state_dict(state);
}

void GradientReducer::reset_report() {
  Impl& impl = *impl_;
  impl.gpu_steps.clear();
  impl.steps = impl.step_ns = impl.exposed_ns = impl.stolen_ns = impl.comm_ns = 0;
  exclude_step();
}

void GradientReducer::exclude_step() { impl_->exclude_step(); }

}}}  // namespace tandem::v0::distributed
