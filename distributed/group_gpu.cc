// Collectives of a group on GPUs: the lane moves the data, and an operation of the queue, which moves none, is their verdict.
#include <algorithm>
#include <cstring>

#include <tandem/base/log.h>
#include <tandem/distributed/gpu_report.h>
#include <tandem/distributed/group_queue.h>
#include <tandem/distributed/operands.h>
#include <tandem/tensor/factories.h>

namespace tandem::inline v0::distributed {

namespace {

/// How long what is under way on the GPU may take after a rank was lost: others may have done their part.
constexpr std::chrono::milliseconds kGrace{300};

/// What ranks compare of the collective, and when.
std::shared_ptr<CollectiveOperation> verdict_of(const CollectiveOperation& operation) {
  auto verdict = std::make_shared<CollectiveOperation>();
  Collective& c = verdict->collective;
  c = operation.collective;
  c.device = {};
  c.input = nullptr;
  c.output = nullptr;
  if (c.kind != CollectiveKind::kAllToAll) {  // whose counts are compared
    c.inputs.clear();
    c.outputs.clear();
  }
  for (auto* const parts : {&c.inputs, &c.outputs}) {
    for (Part& part : *parts) part.data = nullptr;
  }
  c.moves_data = false;
  verdict->timeout = operation.timeout;
  verdict->trace_category = "verdict";
  return verdict;
}

/// A collective that did not get as far as the GPU.
class FailedWork final : public GpuWork {
 public:
  explicit FailedWork(std::exception_ptr error) : error_(std::move(error)) {}
  void join() override { std::rethrow_exception(error_); }

