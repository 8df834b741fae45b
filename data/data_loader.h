// The loader: batches of a dataset in a sampler's order, made ahead of time by worker threads.
#pragma once

#include <cstdint>
#include <iterator>
#include <memory>

#include <tandem/base/macros.h>
#include <tandem/data/dataset.h>
#include <tandem/data/sampler.h>
#include <tandem/data/transform.h>

namespace tandem { inline namespace v0 { namespace data {

/// Options of DataLoader.
struct DataLoaderOptions {
  int64_t batch_size = 1;    ///< items of a batch
  int num_workers = 0;       ///< threads that make batches ahead; 0: the consumer makes each batch when it asks for it
  int64_t prefetch = 2;      ///< batches that each worker may be ahead of the consumer
  bool drop_last = false;    ///< leave out a last batch of fewer than batch_size items
  Device device = {};        ///< where the batches are delivered
  Transform transform = {};  ///< applied to each image of a batch; may be empty
  uint64_t transform_seed = 0;  ///< of its random numbers, which are a function of (seed, epoch, index)
};

/// Batches of a dataset, for range-for:
///
///     data::DataLoader loader(dataset, sampler, {.batch_size = 64, .num_workers = 1});
///     for (auto& batch : loader) train(batch.images, batch.labels);
///
/// Each begin() starts an epoch of the sampler.  Batches, their order, what a transform makes of them, and the place where an exception appears do not
/// depend on the number of workers.  An exception from the dataset is rethrown in the consumer, at its batch's turn, as
/// one of the same kind whose text names item and batch.  The iterator owns the workers: leaving the loop in whatever
/// way ends and joins them, after the item that each is reading.
///
/// Workers run under a copy of the consumer's RankContext: its rank, device and generators, but outside of modules,
/// autocast and backward, with trace threads numbered 2, 3, ..., and each with a thread budget of one.  The loader's
/// own members are for one thread; dataset and sampler must outlive loader and iterators.
class TANDEM_API DataLoader {
 public:
  /// Throws ValueError unless batch_size >= 1, num_workers >= 0 and prefetch >= 1; begin() throws ResourceError where the
  /// system starts no thread for a worker.
  DataLoader(const Dataset& dataset, Sampler& sampler, DataLoaderOptions options = {});

  /// Number of batches in a whole epoch.
  int64_t size() const;

  class Epoch;

  /// Single-pass; movable.  A moved-from iterator may only be destroyed.
  class TANDEM_API Iterator {
   public:
    Iterator(Iterator&&) noexcept;
    ~Iterator();
    Batch& operator*() { return batch_; }    ///< the current batch
    Batch* operator->() { return &batch_; }  ///< the current batch
    /// The next batch; rethrows what its making threw.
    Iterator& operator++();
    bool operator==(std::default_sentinel_t) const { return at_end_; }

   private:
    friend class DataLoader;
    explicit Iterator(std::unique_ptr<Epoch> epoch);

    std::unique_ptr<Epoch> epoch_;
    Batch batch_;
    bool at_end_ = false;
  };

  /// Starts an epoch of the sampler and delivers its first batch.
  Iterator begin();
  std::default_sentinel_t end() const { return {}; }  ///< compares equal to an iterator behind the last batch

 private:
  const Dataset& dataset_;
  Sampler& sampler_;
  DataLoaderOptions options_;
};

}}}  // namespace tandem::v0::data
