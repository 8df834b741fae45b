#include <tandem/data/data_loader.h>

#include <algorithm>
#include <condition_variable>
#include <exception>
#include <mutex>
#include <optional>
#include <thread>
#include <utility>
#include <vector>

#include <tandem/base/rank_context.h>
#include <tandem/base/thread.h>
#include <tandem/base/trace.h>
#include <tandem/data/error_context.h>
#include <tandem/tensor/cuda.h>
#include <tandem/tensor/cuda_capture.h>
#include <tandem/tensor/factories.h>
#include <tandem/tensor/generator.h>
#include <tandem/tensor/primitives.h>
#include <tandem/tensor/storage.h>

namespace tandem { inline namespace v0 { namespace data {

namespace {

/// The stream on which workers copy batches to a GPU, so that copies and the consumer's work do not wait for each
/// other.
cuda::Stream copy_stream(Device gpu) { return cuda::side_stream(gpu, cuda::kSideStreams - 1); }

Tensor on_device(const Tensor& tensor, Device device, bool in_worker) {
  if (tensor.device() == device) return tensor;
  std::optional<cuda::StreamGuard> beside;
  if (in_worker && tensor.device().is_cpu() && !device.is_cpu()) beside.emplace(copy_stream(device));
  Tensor moved = empty(tensor.shape(), {tensor.dtype(), device});
  primitives::copy(tensor, moved);
  return moved;
}

/// `tensor`, which a worker made, for work on the calling thread's current stream. When the last reference is dropped,
/// the copy stream waits for the work that the current stream has then, before the memory is used for another batch.
Tensor for_consumer(const Tensor& tensor) {
  if (!tensor.defined() || tensor.device().is_cpu()) return tensor;
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
  return context;
}

}  // namespace

/// One pass over the batches of an epoch.
///
/// A worker takes the number of the next batch, makes the batch, and stores its outcome (the batch or an exception) in
/// the ring buffer at that number modulo the ring's size. The consumer consumes outcomes in the order of their numbers.
/// Invariant: consumed <= number of a batch that is taken but not consumed < consumed + ring size, so every slot is
/// used by at most one batch.
class DataLoader::Epoch {
 public:
  Epoch(const Dataset& dataset, Sampler& sampler, const DataLoaderOptions& options)
      : dataset_(dataset),
        sampler_(sampler),
        options_(options),
        indices_(sampler.begin_epoch()),
        epoch_(sampler.epoch()) {
    const auto num_items = static_cast<int64_t>(indices_.size());
    num_batches_ =
        options.drop_last ? num_items / options.batch_size : (num_items + options.batch_size - 1) / options.batch_size;
    if (num_batches_ == 0) sampler.advance(num_items);
    ring_.resize(static_cast<size_t>(options.num_workers * options.prefetch));
    const auto num_workers = static_cast<int>(std::min<int64_t>(options.num_workers, num_batches_));
    workers_.reserve(static_cast<size_t>(num_workers));
    try {
      for (int worker = 0; worker < num_workers; ++worker) {
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

  ~Epoch() { stop(); }

  /// The next batch, or nullopt after the last.
  std::optional<Batch> next() {
    if (consumed_ == num_batches_) return std::nullopt;
    const int64_t number = consumed_;
    Batch batch;
    if (workers_.empty()) {
      ++consumed_;
      batch = make(number);
    } else {
      batch = wait_for(number);
      batch.images = for_consumer(batch.images);
      batch.labels = for_consumer(batch.labels);
    }
    // Items that drop_last omits count as consumed with the last batch, so that a state saved after it resumes at the
    // next epoch.
    const auto [begin, end] = range(number);
    const int64_t next_begin = number + 1 == num_batches_ ? static_cast<int64_t>(indices_.size()) : end;
    sampler_.advance(next_begin - begin);
    return batch;
  }

 private:
  struct Outcome {
    bool ready = false;
    Batch batch;
    std::exception_ptr error;
  };

  std::pair<int64_t, int64_t> range(int64_t number) const {
    const int64_t begin = number * options_.batch_size;
    return {begin, std::min(begin + options_.batch_size, static_cast<int64_t>(indices_.size()))};
  }

  Outcome& slot(int64_t number) { return ring_[static_cast<size_t>(number) % ring_.size()]; }

  Batch make(int64_t number) const {
    TraceSpan span("make batch", "data");
    const auto [begin, end] = range(number);
    const std::span<const int64_t> items(indices_.data() + begin, static_cast<size_t>(end - begin));
    try {
      Batch batch = dataset_.get_batch(items);
      if (options_.transform) {
        batch.images = transform_images(options_.transform, batch.images, items, options_.transform_seed, epoch_);
      }
      batch.images = on_device(batch.images, options_.device, options_.num_workers > 0);
      batch.labels = on_device(batch.labels, options_.device, options_.num_workers > 0);
      return batch;
    } catch (...) {
      std::string shown = str(items.front());
      for (size_t i = 1; i < std::min<size_t>(items.size(), 4); ++i) shown += str(", ", items[i]);
      rethrow_with_context(
          str("in batch ", number, " of ", num_batches_, ", items ", shown, items.size() > 4 ? ", ..." : ""));
    }
  }

  /// Body of a worker.
  void work() {
    std::unique_lock lock(mutex_);
    while (true) {
      changed_.wait(lock, [&] {
        return stopping_ || taken_ == num_batches_ || taken_ < consumed_ + static_cast<int64_t>(ring_.size());
      });
      if (stopping_ || taken_ == num_batches_) return;
      const int64_t number = taken_++;
      lock.unlock();
      Outcome outcome;
      try {
        outcome.batch = make(number);
      } catch (...) {
        outcome.error = std::current_exception();
      }
      outcome.ready = true;
      lock.lock();
      slot(number) = std::move(outcome);
      changed_.notify_all();
    }
  }

  Batch wait_for(int64_t number) {
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

  void stop() {
    {
      std::lock_guard lock(mutex_);
      stopping_ = true;
      changed_.notify_all();
    }
    for (std::thread& worker : workers_) worker.join();
    workers_.clear();
  }

  const Dataset& dataset_;
  Sampler& sampler_;  // used by the consumer's thread only
  const DataLoaderOptions options_;
  const std::vector<int64_t> indices_;
  const int64_t epoch_;
  int64_t num_batches_ = 0;

  std::mutex mutex_;  // guards the members from here to workers_
  std::condition_variable changed_;
  std::vector<Outcome> ring_;
  int64_t taken_ = 0;
  int64_t consumed_ = 0;
  bool stopping_ = false;

  std::vector<std::thread> workers_;
};

DataLoader::DataLoader(const Dataset& dataset, Sampler& sampler, DataLoaderOptions options)
    : dataset_(dataset), sampler_(sampler), options_(std::move(options)) {
  TANDEM_CHECK(ValueError, options_.batch_size >= 1, "DataLoader: batch_size is ", options_.batch_size,
               ", expected at least 1");
  TANDEM_CHECK(ValueError, options_.num_workers >= 0, "DataLoader: num_workers is ", options_.num_workers,
               ", expected at least 0");
  TANDEM_CHECK(ValueError, options_.prefetch >= 1, "DataLoader: prefetch is ", options_.prefetch,
               ", expected at least 1");
}

int64_t DataLoader::size() const {
  const int64_t num_items = sampler_.size();
  return options_.drop_last ? num_items / options_.batch_size
                            : (num_items + options_.batch_size - 1) / options_.batch_size;
}

DataLoader::Iterator DataLoader::begin() { return Iterator(std::make_unique<Epoch>(dataset_, sampler_, options_)); }

DataLoader::Iterator::Iterator(std::unique_ptr<Epoch> epoch) : epoch_(std::move(epoch)) { ++*this; }
DataLoader::Iterator::Iterator(Iterator&&) noexcept = default;
DataLoader::Iterator::~Iterator() = default;

DataLoader::Iterator& DataLoader::Iterator::operator++() {
  batch_ = {};  // frees its memory for the next batch
  std::optional<Batch> next = epoch_->next();
  at_end_ = !next.has_value();
  if (next) batch_ = std::move(*next);
  return *this;
}

}}}  // namespace tandem::v0::data
