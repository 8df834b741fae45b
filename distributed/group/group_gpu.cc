// Collectives of a group on GPUs: NCCL moves the data, and an operation of the queue that moves no data compares the
// signatures (consistency check).
#include <algorithm>
#include <chrono>
#include <cstring>
#include <functional>
#include <future>
#include <thread>

#include <tandem/base/format.h>
#include <tandem/base/log.h>
#include <tandem/distributed/group/argument_checks.h>
#include <tandem/distributed/group/gpu_report.h>
#include <tandem/distributed/group/group_queue.h>
#include <tandem/distributed/store.h>
#include <tandem/tensor/cuda_capture.h>
#include <tandem/tensor/factories.h>

namespace tandem { inline namespace v0 { namespace distributed {

namespace {

/// Time for collectives in progress on the GPU after a rank was lost: the other ranks may still complete them.
constexpr std::chrono::milliseconds kAbortGrace{300};
constexpr std::chrono::milliseconds kStragglerGrace{1000};

}  // namespace

std::shared_ptr<CollectiveOperation> consistency_check_of(const CollectiveOperation& operation) {
  auto check = std::make_shared<CollectiveOperation>();
  Collective& c = check->collective;
  c = operation.collective;
  c.device = {};
  c.input = nullptr;
  c.output = nullptr;
  if (c.kind != CollectiveKind::kAllToAll) {  // its counts are compared
    c.inputs.clear();
    c.outputs.clear();
  }
  for (auto* const parts : {&c.inputs, &c.outputs}) {
    for (Part& part : *parts) part.data = nullptr;
  }
  c.moves_data = false;
  check->timeout = operation.timeout;
  check->trace_category = "consistency check";
  return check;
}

namespace {

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

Work GroupQueue::start_on_gpu(std::span<CollectiveOperation* const> operations) {
  const DeferCompletions defers_completions;  // for the waits of connect_gpu: continuations may start collectives here
  std::lock_guard launching(gpu_mutex_);      // consistency checks and launches have the same order
  const Device device = operations.front()->collective.device;
  const auto nccl = nccl_backend();
  check_gpu(to_string(operations.front()->collective.kind), device);
  for (CollectiveOperation* const operation : operations) NcclBackend::check(operation->collective);
  if (cuda::is_capturing()) return capture_on_gpu(operations, nccl);

  const auto works = std::make_shared<std::vector<std::shared_ptr<GpuWork>>>();
  std::vector<std::shared_ptr<CollectiveOperation>> checks;
  std::vector<NcclBackend::AgreedTime> agreed;
  for (CollectiveOperation* const operation : operations) {
    agreed.push_back(std::make_shared<NcclBackend::AgreedTime::element_type>());
    checks.push_back(consistency_check_of(*operation));
    checks.back()->ends_on_gpu = true;
    checks.back()->at_end = [when = agreed.back()] { when->store(NcclBackend::Clock::now()); };
  }
  checks.back()->join = [works] {
    for (const auto& work : *works) work->join();
  };
  Work check = start(std::span<const std::shared_ptr<CollectiveOperation>>(checks));
  for (size_t i = 0; i < operations.size(); ++i) {
    operations[i]->collective.seq = checks[i]->collective.seq;
    operations[i]->at_end = recorder_.end_on_gpu(*checks[i]);
  }
  try {
    const auto connected = nccl != nullptr ? nccl : connect_gpu(device, *checks.back(), operations.front()->timeout);
    for (size_t i = 0; i < operations.size(); ++i) works->push_back(connected->launch(*operations[i], agreed[i]));
  } catch (const std::exception& error) {
    works->push_back(std::make_shared<FailedWork>(std::current_exception()));
    if (!latch_.is_failing()) abort(error.what());  // otherwise all ranks have been notified of the cause
  }
  return check;
}

std::shared_ptr<NcclBackend> GroupQueue::nccl_backend() {
  std::lock_guard lock(mutex_);
  return nccl_backend_;
}

std::shared_ptr<GpuMessages> GroupQueue::gpu_messages() {
  std::lock_guard lock(mutex_);
  return gpu_messages_;
}

void GroupQueue::check_gpu(const char* op, Device device) {
  const auto nccl = nccl_backend();
  const auto messages = gpu_messages();
  const Device used = nccl != nullptr ? nccl->device() : messages != nullptr ? messages->device() : device;
  TANDEM_CHECK(DeviceError, used == device, op, ": this group uses ", used, ", but a tensor is on ", device,
               "\n  a group uses one GPU per rank; create another group with new_group");
}

void GroupQueue::finish_gpu() {
  if (const auto nccl = nccl_backend()) nccl->finish();
  if (const auto messages = gpu_messages()) messages->finish();
}

/// Options of all communicators of this rank.
NcclBackend::Options GroupQueue::nccl_options(Device device) {
  return {.device = device,
          .rank = options_.rank,
          .world_size = options_.world_size,
          .job_rank = own_job_rank(),
          .who = rank_label(options_),
          .max_blocks = GpuBlocks::of_collectives(device),
          .on_failure = [weak = weak_from_this()](const std::string& reason, int culprit) {
            const auto self = weak.lock();
            if (self) self->fail_group(culprit < 0 ? self->own_job_rank() : culprit, reason);
          }};
}

/// Creates the NCCL communicator. First waits for the consistency check, which gives the better error if the calls
/// differ.
std::shared_ptr<NcclBackend> GroupQueue::connect_gpu(Device device, const CollectiveOperation& check,
                                                     std::chrono::milliseconds timeout) {
  {
    std::unique_lock lock(mutex_);
    run_until(lock, check, Clock::time_point::max());
  }
  if (check.error) std::rethrow_exception(check.error);
  const Clock::time_point deadline = timeout.count() > 0 ? Clock::now() + timeout : Clock::time_point::max();
  // Each rank contributes the NCCL id (only rank 0 fills it in) and the information about its GPU.
  constexpr int64_t kIdBytes = sizeof(NcclId);
  const Tensor info = pack_gpu_info(device);
  const int64_t info_bytes = info.num_bytes(), row = kIdBytes + info_bytes;
  const Tensor own = zeros({row}, {kUInt8});
  if (options_.rank == 0) {
    const NcclId made = NcclBackend::make_id();
    std::memcpy(own.data_ptr(), made.data(), made.size());
  }
  std::memcpy(own.data_ptr() + kIdBytes, info.data_ptr(), static_cast<size_t>(info_bytes));
  const Tensor all = empty({options_.world_size, row}, {kUInt8});
  CollectiveOperation gather;
  prepare_all_gather(gather, options_, all, own, {.name = "NCCL's id", .timeout = timeout});
  run(gather);
  NcclId shared;
  std::memcpy(shared.data(), all.data_ptr(), shared.size());
  const Tensor infos = empty({options_.world_size, info_bytes}, {kUInt8});
  for (int64_t rank = 0; rank < options_.world_size; ++rank) {
    std::memcpy(infos.data_ptr() + rank * info_bytes, all.data_ptr() + rank * row + kIdBytes,
                static_cast<size_t>(info_bytes));
  }
  const std::string shared_gpu = find_shared_gpu(infos, job_ranks(options_));  // all ranks get the same result
  TANDEM_CHECK(DeviceError, shared_gpu.empty(), "group '", options_.name, "': ", shared_gpu,
               "\n  NCCL requires a different GPU for each rank; the local rank and CUDA_VISIBLE_DEVICES determine a "
               "rank's GPU");
  if (options_.rank == 0 && log_enabled(LogLevel::kWarning)) {
    log_line(LogLevel::kInfo,
             str("group '", options_.name, "': ", describe_gpus(infos, backend_->describe(), NcclBackend::version())));
  }
  NcclBackend::Options options = nccl_options(device);
  options.find_stragglers = [weak = weak_from_this()](int64_t seq) {
    const auto self = weak.lock();
    return self ? self->detect_stragglers(seq) : NcclBackend::StragglerReport();
  };
  const auto nccl = NcclBackend::join(std::move(options), shared, deadline, [this] { return latch_.is_failing(); });
  {
    std::lock_guard lock(mutex_);
    nccl_backend_ = nccl;
  }
  if (latch_.is_failing()) abort_gpu("the group has failed", -1);
  return nccl;
}

/// Called when `seq` was started by all ranks but did not finish here by its deadline. Every healthy waiting rank
/// reaches this point at about the same time and writes a key. Ranks without a key after one second are reported as
/// stragglers. A separate thread uses the store, and this function waits for it only for a limited time: the store may
/// be the component that does not respond.
NcclBackend::StragglerReport GroupQueue::detect_stragglers(int64_t seq) const {
  if (options_.store == nullptr) return {};
  const auto stragglers = std::make_shared<std::promise<std::vector<int>>>();
  std::future<std::vector<int>> answer = stragglers->get_future();
  try {
    start_rank_thread([options = options_, seq, stragglers] {
      try {
        stragglers->set_value(find_stragglers_in_store(options, seq));
      } catch (const Error&) {
      }
    }).detach();
  } catch (const ResourceError& e) {
    return {.text = str("\n  cannot query the store: ", e.what())};
  }
  if (answer.wait_for(kStragglerGrace + kAbortGrace) != std::future_status::ready)
    return {.text = "\n  the store does not respond; check that rank 0 is running"};
  std::vector<int> ranks;
  try {
    ranks = answer.get();
  } catch (const std::future_error&) {
    return {.text = "\n  the store has failed"};
  }
  if (ranks.empty()) return {.text = "\n  all ranks are waiting: the transfer is stuck on a GPU"};
  constexpr size_t kShown = 8;
  std::string text = "\n  no response from: rank ";
  for (size_t i = 0; i < std::min(ranks.size(), kShown); ++i) {
    text += str(i == 0 ? "" : ", rank ", job_rank(options_, ranks[i]), " (",
                describe_last(backend_->do_last_started(ranks[i]), "last reached"), ")");
  }
  if (ranks.size() > kShown) text += str(" and ", ranks.size() - kShown, " more");
  text += "; stuck, dead, or already finished";
  return {.text = text, .culprit = ranks.size() == 1 ? job_rank(options_, ranks[0]) : -1};
}

void GroupQueue::abort_gpu(const std::string& reason, int culprit) {
  if (const auto nccl = nccl_backend()) nccl->abort_after(reason, culprit, kAbortGrace);
  if (const auto messages = gpu_messages()) messages->abort_after(reason, culprit, kAbortGrace);
}

/// Suppresses the deferred error: this rank has caused the failure or already has its error.
void GroupQueue::suppress_deferred_errors() {
  if (const auto nccl = nccl_backend()) nccl->suppress_deferred_error();
  if (const auto messages = gpu_messages()) messages->suppress_deferred_error();
}

}}}  // namespace tandem::v0::distributed
