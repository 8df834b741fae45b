#include <tandem/distributed/process_group.h>

#include <pthread.h>
#include <signal.h>

#include <algorithm>
#include <condition_variable>
#include <deque>
#include <mutex>
#include <optional>
#include <thread>
#include <utility>

#include <tandem/base/format.h>
#include <tandem/base/log.h>
#include <tandem/base/rank_context.h>
#include <tandem/base/trace.h>
#include <tandem/distributed/backend.h>
#include <tandem/distributed/store/failure_board.h>
#include <tandem/tensor/chores.h>
#include <tandem/tensor/factories.h>

namespace tandem::inline v0::distributed {

namespace {

using Clock = Backend::Clock;

// Polls before a blocked caller goes to sleep, about 50 us: longer than ranks in step are apart, shorter than a time
// slice.
constexpr int kSpins = 1500;

void pause_briefly() {
#if defined(__x86_64__)
  __builtin_ia32_pause();
#endif
}

/// One operation, from the call to its completion.
struct Operation {
  Collective collective;
  Tensor input;  // row-major; keeps the memory alive
  Tensor output;
  Tensor strided_input;   // the caller's where it is not row-major: copied when the operation begins
  Tensor strided_output;  // likewise: gets a copy at the end
  std::chrono::milliseconds timeout{0};
  Clock::time_point deadline = Clock::time_point::max();  // set when it starts
  int64_t begin_ns = 0;
  bool started = false;
  bool done = false;  // guarded by the group's mutex
  std::exception_ptr error;
  std::optional<Promise<void>> promise;  // asynchronous form
};

}  // namespace

/// The queue, and whoever runs its head.
///
/// `running_` is the lock of design: its holder alone touches the backend (but for the calls that may be made beside).
/// Threads that wait for an operation hold it while they wait for peers; the worker and progress() give it back
/// instead.
class ProcessGroup::Impl : public std::enable_shared_from_this<ProcessGroup::Impl> {
 public:
  Impl(const ProcessGroupOptions& options, std::unique_ptr<Backend> backend)
      : options_(with_ranks(options)), is_whole_job_(options.ranks.empty()), backend_(std::move(backend)) {}

  const ProcessGroupOptions& options() const { return options_; }
  Backend& backend() { return *backend_; }

  /// Passes the store's news of failed ranks on to whoever waits.
  void watch_failures() {
    if (options_.store == nullptr) return;
    failures_ = options_.store->on_failure([this](int rank, const std::string& reason) {
      const bool member =
          rank < 0 || std::find(options_.ranks.begin(), options_.ranks.end(), rank) != options_.ranks.end();
      if (member && rank != own_job_rank()) backend_->do_hear_failure(rank, reason);
    });
  }

  /// Runs the operation on this thread, after those that are queued.
  void run(Operation& operation) {
    std::unique_lock lock(mutex_);
    // Not owned: the operation lives on the caller's stack until it is done, and done ones are in no queue.
    enqueue(std::shared_ptr<Operation>(std::shared_ptr<void>(), &operation));
    help(lock, operation, Clock::time_point::max());
    lock.unlock();
    if (operation.error) std::rethrow_exception(operation.error);
  }

  /// Queues the operation and returns its handle.
  Work start(std::shared_ptr<Operation> operation) {
    operation->promise.emplace();
    operation->promise->set_help(
        [group = weak_from_this(), weak = std::weak_ptr(operation)](Clock::time_point deadline) {
          const auto self = group.lock();
          const auto waited = weak.lock();
          if (self == nullptr || waited == nullptr) return false;
          std::unique_lock lock(self->mutex_);
          self->help(lock, *waited, deadline);
          return false;
        });
    Work work = operation->promise->future();
    if (trace_enabled()) {
      const int64_t now = trace_now_ns();
      const int thread = RankContext::current().trace_thread;
      record_trace({"launch " + shown_name(operation->collective), "comm", options_.rank, thread, now, now, 0});
    }
    bool asleep;
    {
      std::lock_guard lock(mutex_);
      enqueue(std::move(operation));
      if (!worker_.joinable()) start_worker();
      asleep = worker_sleeps_;
    }
    for_worker_.notify_one();
    if (asleep) backend_->do_wake();
    return work;
  }

