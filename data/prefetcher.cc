#include <tandem/data/prefetcher.h>

#include <algorithm>
#include <optional>
#include <utility>

#include <tandem/base/math.h>
#include <tandem/base/rank_context.h>
#include <tandem/base/thread.h>
#include <tandem/base/trace.h>
#include <tandem/data/error_context.h>
#include <tandem/data/stack.h>
#include <tandem/tensor/cuda.h>
#include <tandem/tensor/cuda_capture.h>
#include <tandem/tensor/factories.h>
#include <tandem/tensor/generator.h>
#include <tandem/tensor/primitives.h>
#include <tandem/tensor/storage.h>

namespace tandem { inline namespace v0 { namespace data {

namespace {

constexpr int64_t kMaxBatches = 1 << 20;  // of all workers

/// The stream on which workers copy batches to a GPU, so that copies and the consumer's work do not wait for each
/// other.
cuda::Stream copy_stream(Device gpu) { return cuda::side_stream(gpu, cuda::kSideStreams - 1); }

Tensor on_device(const Tensor& tensor, Device device, bool in_worker) {
  if (tensor.device() == device) return tensor;
  std::optional<cuda::StreamGuard> guard;
  if (in_worker && tensor.device().is_cpu() && !device.is_cpu()) guard.emplace(copy_stream(device));
  Tensor moved = empty(tensor.shape(), {tensor.dtype(), device});
  primitives::copy(tensor, moved);
  return moved;
}

/// `tensor`, which a worker made, for work on the calling thread's current stream. When the last reference is dropped,
/// the copy stream waits for the work that the current stream has then, before the memory is used for another batch.
Tensor for_consumer(const Tensor& tensor) {
  if (tensor.device().is_cpu()) return tensor;
  const Device gpu = tensor.device();
  const cuda::Stream user = cuda::current_stream(gpu), copies = copy_stream(gpu);
  const RefPtr<Storage> memory = tensor.storage();
  if (memory->stream_id() != copies.id()) return tensor;  // not copied: the dataset's tensors are on the GPU
  const auto release = [gpu, memory, user, copies, used = cuda::Event(gpu)]() noexcept {
    if (cuda::is_capturing(gpu)) return;  // the graph keeps the memory
    try {
      used.record(user);
      used.make_wait(copies);
    } catch (...) {  // the GPU has failed; the consumer's next synchronization throws
    }
  };
  return make_view(Storage::adopt(gpu, memory->data(), memory->num_bytes(), release), tensor.dtype(), tensor.shape(),
                   tensor.strides(), tensor.impl().offset);
}

/// A copy of the context for a worker thread: objects such as generators are shared, modes have their defaults.
RankContext worker_context(const RankContext& creator) {
  rank_device();  // creates the generators, if necessary, so that the copy shares them
  RankContext context = creator;
  context.num_threads = 1;
  context.grad_enabled = true;
  context.autocast = -1;
  context.module_scope = nullptr;
  context.skip_init = false;
  context.defer_init = false;
  return context;
}

}  // namespace

void check_options(const char* op, const DataLoaderOptions& options, bool has_own_sampler) {
  TANDEM_CHECK(ValueError, has_own_sampler || !options.shuffle, op,
               ": shuffle is set, expected an option of the sampler; without a sampler the loader has its own");
  TANDEM_CHECK(ValueError, options.batch_size >= 1, op, ": batch_size is ", options.batch_size,
               ", expected at least 1");
  TANDEM_CHECK(ValueError, options.num_workers >= 0, op, ": num_workers is ", options.num_workers,
               ", expected at least 0");
  TANDEM_CHECK(ValueError, options.prefetch >= 1, op, ": prefetch is ", options.prefetch, ", expected at least 1");
  TANDEM_CHECK(ValueError, saturating_mul(options.num_workers, options.prefetch) <= kMaxBatches, op, ": prefetch is ",
               options.prefetch, " and num_workers ", options.num_workers, ", expected at most ", kMaxBatches,
               " batches together");
}

Prefetcher::Prefetcher(Make make, Describe describe, const DataLoaderOptions& options, int64_t first, int64_t end)
    : make_(std::move(make)),
      describe_(std::move(describe)),
      device_(options.device),
      has_workers_(options.num_workers > 0),
      end_(end),
      ring_(static_cast<size_t>(options.num_workers * options.prefetch)),
      taken_(first),
      consumed_(first) {
  const auto num_threads = static_cast<int>(std::min<int64_t>(options.num_workers, end - first));
  workers_.reserve(static_cast<size_t>(num_threads));
  try {
    for (int worker = 0; worker < num_threads; ++worker) {
      workers_.push_back(start_thread([this, worker, context = worker_context(RankContext::current())]() mutable {
        RankContext::Use use(context);
        set_trace_thread(kFirstLoaderThread + worker);
        work();
      }));
    }
  } catch (...) {  // a thread could not be started; join the others, which use this object
    stop();
    throw;
  }
}

Prefetcher::~Prefetcher() { stop(); }

Batch Prefetcher::next() {
  const int64_t number = consumed_;
  if (!has_workers_) {
    ++consumed_;
    return make_on_device(number);
  }
  Batch batch = wait_for(number);
  replace_tensors(batch, for_consumer);
  return batch;
}

Batch Prefetcher::make_on_device(int64_t number) const {
  TraceSpan span("make batch", "data");
  try {
    Batch batch = make_(number);
    replace_tensors(batch, [&](const Tensor& tensor) { return on_device(tensor, device_, has_workers_); });
    return batch;
  } catch (...) {
    rethrow_with_context(describe_(number));
  }
}

void Prefetcher::work() {
  std::unique_lock lock(mutex_);
  while (true) {
    changed_.wait(
        lock, [&] { return stopping_ || taken_ == end_ || taken_ < consumed_ + static_cast<int64_t>(ring_.size()); });
    if (stopping_ || taken_ == end_) return;
    const int64_t number = taken_++;
    lock.unlock();
    Outcome outcome;
    try {
      outcome.batch = make_on_device(number);
    } catch (...) {
      outcome.error = std::current_exception();
    }
    outcome.ready = true;
    lock.lock();
    slot(number) = std::move(outcome);
    changed_.notify_all();
  }
}

Batch Prefetcher::wait_for(int64_t number) {
  Outcome outcome;
  {
    std::unique_lock lock(mutex_);
    Outcome& mine = slot(number);
    if (!mine.ready) {
      TraceSpan span("wait for batch", "wait");
      changed_.wait(lock, [&] { return mine.ready; });
    }
    outcome = std::exchange(mine, {});
    ++consumed_;
    changed_.notify_all();
  }
  if (outcome.error) std::rethrow_exception(std::exchange(outcome.error, nullptr));
  return std::move(outcome.batch);
}

void Prefetcher::stop() {
  {
    std::lock_guard lock(mutex_);
    stopping_ = true;
    changed_.notify_all();
  }
  for (std::thread& worker : workers_) worker.join();
  workers_.clear();
}

}}}  // namespace tandem::v0::data
