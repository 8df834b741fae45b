#include <tandem/distributed/process_group.h>

#include <cmath>
#include <string_view>
#include <utility>

#include <tandem/base/log.h>
#include <tandem/distributed/backends/backend.h>
#include <tandem/distributed/group/argument_checks.h>
#include <tandem/distributed/group/deferred_backend.h>
#include <tandem/distributed/group/group_queue.h>
#include <tandem/distributed/group/monitored_barrier.h>
#include <tandem/distributed/group/process_group_access.h>
#include <tandem/distributed/rendezvous/group_store.h>
#include <tandem/tensor/factories.h>
#include <tandem/tensor/primitives.h>

namespace tandem { inline namespace v0 { namespace distributed {

/// Converts arguments to operations, which the queue runs.
class ProcessGroup::Impl : public GroupQueue {
 public:
  using GroupQueue::GroupQueue;

  const std::vector<int> ranks = job_ranks(options());
  std::atomic<int64_t> monitored_barriers{0};

  /// prepare(operation, options(), arguments...) checks the arguments and fills in the operation.
  template <class Prepare, class... Arguments>
  void call(const Prepare& prepare, Arguments&&... arguments) {
    CollectiveOperation operation;
    prepare(operation, options(), std::forward<Arguments>(arguments)...);
    if (!operation.collective.on_gpu) return run(operation);
    if (options().world_size == 1) return run_single_rank(operation);
    start_on_gpu(std::vector{&operation}).wait();
  }

  template <class Prepare, class... Arguments>
  Work call_async(const Prepare& prepare, Arguments&&... arguments) {
    const auto operation = std::make_shared<CollectiveOperation>();
    prepare(*operation, options(), std::forward<Arguments>(arguments)...);
    if (!operation->collective.on_gpu) return start(operation);
    return options().world_size == 1 ? start_single_rank(*operation) : start_on_gpu(std::vector{operation.get()});
  }

  void call(const Operations& operations) {  // all on one device
    if (!operations.front()->collective.on_gpu) return run(operations);
    if (options().world_size > 1) return start_on_gpu(pointers(operations)).wait();
    for (const auto& operation : operations) run_single_rank(*operation);
  }

  Work call_async(const Operations& operations) {
    if (!operations.front()->collective.on_gpu) return start(operations);
    if (options().world_size > 1) return start_on_gpu(pointers(operations));
    Work last;
    for (const auto& operation : operations) last = start_single_rank(*operation);
    return last;
  }

  static std::vector<CollectiveOperation*> pointers(const Operations& operations) {
    std::vector<CollectiveOperation*> result;
    for (const auto& operation : operations) result.push_back(operation.get());
    return result;
  }

  std::shared_ptr<Message> prepare(const char* op, const P2POp& what, CollectiveOptions&& call_options) {
    if (what.tensor.defined() && !what.tensor.device().is_cpu()) check_gpu(op, what.tensor.device());
    auto message = std::make_shared<Message>();
    prepare_message(*message, op, options(), what, std::move(call_options));
    return message;
  }

  void call(const P2POp& what, CollectiveOptions&& call_options) {
    const auto message = prepare(what.kind == P2POp::Kind::kSend ? "send" : "recv", what, std::move(call_options));
    prepare_gpu_messages(std::span(&message, 1));
    run(message);
  }