  bool progress() {
    std::unique_lock lock(mutex_);
    while (!queue_.empty() && !running_) {
      if (!advance_head(lock)) return true;
    }
    return !queue_.empty();
  }

  void abort(const std::string& reason) { backend_->do_abort(own_job_rank(), reason); }

  /// Fails what is queued, see ~ProcessGroup, and ends the worker.
  void close() {
    failures_.remove();
    std::unique_lock lock(mutex_);
    if (const size_t count = queue_.size(); count > 0) {
      lock.unlock();
      abort(str("destroyed its group while ", count, count == 1 ? " operation was" : " operations were", " queued"));
      lock.lock();
    }
    while (!queue_.empty()) {
      ++helpers_;
      if (running_) {
        for_helpers_.wait(lock);
      } else {
        run_head(lock, Clock::time_point::max());
      }
      --helpers_;
    }
    stop_ = true;
    std::thread worker = std::move(worker_);
    lock.unlock();
    for_worker_.notify_one();
    backend_->do_wake();
    if (!worker.joinable()) return;
    if (worker.get_id() == std::this_thread::get_id()) {
      worker.detach();  // a continuation dropped the last handle; the worker holds this object until it ends
    } else {
      worker.join();
    }
  }

 private:
  int own_job_rank() const { return job_rank(options_, options_.rank); }

  /// "[rank 2 of 4] all_reduce #7"; in a group of some ranks only "[rank 2, group 'evaluation'] all_reduce #7".
  std::string label(const Collective& c) const {
    const std::string who = is_whole_job_ ? str("rank ", options_.rank, " of ", options_.world_size)
                                          : str("rank ", own_job_rank(), ", group '", options_.name, "'");
    return str("[", who, "] ", to_string(c.kind), " #", c.seq);
  }

  static std::string shown_name(const Collective& c) { return c.name.empty() ? to_string(c.kind) : c.name; }

  void enqueue(std::shared_ptr<Operation> operation) {
    operation->collective.seq = ++last_seq_;
    queue_.push_back(std::move(operation));
  }

  void start_worker() {
    // Signals are for the threads of the program.
    sigset_t all;
    sigset_t before;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    worker_ = std::thread([self = shared_from_this(), context = RankContext::current()]() mutable {
      RankContext::Use use(context);
      set_trace_thread(1);
      self->work();
    });
    pthread_sigmask(SIG_SETMASK, &before, nullptr);
  }

  /// The worker: advances the head unless somebody who waits for it does.
  void work() {
    std::unique_lock lock(mutex_);
    for (;;) {
      for_worker_.wait(lock, [&] { return stop_ || (!queue_.empty() && helpers_ == 0 && !running_); });
      if (stop_) return;
      if (advance_head(lock)) continue;
      const Clock::time_point deadline = queue_.front()->deadline;
      worker_sleeps_ = true;
      lock.unlock();
      backend_->do_sleep(
          [&] {
            std::unique_lock inner(mutex_);
            if (stop_ || helpers_ > 0 || running_ || queue_.empty()) return true;
            return advance_head(inner);
          },
          deadline);
      lock.lock();
      worker_sleeps_ = false;
    }
  }

  /// Runs heads on this thread until `operation` is done or `until` has passed.
  void help(std::unique_lock<std::mutex>& lock, const Operation& operation, Clock::time_point until) {
    ++helpers_;
    while (!operation.done) {
      if (!running_) {
        if (!run_head(lock, until)) break;
      } else if (until == Clock::time_point::max()) {
        for_helpers_.wait(lock);
      } else if (for_helpers_.wait_until(lock, until) == std::cv_status::timeout) {
        break;
      }
    }
    --helpers_;
    if (helpers_ == 0 && !queue_.empty()) for_worker_.notify_one();
  }

