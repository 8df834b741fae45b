#include <tandem/distributed/process_group.h>

#include <cmath>
#include <string_view>
#include <utility>

#include <tandem/base/log.h>
#include <tandem/distributed/backends/backend.h>
#include <tandem/distributed/group/argument_checks.h>
#include <tandem/distributed/group/gpu_group.h>
#include <tandem/distributed/group/group_queue.h>
#include <tandem/distributed/group/joining.h>
#include <tandem/distributed/group/monitored_barrier.h>
#include <tandem/distributed/group/process_group_access.h>
#include <tandem/distributed/rendezvous/group_store.h>
#include <tandem/tensor/factories.h>
#include <tandem/tensor/primitives.h>

namespace tandem { inline namespace v0 { namespace distributed {

/// The parts of a group. A call is prepared here, and runs in the queue or, if its tensors are on a GPU, in `gpu`.
class ProcessGroup::Impl {
 public:
  const std::vector<int> ranks;
  std::atomic<int64_t> num_monitored_barriers{0};
  const std::shared_ptr<GroupQueue> queue;
  const std::shared_ptr<GpuGroup> gpu;
  std::unique_ptr<Joining> joining;  // if members may join later

  /// See ProcessGroupAccess::make.
  Impl(const ProcessGroupOptions& options, std::unique_ptr<Backend> backend, std::chrono::milliseconds stall,
       const Joining::Make& join)
      : ranks(job_ranks(options)),
        queue(std::make_shared<GroupQueue>(options, std::move(backend), stall)),
        gpu(std::make_shared<GpuGroup>(queue)) {
    gpu->listen();
    if (join) joining = std::make_unique<Joining>(queue, join);
  }

  const ProcessGroupOptions& options() const { return queue->executor().options(); }

  /// prepare(operation, options(), arguments...) checks the arguments and fills in the operation.
  template <class Prepare, class... Arguments>
  void call(const Prepare& prepare, Arguments&&... arguments) {
    CollectiveOperation operation;
    prepare(operation, options(), std::forward<Arguments>(arguments)...);
    if (!operation.collective.on_gpu) return queue->run(operation);
    gpu->start(operation).wait();
  }

  template <class Prepare, class... Arguments>
  Work call_async(const Prepare& prepare, Arguments&&... arguments) {
    const auto operation = std::make_shared<CollectiveOperation>();
    prepare(*operation, options(), std::forward<Arguments>(arguments)...);
    return operation->collective.on_gpu ? gpu->start(*operation) : queue->start(operation);
  }

  /// The messages of one call; errors show the index of a message in a batch.
  std::vector<std::shared_ptr<Message>> prepare(const char* op, std::span<const P2POp> ops,
                                                const CollectiveOptions& call_options, bool is_batch = false) {
    std::vector<std::shared_ptr<Message>> messages;
    for (const P2POp& what : ops) {
      const std::string name = is_batch ? str(op, ": ops[", messages.size(), "]") : op;
      if (what.tensor.defined() && !what.tensor.device().is_cpu())
        gpu->check_device(name.c_str(), what.tensor.device());
      messages.push_back(std::make_shared<Message>());
      prepare_message(*messages.back(), name.c_str(), options(), what, CollectiveOptions(call_options));
    }
    gpu->prepare(messages);
    return messages;
  }

  void call(const char* op, const P2POp& what, const CollectiveOptions& call_options) {
    queue->run(*prepare(op, {&what, 1}, call_options).front());
  }

  Work call_async(const char* op, const P2POp& what, const CollectiveOptions& call_options) {
    return queue->start(prepare(op, {&what, 1}, call_options).front());
  }