  Work call_async(const P2POp& what, CollectiveOptions&& call_options) {
    const auto message = prepare(what.kind == P2POp::Kind::kSend ? "isend" : "irecv", what, std::move(call_options));
    prepare_gpu_messages(std::span(&message, 1));
    return start(std::span(&message, 1)).front();
  }
};

std::shared_ptr<ProcessGroup> ProcessGroupAccess::make(const ProcessGroupOptions& options,
                                                       std::unique_ptr<Backend> backend,
                                                       std::chrono::milliseconds stall) {
  auto impl = std::make_shared<ProcessGroup::Impl>(options, std::move(backend), stall);
  impl->watch_failures();
  return std::shared_ptr<ProcessGroup>(new ProcessGroup(std::move(impl)));
}

void ProcessGroupAccess::finish_gpu(ProcessGroup& group) { group.impl_->finish_gpu(); }

namespace {

void check_options(ProcessGroupOptions& options) {
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
  check_options(options);
  if (options.world_size > 1) options.store = std::make_shared<GroupStore>(options);
  return ProcessGroupAccess::make(options, join(options));
}

std::shared_ptr<ProcessGroup> ProcessGroupAccess::create_deferred(ProcessGroupOptions options) {
  check_options(options);
  if (options.world_size == 1) return make(options, join(options));
  options.store = std::make_shared<GroupStore>(options);
  return make(options, std::make_unique<DeferredBackend>(options, join));
}

ProcessGroup::ProcessGroup(std::shared_ptr<Impl> impl) : impl_(std::move(impl)) {}

ProcessGroup::~ProcessGroup() { impl_->close(); }

int ProcessGroup::rank() const { return impl_->options().rank; }
int ProcessGroup::size() const { return impl_->options().world_size; }
const std::string& ProcessGroup::name() const { return impl_->options().name; }
const std::vector<int>& ProcessGroup::ranks() const { return impl_->ranks; }

// --- collectives ---

void ProcessGroup::all_reduce(const Tensor& tensor, ReduceOp op, CollectiveOptions options) {
  impl_->call(prepare_all_reduce, tensor, op, std::move(options));
}

Work ProcessGroup::all_reduce_async(const Tensor& tensor, ReduceOp op, CollectiveOptions options) {
  return impl_->call_async(prepare_all_reduce, tensor, op, std::move(options));
}

void ProcessGroup::all_reduce(const Tensor& output, const Tensor& input, ReduceOp op, CollectiveOptions options) {
  impl_->call(prepare_all_reduce_into, output, input, op, std::move(options));
}

Work ProcessGroup::all_reduce_async(const Tensor& output, const Tensor& input, ReduceOp op, CollectiveOptions options) {
  return impl_->call_async(prepare_all_reduce_into, output, input, op, std::move(options));
}

void ProcessGroup::reduce(const Tensor& tensor, int root, ReduceOp op, CollectiveOptions options) {
  impl_->call(prepare_reduce, tensor, root, op, std::move(options));
}

Work ProcessGroup::reduce_async(const Tensor& tensor, int root, ReduceOp op, CollectiveOptions options) {
  return impl_->call_async(prepare_reduce, tensor, root, op, std::move(options));
}

void ProcessGroup::broadcast(const Tensor& tensor, int root, CollectiveOptions options) {
  impl_->call(prepare_broadcast, tensor, root, std::move(options));
}

Work ProcessGroup::broadcast_async(const Tensor& tensor, int root, CollectiveOptions options) {
  return impl_->call_async(prepare_broadcast, tensor, root, std::move(options));
}

void ProcessGroup::gather(const Tensor& output, const Tensor& input, int root, CollectiveOptions options) {
  impl_->call(prepare_gather, output, input, root, std::move(options));
}

Work ProcessGroup::gather_async(const Tensor& output, const Tensor& input, int root, CollectiveOptions options) {
  return impl_->call_async(prepare_gather, output, input, root, std::move(options));
}

void ProcessGroup::gather(const std::vector<Tensor>& outputs, const Tensor& input, int root,
                          CollectiveOptions options) {
  impl_->call(prepare_gather, outputs, input, root, std::move(options));
}

Work ProcessGroup::gather_async(const std::vector<Tensor>& outputs, const Tensor& input, int root,
                                CollectiveOptions options) {
  return impl_->call_async(prepare_gather, outputs, input, root, std::move(options));
}

void ProcessGroup::all_gather(const Tensor& output, const Tensor& input, CollectiveOptions options) {
  impl_->call(prepare_all_gather, output, input, std::move(options));
}

Work ProcessGroup::all_gather_async(const Tensor& output, const Tensor& input, CollectiveOptions options) {
  return impl_->call_async(prepare_all_gather, output, input, std::move(options));
}

void ProcessGroup::all_gather(const std::vector<Tensor>& outputs, const Tensor& input, CollectiveOptions options) {
  impl_->call(prepare_all_gather, outputs, input, std::move(options));
}

Work ProcessGroup::all_gather_async(const std::vector<Tensor>& outputs, const Tensor& input,
                                    CollectiveOptions options) {
  return impl_->call_async(prepare_all_gather, outputs, input, std::move(options));
}

void ProcessGroup::scatter(const Tensor& output, const Tensor& input, int root, CollectiveOptions options) {
  impl_->call(prepare_scatter, output, input, root, std::move(options));
}

Work ProcessGroup::scatter_async(const Tensor& output, const Tensor& input, int root, CollectiveOptions options) {
  return impl_->call_async(prepare_scatter, output, input, root, std::move(options));
}

void ProcessGroup::scatter(const Tensor& output, const std::vector<Tensor>& inputs, int root,
                           CollectiveOptions options) {
  impl_->call(prepare_scatter, output, inputs, root, std::move(options));
}

Work ProcessGroup::scatter_async(const Tensor& output, const std::vector<Tensor>& inputs, int root,
                                 CollectiveOptions options) {
  return impl_->call_async(prepare_scatter, output, inputs, root, std::move(options));
}

void ProcessGroup::reduce_scatter(const Tensor& output, const Tensor& input, ReduceOp op, CollectiveOptions options) {
  impl_->call(prepare_reduce_scatter, output, input, op, std::move(options));
}

Work ProcessGroup::reduce_scatter_async(const Tensor& output, const Tensor& input, ReduceOp op,
                                        CollectiveOptions options) {
  return impl_->call_async(prepare_reduce_scatter, output, input, op, std::move(options));
}

void ProcessGroup::reduce_scatter(const Tensor& output, const std::vector<Tensor>& inputs, ReduceOp op,
                                  CollectiveOptions options) {
  impl_->call(prepare_reduce_scatter, output, inputs, op, std::move(options));
}

Work ProcessGroup::reduce_scatter_async(const Tensor& output, const std::vector<Tensor>& inputs, ReduceOp op,
                                        CollectiveOptions options) {
  return impl_->call_async(prepare_reduce_scatter, output, inputs, op, std::move(options));
}

void ProcessGroup::all_to_all(const Tensor& output, const Tensor& input, CollectiveOptions options) {
  impl_->call(prepare_all_to_all, output, input, std::move(options));
}

Work ProcessGroup::all_to_all_async(const Tensor& output, const Tensor& input, CollectiveOptions options) {
  return impl_->call_async(prepare_all_to_all, output, input, std::move(options));
}

void ProcessGroup::all_to_all(const std::vector<Tensor>& outputs, const std::vector<Tensor>& inputs,
                              CollectiveOptions options) {
  impl_->call(prepare_all_to_all, outputs, inputs, std::move(options));
}

Work ProcessGroup::all_to_all_async(const std::vector<Tensor>& outputs, const std::vector<Tensor>& inputs,
                                    CollectiveOptions options) {
  return impl_->call_async(prepare_all_to_all, outputs, inputs, std::move(options));
}

void ProcessGroup::all_to_all(const Tensor& output, const Tensor& input, const std::vector<int64_t>& output_splits,
                              const std::vector<int64_t>& input_splits, CollectiveOptions options) {
  impl_->call(prepare_all_to_all_of_splits, output, input, output_splits, input_splits, std::move(options));
}

Work ProcessGroup::all_to_all_async(const Tensor& output, const Tensor& input,
                                    const std::vector<int64_t>& output_splits, const std::vector<int64_t>& input_splits,
                                    CollectiveOptions options) {
  return impl_->call_async(prepare_all_to_all_of_splits, output, input, output_splits, input_splits,
                           std::move(options));
}

void ProcessGroup::barrier(CollectiveOptions options) { impl_->call(prepare_barrier, std::move(options)); }

Work ProcessGroup::barrier_async(CollectiveOptions options) {
  return impl_->call_async(prepare_barrier, std::move(options));
}

// --- coalesced collectives ---

void ProcessGroup::all_reduce_coalesced(const std::vector<Tensor>& tensors, ReduceOp op, CollectiveOptions options) {
  impl_->call(prepare_all_reduce_coalesced(impl_->options(), tensors, op, std::move(options)));
}

Work ProcessGroup::all_reduce_coalesced_async(const std::vector<Tensor>& tensors, ReduceOp op,
                                              CollectiveOptions options) {
  return impl_->call_async(prepare_all_reduce_coalesced(impl_->options(), tensors, op, std::move(options)));
}

void ProcessGroup::broadcast_coalesced(const std::vector<Tensor>& tensors, int root, CollectiveOptions options) {
  impl_->call(prepare_broadcast_coalesced(impl_->options(), tensors, root, std::move(options)));
}

Work ProcessGroup::broadcast_coalesced_async(const std::vector<Tensor>& tensors, int root, CollectiveOptions options) {
  return impl_->call_async(prepare_broadcast_coalesced(impl_->options(), tensors, root, std::move(options)));
}

void ProcessGroup::all_gather_coalesced(const std::vector<Tensor>& outputs, const std::vector<Tensor>& inputs,
                                        CollectiveOptions options) {
  impl_->call(prepare_all_gather_coalesced(impl_->options(), outputs, inputs, std::move(options)));
}

Work ProcessGroup::all_gather_coalesced_async(const std::vector<Tensor>& outputs, const std::vector<Tensor>& inputs,
                                              CollectiveOptions options) {
  return impl_->call_async(prepare_all_gather_coalesced(impl_->options(), outputs, inputs, std::move(options)));
}

void ProcessGroup::reduce_scatter_coalesced(const std::vector<Tensor>& outputs, const std::vector<Tensor>& inputs,
                                            ReduceOp op, CollectiveOptions options) {
  impl_->call(prepare_reduce_scatter_coalesced(impl_->options(), outputs, inputs, op, std::move(options)));
}

Work ProcessGroup::reduce_scatter_coalesced_async(const std::vector<Tensor>& outputs, const std::vector<Tensor>& inputs,
                                                  ReduceOp op, CollectiveOptions options) {
  return impl_->call_async(prepare_reduce_scatter_coalesced(impl_->options(), outputs, inputs, op, std::move(options)));
}

// --- messages ---

void ProcessGroup::send(const Tensor& tensor, int dst, int tag, CollectiveOptions options) {
  impl_->call({P2POp::Kind::kSend, tensor, dst, tag}, std::move(options));
}

Work ProcessGroup::isend(const Tensor& tensor, int dst, int tag, CollectiveOptions options) {
  return impl_->call_async({P2POp::Kind::kSend, tensor, dst, tag}, std::move(options));
}

void ProcessGroup::recv(const Tensor& tensor, int src, int tag, CollectiveOptions options) {
  impl_->call({P2POp::Kind::kRecv, tensor, src, tag}, std::move(options));
}

Work ProcessGroup::irecv(const Tensor& tensor, int src, int tag, CollectiveOptions options) {
  return impl_->call_async({P2POp::Kind::kRecv, tensor, src, tag}, std::move(options));
}

std::vector<Work> ProcessGroup::batch_isend_irecv(const std::vector<P2POp>& ops, CollectiveOptions options) {
  std::vector<std::shared_ptr<Message>> messages;
  for (const P2POp& op : ops) {
    const std::string shown = str("batch_isend_irecv: ops[", messages.size(), "]");
    messages.push_back(impl_->prepare(shown.c_str(), op, CollectiveOptions(options)));
  }
  impl_->prepare_gpu_messages(messages);
  return impl_->start(messages);
}

// --- the rest ---

void ProcessGroup::monitored_barrier(CollectiveOptions options) {
  const auto timeout = timeout_of("monitored_barrier", options, impl_->options());
  const int64_t number = ++impl_->monitored_barriers;
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

bool ProcessGroup::progress() { return impl_->progress(); }

void ProcessGroup::abort(const std::string& reason) { impl_->abort(reason); }

}}}  // namespace tandem::v0::distributed