  /// Runs the head to its end, waiting for peers; false where `until` passed first.
  bool run_head(std::unique_lock<std::mutex>& lock, Clock::time_point until) {
    const std::shared_ptr<Operation> head = take_head(lock);
    bool done = false;
    do {
      int idle = 0;
      const int longest = backend_->may_spin() ? kSpins : 1;
      while (!done && idle < longest) {
        const Advance result = advance(*head);
        done = result == Advance::kDone;
        idle = result == Advance::kIdle ? idle + 1 : 0;
        if (idle > 0) pause_briefly();
      }
      if (!done) {
        backend_->do_sleep(
            [&] {
              const Advance result = advance(*head);
              done = result == Advance::kDone;
              return result != Advance::kIdle;
            },
            std::min(until, head->deadline));
        done = done || expire(*head);
      }
    } while (!done && Clock::now() < until);
    give_back(lock, head, done);
    return done;
  }

  /// Goes as far as the head can without waiting; true if it is done.
  bool advance_head(std::unique_lock<std::mutex>& lock) {
    const std::shared_ptr<Operation> head = take_head(lock);
    Advance result = Advance::kMoved;
    while (result == Advance::kMoved) result = advance(*head);
    const bool done = result == Advance::kDone || expire(*head);
    give_back(lock, head, done);
    return done;
  }

  std::shared_ptr<Operation> take_head(std::unique_lock<std::mutex>& lock) {
    running_ = true;
    std::shared_ptr<Operation> head = queue_.front();
    lock.unlock();
    return head;
  }

  void give_back(std::unique_lock<std::mutex>& lock, const std::shared_ptr<Operation>& head, bool done) {
    if (done) finish(*head);
    lock.lock();
    running_ = false;
    if (done) {
      queue_.pop_front();
      head->done = true;
    }
    if (helpers_ > 0) {
      for_helpers_.notify_all();
    } else if (!queue_.empty()) {
      for_worker_.notify_one();
    }
    if (done && head->promise) {
      lock.unlock();
      complete(*head);  // runs continuations
      lock.lock();
    }
  }

  static void complete(const Operation& operation) {
    if (operation.error) {
      operation.promise->set_exception(operation.error);
    } else {
      operation.promise->set_value();
    }
  }

  // --- the rest is called by the holder of running_ -----------------------------------------------------------------

  /// Without waiting; kDone also where it has failed.
  Advance advance(Operation& operation) {
    try {
      if (!operation.started) begin(operation);
      return backend_->do_advance();
    } catch (const GroupError& e) {
      fail(operation, e);
    } catch (...) {
      operation.error = std::current_exception();
      fail_group(own_job_rank(), "an operation ended with an exception");
    }
    return Advance::kDone;
  }

  void begin(Operation& operation) {
    const Collective& c = operation.collective;
    if (failed_) {
      throw GroupError(failure_text(": the group has failed before", culprit_, reason_), reason_, culprit_);
    }
    if (trace_enabled()) operation.begin_ns = trace_now_ns();
    operation.started = true;
    if (operation.timeout.count() > 0) operation.deadline = Clock::now() + operation.timeout;
    if (operation.strided_input.defined()) chores::copy(operation.strided_input, operation.input);
    backend_->do_start(c);
  }

  /// Whether the deadline has passed, which fails the operation.
  bool expire(Operation& operation) {
    if (Clock::now() < operation.deadline) return false;
    const Collective& c = operation.collective;
    const auto [progress, first_missing] = describe_progress(c.seq);
    const std::string after = format_seconds(operation.timeout);
    std::string subject = c.name;
    if (c.kind != CollectiveKind::kBarrier) {
      subject += str(subject.empty() ? "" : ", ", c.num_elements, " ", c.dtype, " (", format_bytes(c.num_bytes()), ")");
    }
    subject += str(subject.empty() ? "" : ", ", backend_->name());
    const std::string what = str(" timed out after ", after, "\n  ", subject, "\n  ", progress);
    const std::string reason = str(to_string(c.kind), " #", c.seq, " timed out after ", after, "; ", progress);
    fail(operation, GroupError(what, reason, first_missing), own_job_rank());
    return true;
  }

