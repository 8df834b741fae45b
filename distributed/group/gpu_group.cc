#include <tandem/distributed/group/gpu_group.h>

#include <algorithm>
#include <cstring>
#include <future>
#include <thread>

#include <tandem/base/log.h>
#include <tandem/distributed/group/argument_checks.h>
#include <tandem/distributed/group/gpu_report.h>
#include <tandem/distributed/store.h>
#include <tandem/tensor/cuda_capture.h>
#include <tandem/tensor/factories.h>

namespace tandem { inline namespace v0 { namespace distributed {

namespace {

/// Time for collectives in progress on the GPU after a rank was lost: the other ranks may still complete them.
constexpr std::chrono::milliseconds kAbortGrace{300};
constexpr std::chrono::milliseconds kStragglerGrace{1000};

/// Appends the ranks of [begin, end) whose key is not in the store. Bisects the range.
void find_missing(Store& store, const std::function<std::string(int)>& key, int begin, int end,
                  std::vector<int>& missing) {
  std::vector<std::string> keys;
  for (int rank = begin; rank < end; ++rank) keys.push_back(key(rank));
  if (store.contains(keys)) return;
  if (end - begin == 1) {
    missing.push_back(begin);
    return;
  }
  const int middle = begin + (end - begin) / 2;
  find_missing(store, key, begin, middle, missing);
  find_missing(store, key, middle, end, missing);
}

/// Writes this rank's key. Returns the members that have not written their key when all have, or after kStragglerGrace.
std::vector<int> find_stragglers_in_store(const ProcessGroupOptions& options, int64_t seq) {
  const std::string prefix = str("group/", options.name, "/late/", seq);
  const auto key = [&](int rank) { return str(prefix, "/", rank); };
  options.store->set(key(options.rank), "here");
  const auto until = std::chrono::steady_clock::now() + kStragglerGrace;
  for (int64_t num_written = options.store->add(prefix, 1); num_written < options.world_size;
       num_written = options.store->add(prefix, 0)) {
    if (std::chrono::steady_clock::now() >= until) break;
    std::this_thread::sleep_for(std::chrono::milliseconds(50));
  }
  std::vector<int> stragglers;
  find_missing(*options.store, key, 0, options.world_size, stragglers);
  return stragglers;
}

}  // namespace

GpuGroup::GpuGroup(std::shared_ptr<GroupQueue> queue)
    : queue_(std::move(queue)), executor_(queue_->executor()), options_(executor_.options()) {}

void GpuGroup::listen() {
  executor_.latch()->listen([weak = weak_from_this()](const FailureLatch::Known& known) {
    const auto self = weak.lock();
    if (self == nullptr) return;
    const bool is_reported = known.has_own_ended || known.has_failed_operation;
    const bool is_failing = known.cause(self->options_).has_value();
    for (const auto& nccl : self->nccl_backends()) {
      if (is_reported) nccl->suppress_deferred_error();
      if (is_failing) nccl->abort_after(kAbortGrace);
    }
  });
}

std::shared_ptr<CollectiveOperation> GpuGroup::make_check(Collective collective, std::chrono::milliseconds timeout,
                                                          const NcclBackend::AgreedTime& agreed) {
  auto check = std::make_shared<CollectiveOperation>();
  Collective& c = check->collective;
  c = std::move(collective);
  c.kept = &check->kept;
  c.moves_data = false;
  if (cuda::is_capturing()) {  // NCCL requires that all ranks capture a collective, or none
    c.name_hash = hash_name(str("captured ", c.name_hash));
    c.name += c.name.empty() ? "captured" : " (captured)";
  }
  check->timeout = timeout;
  check->trace_category = "consistency check";
  check->ends_on_gpu = !cuda::is_capturing();
  check->at_end = [agreed] { agreed->store(NcclBackend::Clock::now()); };
  return check;
}

Work GpuGroup::start(CollectiveOperation& last) {
  std::vector<CollectiveOperation*> operations;
  for (const auto& earlier : last.earlier) operations.push_back(earlier.get());
  operations.push_back(&last);
  if (options_.world_size == 1) return queue_->start_single_rank(operations);
  const DeferCompletions defers_completions;  // for the waits of connect(): continuations may start collectives here
  std::lock_guard launching(launch_mutex_);
  const Device device = last.collective.device;
  std::shared_ptr<NcclBackend> nccl = nccl_backend();
  check_device(to_string(last.collective.kind), device);
  for (CollectiveOperation* const operation : operations) NcclBackend::check(operation->collective);
  const auto add_to_graph = cuda::is_capturing() ? begin_capture(last.collective, nccl) : nullptr;

  const auto joins = std::make_shared<std::vector<std::function<void()>>>();
  Collectives checks;
  std::vector<NcclBackend::AgreedTime> agreed;
  for (CollectiveOperation* const operation : operations) {
    agreed.push_back(std::make_shared<NcclBackend::AgreedTime::element_type>());
    checks.push_back(make_check(operation->collective, operation->timeout, agreed.back()));
  }
  checks.back()->join = [joins] {
    for (const auto& join : *joins) join();
  };
  checks.back()->earlier.assign(checks.begin(), checks.end() - 1);
  Work check = queue_->start(checks.back());
  for (size_t i = 0; i < operations.size(); ++i) operations[i]->collective.seq = checks[i]->collective.seq;
  try {
    if (nccl == nullptr) nccl = connect(device, *checks.back(), last.timeout);
    for (size_t i = 0; i < operations.size(); ++i) {
      if (!add_to_graph) operations[i]->at_end = executor_.recorder().end_on_gpu(*checks[i]);
      const auto work = add_to_graph ? add_to_graph(*operations[i]) : nccl->launch(*operations[i], agreed[i]);
      joins->emplace_back([work] { work->join(); });
    }
  } catch (const std::exception& error) {
    joins->emplace_back([failure = std::current_exception()] { std::rethrow_exception(failure); });
    if (!executor_.latch()->is_failing()) abort(error.what());  // otherwise all ranks were notified of the cause
  }
  return check;
}

void GpuGroup::prepare(std::span<const std::shared_ptr<Message>> messages) {
  const auto first = std::find_if(messages.begin(), messages.end(), [](const auto& m) { return m->gpu != nullptr; });
  if (first == messages.end()) return;
  std::unique_lock lock(mutex_);
  if (gpu_messages_ == nullptr) {
    gpu_messages_ = std::make_unique<GpuMessages>(options_, nccl_options((*first)->gpu->tensor.device()),
                                                  [this] { queue_->wake(); });
  }
  GpuMessages& all = *gpu_messages_;
  lock.unlock();
  all.prepare(messages);
}

void GpuGroup::abort(const std::string& reason) {
  for (const auto& nccl : nccl_backends()) nccl->suppress_deferred_error();
  executor_.fail_group({executor_.own_job_rank(), reason});
}

void GpuGroup::finish() {
  for (const auto& nccl : nccl_backends()) nccl->finish();
}

void GpuGroup::close() {
  std::unique_lock lock(mutex_);
  const auto nccl = std::move(nccl_backend_);
  GpuMessages* const messages = gpu_messages_.get();
  lock.unlock();
  if (messages != nullptr) messages->close();
}

std::shared_ptr<NcclBackend> GpuGroup::nccl_backend() {
  std::lock_guard lock(mutex_);
  return nccl_backend_;
}

/// Those of collectives and of messages.
std::vector<std::shared_ptr<NcclBackend>> GpuGroup::nccl_backends() {
  std::lock_guard lock(mutex_);
  auto all = gpu_messages_ != nullptr ? gpu_messages_->nccl_backends() : std::vector<std::shared_ptr<NcclBackend>>();
  if (nccl_backend_ != nullptr) all.push_back(nccl_backend_);
  return all;
}

void GpuGroup::check_device(const char* op, Device device) {
  std::lock_guard lock(mutex_);
  const Device used = nccl_backend_ != nullptr   ? nccl_backend_->device()
                      : gpu_messages_ != nullptr ? gpu_messages_->device()
                                                 : device;
  TANDEM_CHECK(DeviceError, used == device, op, ": this group uses ", used, ", but a tensor is on ", device,
               "\n  a group uses one GPU per rank; create another group with new_group");
}

/// Options of all communicators of this rank.
NcclBackend::Options GpuGroup::nccl_options(Device device) {
  return {.device = device,
          .rank = options_.rank,
          .world_size = options_.world_size,
          .job_rank = executor_.own_job_rank(),
          .who = rank_label(options_),
          .max_blocks = max_collective_blocks(device),
          .latch = executor_.latch(),
          .on_failure = [weak = weak_from_this()](const std::string& reason, int culprit) {
            const auto self = weak.lock();
            if (self == nullptr) return;
            Failure failure{culprit < 0 ? self->executor_.own_job_rank() : culprit, reason};
            failure.is_of_gpu = true;
            self->executor_.fail_group(failure);
          }};
}

/// Creates the NCCL communicator. First waits for the consistency check, which gives the better error if the calls
/// differ.
std::shared_ptr<NcclBackend> GpuGroup::connect(Device device, const CollectiveOperation& check,
                                               std::chrono::milliseconds timeout) {
  queue_->wait(check);
  if (check.error) std::rethrow_exception(check.error);
  const auto deadline =
      timeout.count() > 0 ? NcclBackend::Clock::now() + timeout : NcclBackend::Clock::time_point::max();
  // Each rank contributes the information about its GPU, and rank 0 the NCCL id.
  const Tensor info = pack_gpu_info(device);
  const int64_t info_bytes = info.num_bytes(), row = info_bytes + static_cast<int64_t>(sizeof(NcclId));
  const Tensor own = zeros({row}, {kUInt8});
  std::memcpy(own.data_ptr(), info.data_ptr(), static_cast<size_t>(info_bytes));
  if (options_.rank == 0) {
    const NcclId made = NcclBackend::make_id();
    std::memcpy(own.data_ptr() + info_bytes, made.data(), made.size());
  }
  const Tensor all = empty({options_.world_size, row}, {kUInt8});
  CollectiveOperation gather;
  prepare_parts(gather, options_, CollectiveKind::kAllGather, Outputs(all), own, -1, ReduceOp::kSum,
                {.name = "NCCL's id", .timeout = timeout});
  queue_->run(gather);
  NcclId shared;
  std::memcpy(shared.data(), all.data_ptr() + info_bytes, shared.size());
  const std::string shared_gpu = find_shared_gpu(all, job_ranks(options_));  // all ranks get the same result
  TANDEM_CHECK(DeviceError, shared_gpu.empty(), "group '", options_.name, "': ", shared_gpu,
               "\n  NCCL requires a different GPU for each rank; the local rank and CUDA_VISIBLE_DEVICES determine a "
               "rank's GPU");
  if (options_.rank == 0 && log_enabled(LogLevel::kWarning)) {
    log_line(LogLevel::kInfo, str("group '", options_.name,
                                  "': ", describe_gpus(all, executor_.backend()->describe(), NcclBackend::version())));
  }
  NcclBackend::Options options = nccl_options(device);
  options.find_stragglers = [weak = weak_from_this()](int64_t seq) {
    const auto self = weak.lock();
    return self ? self->detect_stragglers(seq) : NcclBackend::StragglerReport();
  };
  const auto nccl = NcclBackend::join(std::move(options), shared, deadline);
  {
    std::lock_guard lock(mutex_);
    nccl_backend_ = nccl;
  }
  if (executor_.latch()->is_failing()) nccl->abort_after(kAbortGrace);
  return nccl;
}

/// Called when `seq` was started by all ranks but did not finish here by its deadline. Every healthy waiting rank
/// reaches this point at about the same time and writes a key. Ranks without a key after one second are reported as
/// stragglers. A separate thread uses the store, and this function waits for it only for a limited time: the store may
/// be the component that does not respond.
NcclBackend::StragglerReport GpuGroup::detect_stragglers(int64_t seq) const {
  if (options_.store == nullptr) return {};
  const auto find = std::make_shared<std::packaged_task<std::vector<int>()>>(
      [options = options_, seq] { return find_stragglers_in_store(options, seq); });
  std::future<std::vector<int>> answer = find->get_future();
  try {
    start_rank_thread([find] { (*find)(); }).detach();
  } catch (const ResourceError& e) {
    return {.text = str("\n  cannot query the store: ", e.what())};
  }
  if (answer.wait_for(kStragglerGrace + kAbortGrace) != std::future_status::ready)
    return {.text = "\n  the store does not respond; check that rank 0 is running"};
  std::vector<int> ranks;
  try {
    ranks = answer.get();
  } catch (const Error&) {
    return {.text = "\n  the store has failed"};
  }
  if (ranks.empty()) return {.text = "\n  all ranks are waiting: the transfer is stuck on a GPU"};
  const std::span shown(ranks.data(), std::min<size_t>(ranks.size(), 8));
  const std::string more = ranks.size() > shown.size() ? str(" and ", ranks.size() - shown.size(), " more") : "";
  return {.text = str("\n  no response from: ", describe_ranks(options_, shown, *executor_.backend(), "last reached"),
                      more, "; stuck, dead, or already finished"),
          .culprit = ranks.size() == 1 ? job_rank(options_, ranks[0]) : -1};
}

}}}  // namespace tandem::v0::distributed