  void close() {
    queue->end_operations();
    joining.reset();
    // Failures of other ranks are still reported at this point, so finish() does not wait for a failed rank.
    gpu->finish();
    queue->close();
    gpu->close();
  }
};

std::shared_ptr<ProcessGroup> ProcessGroupAccess::make(
    const ProcessGroupOptions& options, std::unique_ptr<Backend> backend, std::chrono::milliseconds stall,
    const std::function<std::unique_ptr<Backend>(const ProcessGroupOptions&)>& join) {
  auto impl = std::make_shared<ProcessGroup::Impl>(options, std::move(backend), stall, join);
  return std::shared_ptr<ProcessGroup>(new ProcessGroup(std::move(impl)));
}

void ProcessGroupAccess::finish_gpu(ProcessGroup& group) { group.impl_->gpu->finish(); }

namespace {

using Kind = CollectiveKind;

constexpr int kNoRoot = -1;
constexpr ReduceOp kNoOp = ReduceOp::kSum;

/// Checks the options, and completes the timeout and the store.
void complete_options(ProcessGroupOptions& options) {
  TANDEM_CHECK(ValueError, options.world_size >= 1 && options.rank >= 0 && options.rank < options.world_size,
               "ProcessGroup: rank ", options.rank, " is not in [0, ", options.world_size, ")");
  TANDEM_CHECK(StateError, options.world_size == 1 || options.store != nullptr,
               "ProcessGroup: store is null, but world_size is ", options.world_size,
               "; pass a store that all ranks share");
  options.timeout = checked_timeout("ProcessGroup", options.timeout);
  TANDEM_CHECK(ValueError, options.ranks.empty() || options.ranks.size() == static_cast<size_t>(options.world_size),
               "ProcessGroup: ranks has ", options.ranks.size(), " elements for a world of ", options.world_size);
  for (size_t i = 0; i < options.ranks.size(); ++i) {
    TANDEM_CHECK(ValueError, options.ranks[i] >= 0 && (i == 0 || options.ranks[i - 1] < options.ranks[i]),
                 "ProcessGroup: ranks must be non-negative and ascending, but ranks[", i, "] is ", options.ranks[i]);
  }
  const std::string cpu = cpu_backend(options);
  TANDEM_CHECK(ValueError, cpu == "auto" || cpu == "shm" || cpu == "gloo" || cpu == "mpi",
               "ProcessGroup: unknown backend '", options.backend,
               "' (expected auto, shm, gloo or mpi; with GPUs for example cpu:gloo,cuda:nccl)");
  TANDEM_CHECK(
      ValueError, cpu != "mpi" || !options.thread_ranks,
      "ProcessGroup: backend mpi needs one process for each rank, but the ranks are threads of one process; use "
      "auto, shm or gloo");
  TANDEM_CHECK(
      ValueError, cpu != "mpi" || make_mpi_backend != nullptr,
      "ProcessGroup: this program is not linked with the mpi backend; link //distributed/backends/mpi (Bazel), "
      "tandem::mpi (CMake) or tandem_mpi (pkg-config)");
  if (options.world_size > 1) options.store = std::make_shared<GroupStore>(options);
}

std::unique_ptr<Backend> join(const ProcessGroupOptions& options) {
  auto backend = make_backend(options);
  ForwardingStore::forget_keys(options.store.get(), "join/");  // Rendezvous::finish() deletes them
  // The network interface of a group is logged unless only errors are logged.
  const bool uses_network = std::string_view(backend->name()) != "shm";
  if (options.rank == 0 && log_enabled(uses_network ? LogLevel::kWarning : LogLevel::kInfo)) {
    log_line(LogLevel::kInfo, str("group '", options.name, "': ", backend->describe()));
  }
  return backend;
}

}  // namespace

std::shared_ptr<ProcessGroup> ProcessGroup::create(ProcessGroupOptions options) {
  complete_options(options);
  return ProcessGroupAccess::make(options, join(options));
}

std::shared_ptr<ProcessGroup> ProcessGroupAccess::create_deferred(ProcessGroupOptions options) {
  complete_options(options);
  return options.world_size == 1 ? make(options, join(options)) : make(options, nullptr, kStall, join);
}

ProcessGroup::ProcessGroup(std::shared_ptr<Impl> impl) : impl_(std::move(impl)) {}

ProcessGroup::~ProcessGroup() { impl_->close(); }

int ProcessGroup::rank() const { return impl_->options().rank; }
int ProcessGroup::size() const { return impl_->options().world_size; }
const std::string& ProcessGroup::name() const { return impl_->options().name; }
const std::vector<int>& ProcessGroup::ranks() const { return impl_->ranks; }

// --- collectives ---

/// Defines a collective and its _async form.
#define TANDEM_COLLECTIVE(name, parameters, ...)                   \
  void ProcessGroup::name parameters { impl_->call(__VA_ARGS__); } \
  Work ProcessGroup::name##_async parameters { return impl_->call_async(__VA_ARGS__); }

TANDEM_COLLECTIVE(all_reduce, (const Tensor& tensor, ReduceOp op, Options options), prepare_in_place, Kind::kAllReduce,
                  tensor, kNoRoot, op, std::move(options))
TANDEM_COLLECTIVE(all_reduce, (const Tensor& output, const Tensor& input, ReduceOp op, Options options),
                  prepare_all_reduce_into, output, input, op, std::move(options))
TANDEM_COLLECTIVE(reduce, (const Tensor& tensor, int root, ReduceOp op, Options options), prepare_in_place,
                  Kind::kReduce, tensor, root, op, std::move(options))
TANDEM_COLLECTIVE(broadcast, (const Tensor& tensor, int root, Options options), prepare_in_place, Kind::kBroadcast,
                  tensor, root, kNoOp, std::move(options))
TANDEM_COLLECTIVE(gather, (const Tensor& output, const Tensor& input, int root, Options options), prepare_parts,
                  Kind::kGather, Outputs(output), input, root, kNoOp, std::move(options))
TANDEM_COLLECTIVE(gather, (const Tensors& outputs, const Tensor& input, int root, Options options), prepare_parts,
                  Kind::kGather, Outputs(outputs), input, root, kNoOp, std::move(options))
TANDEM_COLLECTIVE(all_gather, (const Tensor& output, const Tensor& input, Options options), prepare_parts,
                  Kind::kAllGather, Outputs(output), input, kNoRoot, kNoOp, std::move(options))
TANDEM_COLLECTIVE(all_gather, (const Tensors& outputs, const Tensor& input, Options options), prepare_parts,
                  Kind::kAllGather, Outputs(outputs), input, kNoRoot, kNoOp, std::move(options))
TANDEM_COLLECTIVE(scatter, (const Tensor& output, const Tensor& input, int root, Options options), prepare_parts,
                  Kind::kScatter, Inputs(input), output, root, kNoOp, std::move(options))
TANDEM_COLLECTIVE(scatter, (const Tensor& output, const Tensors& inputs, int root, Options options), prepare_parts,
                  Kind::kScatter, Inputs(inputs), output, root, kNoOp, std::move(options))
TANDEM_COLLECTIVE(reduce_scatter, (const Tensor& output, const Tensor& input, ReduceOp op, Options options),
                  prepare_parts, Kind::kReduceScatter, Inputs(input), output, kNoRoot, op, std::move(options))
TANDEM_COLLECTIVE(reduce_scatter, (const Tensor& output, const Tensors& inputs, ReduceOp op, Options options),
                  prepare_parts, Kind::kReduceScatter, Inputs(inputs), output, kNoRoot, op, std::move(options))
TANDEM_COLLECTIVE(all_to_all, (const Tensor& output, const Tensor& input, Options options), prepare_all_to_all, output,
                  input, std::move(options))
TANDEM_COLLECTIVE(all_to_all, (const Tensors& outputs, const Tensors& inputs, Options options), prepare_all_to_all,
                  outputs, inputs, std::move(options))
TANDEM_COLLECTIVE(all_to_all,
                  (const Tensor& output, const Tensor& input, const Splits& output_splits, const Splits& input_splits,
                   Options options),
                  prepare_all_to_all_of_splits, output, input, output_splits, input_splits, std::move(options))
TANDEM_COLLECTIVE(barrier, (Options options), describe_collective, Kind::kBarrier, Tensor(), std::move(options),
                  kNoRoot, kNoOp)

TANDEM_COLLECTIVE(all_reduce_coalesced, (const Tensors& tensors, ReduceOp op, Options options),
                  prepare_coalesced_in_place, Kind::kAllReduce, tensors, kNoRoot, op, std::move(options))
TANDEM_COLLECTIVE(broadcast_coalesced, (const Tensors& tensors, int root, Options options), prepare_coalesced_in_place,
                  Kind::kBroadcast, tensors, root, kNoOp, std::move(options))
TANDEM_COLLECTIVE(all_gather_coalesced, (const Tensors& outputs, const Tensors& inputs, Options options),
                  prepare_coalesced_parts, Kind::kAllGather, outputs, inputs, kNoOp, std::move(options))
TANDEM_COLLECTIVE(reduce_scatter_coalesced,
                  (const Tensors& outputs, const Tensors& inputs, ReduceOp op, Options options),
                  prepare_coalesced_parts, Kind::kReduceScatter, outputs, inputs, op, std::move(options))

#undef TANDEM_COLLECTIVE

// --- messages ---

void ProcessGroup::send(const Tensor& tensor, int dst, int tag, CollectiveOptions options) {
  impl_->call("send", {P2POp::Kind::kSend, tensor, dst, tag}, options);
}

Work ProcessGroup::isend(const Tensor& tensor, int dst, int tag, CollectiveOptions options) {
  return impl_->call_async("isend", {P2POp::Kind::kSend, tensor, dst, tag}, options);
}

void ProcessGroup::recv(const Tensor& tensor, int src, int tag, CollectiveOptions options) {
  impl_->call("recv", {P2POp::Kind::kRecv, tensor, src, tag}, options);
}

Work ProcessGroup::irecv(const Tensor& tensor, int src, int tag, CollectiveOptions options) {
  return impl_->call_async("irecv", {P2POp::Kind::kRecv, tensor, src, tag}, options);
}

std::vector<Work> ProcessGroup::batch_isend_irecv(const std::vector<P2POp>& ops, CollectiveOptions options) {
  const auto messages = impl_->prepare("batch_isend_irecv", ops, options, true);
  return impl_->queue->start(Operations(messages.begin(), messages.end()));
}

// --- the rest ---

void ProcessGroup::monitored_barrier(CollectiveOptions options) {
  const auto timeout = timeout_of("monitored_barrier", options, impl_->options());
  const int64_t number = ++impl_->num_monitored_barriers;
  distributed::monitored_barrier(impl_->options(), number, timeout);
}

double ProcessGroup::reduce_mean(double value, double weight, CollectiveOptions options) {
  TANDEM_CHECK(ValueError, weight >= 0 && std::isfinite(weight),
               "reduce_mean: weight must be finite and not negative, got ", weight);
  // A value with weight 0 is ignored, even if it is NaN.
  const Tensor sums = from_vector<double>({weight > 0 ? value * weight : 0, weight}, {2});
  all_reduce(sums, ReduceOp::kSum, std::move(options));
  const double* const sum = sums.data<double>();
  return sum[0] / sum[1];
}

Tensor ProcessGroup::reduce_mean(const Tensor& tensor, CollectiveOptions options) {
  check_argument("reduce_mean", {"tensor", tensor}, impl_->options());
  const DType dtype = is_floating_point(tensor.dtype()) ? tensor.dtype() : kFloat64;
  const Tensor mean = empty(tensor.shape(), {dtype, tensor.device()});
  primitives::copy(tensor, mean);
  all_reduce(mean, ReduceOp::kAvg, std::move(options));
  return mean;
}

bool ProcessGroup::progress() { return impl_->queue->progress(); }

void ProcessGroup::abort(const std::string& reason) { impl_->gpu->abort(reason); }

}}}  // namespace tandem::v0::distributed