  /// "reached #1873: ranks 0 1 2.  missing: rank 3 (last reached #1860, 31.2 s ago)", and the first of the missing.
  std::pair<std::string, int> describe_progress(int64_t seq) const {
    std::string there;
    std::string missing;
    int first_missing = -1;
    for (int rank = 0; rank < options_.world_size; ++rank) {
      const int shown = job_rank(options_, rank);
      const LastStarted last = backend_->do_last_started(rank);
      if (last.seq >= seq) {
        there += str(" ", shown);
        continue;
      }
      if (missing.empty()) first_missing = shown;
      missing += str(missing.empty() ? "" : ", ", "rank ", shown);
      if (last.seq == 0) {
        missing += " (has started nothing yet)";
      } else {
        const auto ago = std::chrono::duration_cast<std::chrono::milliseconds>(last.ago);
        missing += str(" (last reached #", last.seq, ", ", format_seconds(ago), " ago)");
      }
    }
    return {str("reached #", seq, ": ranks", there, ".  missing: ", missing.empty() ? "none" : missing), first_missing};
  }

  void fail(Operation& operation, const GroupError& error) { fail(operation, error, error.culprit()); }
  void fail(Operation& operation, const GroupError& error, int culprit) {
    const Collective& c = operation.collective;
    operation.error =
        std::make_exception_ptr(CommError(label(c) + error.what(), own_job_rank(), error.culprit(), c.seq));
    fail_group(culprit, error.reason());
  }

  void fail_group(int culprit, const std::string& reason) {
    if (failed_) return;
    failed_ = true;
    culprit_ = culprit;
    reason_ = reason;
    backend_->do_abort(culprit, reason);
  }

  void finish(Operation& operation) {
    const Collective& c = operation.collective;
    if (!operation.error && operation.strided_output.defined())
      chores::copy(operation.output, operation.strided_output);
    if (operation.begin_ns != 0) {
      const int thread = RankContext::current().trace_thread;
      record_trace({shown_name(c), "comm", options_.rank, thread, operation.begin_ns, trace_now_ns(), c.num_bytes()});
    }
  }

  static ProcessGroupOptions with_ranks(ProcessGroupOptions options) {
    if (!options.ranks.empty()) return options;
    for (int rank = 0; rank < options.world_size; ++rank) options.ranks.push_back(rank);
    return options;
  }

  const ProcessGroupOptions options_;  // with `ranks` filled in
  const bool is_whole_job_;
  const std::unique_ptr<Backend> backend_;
  HookHandle failures_;

  std::mutex mutex_;
  std::condition_variable for_helpers_;  // running_ is free, or an operation is done
  std::condition_variable for_worker_;   // the head is left to it, or it should stop
  std::deque<std::shared_ptr<Operation>> queue_;
  int64_t last_seq_ = 0;
  bool running_ = false;
  int helpers_ = 0;             // threads in help()
  bool worker_sleeps_ = false;  // the worker may be in do_sleep
  bool stop_ = false;
  std::thread worker_;