 private:
  const std::exception_ptr error_;
};

}  // namespace

Work GroupQueue::start_on_gpu(std::span<CollectiveOperation* const> operations) {
  const HandsOver hands_over;  // connect_gpu's waits: continuations may start collectives here
  std::lock_guard launching(gpu_mutex_);  // verdicts and launches in one order
  const Device device = operations.front()->collective.device;
  const auto lane = gpu_lane();
  TANDEM_CHECK(DeviceError, lane == nullptr || lane->device() == device, to_string(operations.front()->collective.kind),
               ": this group moves tensors of ", lane->device(), ", and was given one on ", device,
               "\n  a rank has one GPU; new_group makes another group");
  for (CollectiveOperation* const operation : operations) GpuLane::check(operation->collective);

  const auto works = std::make_shared<std::vector<std::shared_ptr<GpuWork>>>();
  std::vector<std::shared_ptr<CollectiveOperation>> verdicts;
  for (CollectiveOperation* const operation : operations) verdicts.push_back(verdict_of(*operation));
  verdicts.back()->join = [works] {
    for (const auto& work : *works) work->join();
  };
  Work verdict = start(std::span<const std::shared_ptr<CollectiveOperation>>(verdicts));
  for (size_t i = 0; i < operations.size(); ++i) operations[i]->collective.seq = verdicts[i]->collective.seq;
  try {
    const auto connected = lane != nullptr ? lane : connect_gpu(device, *verdicts.back(), operations.front()->timeout);
    for (CollectiveOperation* const operation : operations) works->push_back(connected->launch(*operation));
  } catch (const std::exception& error) {
    works->push_back(std::make_shared<FailedWork>(std::current_exception()));
    abort(error.what());
  }
  return verdict;
}

std::shared_ptr<GpuLane> GroupQueue::gpu_lane() {
  std::lock_guard lock(mutex_);
  return gpu_lane_;
}

/// Makes the communicator.  First the verdict, which says better what is wrong where ranks are elsewhere.
std::shared_ptr<GpuLane> GroupQueue::connect_gpu(Device device, const CollectiveOperation& verdict, std::chrono::milliseconds timeout) {
  {
    std::unique_lock lock(mutex_);
    help(lock, verdict, Clock::time_point::max());
  }
  if (verdict.error) std::rethrow_exception(verdict.error);
  const Clock::time_point deadline = timeout.count() > 0 ? Clock::now() + timeout : Clock::time_point::max();
  // What ranks tell each other: of rank 0 the id, of all what their GPUs are.
  constexpr int64_t kIdBytes = sizeof(NcclId);
  const Tensor card = gpu_card(device);
  const int64_t card_bytes = card.num_bytes(), row = kIdBytes + card_bytes;
  const Tensor own = zeros({row}, {kUInt8});
  if (options_.rank == 0) {
    const NcclId made = GpuLane::make_id();
    std::memcpy(own.data_ptr(), made.data(), made.size());
  }
  std::memcpy(own.data_ptr() + kIdBytes, card.data_ptr(), static_cast<size_t>(card_bytes));
  const Tensor all = empty({options_.world_size, row}, {kUInt8});
  CollectiveOperation gather;
  prepare_all_gather(gather, options_, all, own, {.name = "NCCL's id", .timeout = timeout});
  run(gather);
  NcclId shared;
  std::memcpy(shared.data(), all.data_ptr(), shared.size());
  if (options_.rank == 0 && log_enabled(LogLevel::kWarning)) {
    const Tensor cards = empty({options_.world_size, card_bytes}, {kUInt8});
    for (int64_t rank = 0; rank < options_.world_size; ++rank) {
      std::memcpy(cards.data_ptr() + rank * card_bytes, all.data_ptr() + rank * row + kIdBytes, static_cast<size_t>(card_bytes));
    }
    log_line(LogLevel::kInfo, str("group '", options_.name, "': ", describe_gpus(cards, backend_->describe(), GpuLane::version())));
  }
  const auto lane = GpuLane::join({.device = device,
                                   .rank = options_.rank,
                                   .world_size = options_.world_size,
                                   .job_rank = own_job_rank(),
                                   .who = who(),
                                   .describe_others =
                                       [weak = weak_from_this()] {
                                         const auto self = weak.lock();
                                         return self ? self->describe_behind() : "";
                                       },
                                   .on_failure =
                                       [weak = weak_from_this()](const std::string& reason) {
                                         if (const auto self = weak.lock()) self->abort(reason);
                                       }},
                                  shared, deadline, [this] { return is_aborted_.load() || is_failing_.load(); });
  {
    std::lock_guard lock(mutex_);
    gpu_lane_ = lane;
  }
  if (is_aborted_ || is_failing_) give_up_gpu("the group has failed");
  return lane;
}

/// Who has started fewer operations than others: "\n  behind: rank 3 (last reached all_reduce #5, 31.2 s ago)".
std::string GroupQueue::describe_behind() const {
  std::vector<LastStarted> last;
  for (int rank = 0; rank < options_.world_size; ++rank) last.push_back(backend_->do_last_started(rank));
  const auto is_before = [](const LastStarted& a, const LastStarted& b) { return a.seq < b.seq; };
  const int64_t most = std::max_element(last.begin(), last.end(), is_before)->seq;
  std::string behind;
  for (size_t rank = 0; rank < last.size(); ++rank) {
    if (last[rank].seq == most) continue;
    behind += str(behind.empty() ? "\n  behind: rank " : ", rank ", job_rank(options_, static_cast<int>(rank)), " (",
                  describe_last(last[rank], "last reached"), ")");
  }
  return behind.empty() ? "\n  all ranks have started it: a GPU has not done its part" : behind;
}

void GroupQueue::give_up_gpu(const std::string& reason) {
  is_failing_ = true;
  if (const auto lane = gpu_lane()) lane->give_up(reason, kGrace);
}

RefPtr<Storage> GroupQueue::allocate(int64_t num_bytes, Device device) {
  return device.is_cpu() ? backend_->do_allocate(num_bytes, device) : Storage::allocate(device, num_bytes);
}

}  // namespace tandem::inline v0::distributed