  // Of the holder of running_.
  bool failed_ = false;
  int culprit_ = -1;
  std::string reason_;
};

namespace {

void check_operand(const char* op, const char* argument, const Tensor& tensor) {
  TANDEM_CHECK(StateError, tensor.defined(), op, ": ", argument, " is undefined");
  TANDEM_CHECK(DeviceError, tensor.device().is_cpu(), op, ": this group moves CPU tensors\n  ", argument, "  ",
               describe(tensor));
}

/// Whether several indices may mean the same element, as in an expanded tensor.
void check_writable(const char* op, const char* argument, const Tensor& tensor) {
  for (size_t i = 0; i < tensor.shape().size(); ++i) {
    TANDEM_CHECK(ValueError, tensor.shape()[i] <= 1 || tensor.strides()[i] != 0, op, ": ", argument,
                 " is expanded, so its elements share memory and cannot be written\n  ", argument, "  ",
                 describe(tensor));
  }
}

/// The tensor, or memory for a row-major copy of it.
Tensor row_major(const Tensor& tensor) {
  return tensor.is_contiguous() ? tensor : empty(tensor.shape(), {tensor.dtype(), tensor.device()});
}

/// Fills in what is common to all.  `input` and `output` are undefined for a barrier.
void prepare(Operation& operation, const ProcessGroupOptions& group, CollectiveKind kind, const Tensor& input,
             const Tensor& output, CollectiveOptions&& options) {
  Collective& c = operation.collective;
  c.kind = kind;
  c.name = std::move(options.name);
  c.name_hash = hash_name(c.name);
  c.where = options.where;
  operation.timeout = options.timeout.count() > 0 ? options.timeout : group.timeout;
  if (!input.defined()) return;
  c.dtype = input.dtype();
  c.shape = input.shape();
  c.num_elements = input.num_elements();
  const bool in_place = input.is_same(output);
  operation.input = row_major(input);
  operation.output = in_place ? operation.input : row_major(output);
  if (!input.is_contiguous()) operation.strided_input = input;
  if (!output.is_contiguous()) operation.strided_output = output;
  c.input = operation.input.data_ptr();
  c.output = operation.output.data_ptr();
  output.storage()->bump_version(to_string(kind));
}

void prepare_all_reduce(Operation& operation, const ProcessGroupOptions& group, const Tensor& tensor, ReduceOp op,
                        CollectiveOptions&& options) {
  check_operand("all_reduce", "tensor", tensor);
  check_writable("all_reduce", "tensor", tensor);
  TANDEM_CHECK(DTypeError, op != ReduceOp::kAvg || is_floating_point(tensor.dtype()),
               "all_reduce: avg needs a floating dtype\n  tensor  ", describe(tensor));
  operation.collective.op = op;
  prepare(operation, group, CollectiveKind::kAllReduce, tensor, tensor, std::move(options));
}

void prepare_broadcast(Operation& operation, const ProcessGroupOptions& group, const Tensor& tensor, int root,
                       CollectiveOptions&& options) {
  check_operand("broadcast", "tensor", tensor);
  check_writable("broadcast", "tensor", tensor);
  TANDEM_CHECK(ValueError, root >= 0 && root < group.world_size, "broadcast: root ", root, " is not in [0, ",
               group.world_size, ")");
  operation.collective.root = root;
  prepare(operation, group, CollectiveKind::kBroadcast, tensor, tensor, std::move(options));
}

void prepare_all_gather(Operation& operation, const ProcessGroupOptions& group, const Tensor& output,
                        const Tensor& input, CollectiveOptions&& options) {
  check_operand("all_gather", "output", output);
  check_operand("all_gather", "input", input);
  check_writable("all_gather", "output", output);
  Shape wanted = input.shape();
  wanted.insert(0, group.world_size);
  TANDEM_CHECK(ShapeError, output.shape() == wanted, "all_gather: output must be ", wanted, "\n  output  ",
               describe(output), "\n  input   ", describe(input));
  TANDEM_CHECK(DTypeError, output.dtype() == input.dtype(), "all_gather: dtypes differ\n  output  ", describe(output),
               "\n  input   ", describe(input));
  prepare(operation, group, CollectiveKind::kAllGather, input, output, std::move(options));
  Collective& c = operation.collective;
  for (int rank = 0; rank < group.world_size; ++rank) {
    c.outputs.push_back({c.output + rank * c.num_bytes(), c.num_elements});
  }
  c.num_elements *= group.world_size;
}

}  // namespace

// --- the public face ---

std::shared_ptr<ProcessGroup> ProcessGroupAccess::make(const ProcessGroupOptions& options,
                                                       std::unique_ptr<Backend> backend) {
  auto impl = std::make_shared<ProcessGroup::Impl>(options, std::move(backend));
  impl->watch_failures();
  return std::shared_ptr<ProcessGroup>(new ProcessGroup(std::move(impl)));
}

std::shared_ptr<ProcessGroup> ProcessGroup::create(ProcessGroupOptions options) {
  TANDEM_CHECK(ValueError, options.world_size >= 1 && options.rank >= 0 && options.rank < options.world_size,
               "ProcessGroup: rank ", options.rank, " is not in a world of ", options.world_size);
  TANDEM_CHECK(StateError, options.world_size == 1 || options.store != nullptr,
               "ProcessGroup: a group of several ranks needs a store");
  auto backend = make_backend(options);
  if (options.rank == 0) log(LogLevel::kInfo, "group '", options.name, "': ", backend->describe());
  return ProcessGroupAccess::make(options, std::move(backend));
}

ProcessGroup::ProcessGroup(std::shared_ptr<Impl> impl) : impl_(std::move(impl)) {}

ProcessGroup::~ProcessGroup() { impl_->close(); }

int ProcessGroup::rank() const { return impl_->options().rank; }
int ProcessGroup::size() const { return impl_->options().world_size; }
const std::string& ProcessGroup::name() const { return impl_->options().name; }

void ProcessGroup::all_reduce(const Tensor& tensor, ReduceOp op, CollectiveOptions options) {
  Operation operation;
  prepare_all_reduce(operation, impl_->options(), tensor, op, std::move(options));
  impl_->run(operation);
}

Work ProcessGroup::all_reduce_async(const Tensor& tensor, ReduceOp op, CollectiveOptions options) {
  auto operation = std::make_shared<Operation>();
  prepare_all_reduce(*operation, impl_->options(), tensor, op, std::move(options));
  return impl_->start(std::move(operation));
}

void ProcessGroup::broadcast(const Tensor& tensor, int root, CollectiveOptions options) {
  Operation operation;
  prepare_broadcast(operation, impl_->options(), tensor, root, std::move(options));
  impl_->run(operation);
}

Work ProcessGroup::broadcast_async(const Tensor& tensor, int root, CollectiveOptions options) {
  auto operation = std::make_shared<Operation>();
  prepare_broadcast(*operation, impl_->options(), tensor, root, std::move(options));
  return impl_->start(std::move(operation));
}

void ProcessGroup::all_gather(const Tensor& output, const Tensor& input, CollectiveOptions options) {
  Operation operation;
  prepare_all_gather(operation, impl_->options(), output, input, std::move(options));
  impl_->run(operation);
}

Work ProcessGroup::all_gather_async(const Tensor& output, const Tensor& input, CollectiveOptions options) {
  auto operation = std::make_shared<Operation>();
  prepare_all_gather(*operation, impl_->options(), output, input, std::move(options));
  return impl_->start(std::move(operation));
}

void ProcessGroup::barrier(CollectiveOptions options) {
  Operation operation;
  prepare(operation, impl_->options(), CollectiveKind::kBarrier, {}, {}, std::move(options));
  impl_->run(operation);
}

bool ProcessGroup::progress() { return impl_->progress(); }

void ProcessGroup::abort(const std::string& reason) { impl_->abort(reason); }

RefPtr<Storage> ProcessGroup::allocate(int64_t num_bytes) {
  TANDEM_CHECK(ValueError, num_bytes >= 0, "allocate: ", num_bytes, " bytes");
  return impl_->backend().do_allocate(num_bytes);
}

}  // namespace tandem::inline v0::distributed
