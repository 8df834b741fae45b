// Data loader: batches of a dataset in a sampler's order, prefetched by worker threads.
#pragma once

#include <concepts>
#include <cstdint>
#include <iterator>
#include <memory>
#include <utility>

#include <tandem/base/macros.h>
#include <tandem/data/batch_iterator.h>
#include <tandem/data/collate.h>
#include <tandem/data/dataset.h>
#include <tandem/data/sampler.h>
#include <tandem/data/transform.h>

namespace tandem { inline namespace v0 { namespace data {

/// Options of DataLoader.
struct DataLoaderOptions {
  int64_t batch_size = 1;  ///< items of a batch
  bool shuffle = false;    ///< without a sampler: a different order in each epoch, the same on all ranks
  int num_workers = 0;     ///< threads that prefetch batches; 0: the consumer's thread creates each batch on demand
  int64_t prefetch = 2;    ///< batches that each worker prefetches
  bool drop_last = false;  ///< omit the last batch if it has fewer than batch_size items
  Device device = {};      ///< device of the batches
  /// Applied to each example; may be empty. With a transform the dataset's get() is called, not its get_batch().
  Transform transform = {};
  /// Combines the transformed examples into batches; empty: stacks them. With a collate function the dataset's get() is
  /// called, not its get_batch().
  Collate collate = {};
  BatchTransform batch_transform = {};  ///< applied to each batch, before it is copied to the device; may be empty
  /// Seed of the random numbers of both transforms, which are pure functions of (seed, epoch, index of the item or of
  /// the batch's first item).
  uint64_t transform_seed = 0;
  uint64_t seed = 0;  ///< of `shuffle`; must be the same on all ranks
};

/// Batches of a dataset, for use in a range-based for loop:
///
///     data::DataLoader loader(dataset, {.batch_size = 64, .shuffle = true, .num_workers = 1}, ctx);
///     for (auto& batch : loader) train(batch.input, batch.target);
///
/// Each begin() starts an epoch of the sampler. Batches, their order, the results of the transform, and the batch at
/// which an exception is thrown do not depend on the number of workers. An exception of the dataset is rethrown in the
/// consumer when it requests the batch, with the same type and a text that names item and batch. The iterator owns the
/// workers: when the loop ends, also by break or by an exception, they finish their current item and are joined.
///
/// Workers copy batches to a GPU on a stream of their own, while the consumer's stream computes. Without workers the
/// copies are on the consumer's stream.
///
/// Workers run with a copy of the consumer's RankContext: its rank, device and generators, but without module scope,
/// autocast and backward. In traces they are the threads 2, 3, ...; each runs operations on one thread. The loader is
/// not thread-safe. The dataset (DatasetRef) and the sampler must outlive loader and iterators; a temporary dataset is
/// moved in.
class TANDEM_API DataLoader {
 public:
  /// Throws ValueError unless batch_size >= 1, num_workers >= 0, prefetch >= 1 and num_workers * prefetch <= 2^20.
  /// begin() throws ResourceError if the system cannot start a worker's thread.
  DataLoader(DatasetRef<Dataset> dataset, Sampler& sampler, DataLoaderOptions options = {});
  /// With a DistributedSampler of its own; also throws as its constructor.
  explicit DataLoader(DatasetRef<Dataset> dataset, const DataLoaderOptions& options = {}, int rank = 0,
                      int world_size = 1);
  /// For one rank of a job: `context` is a distributed::Context.
  template <class Context>
  requires requires(const Context& context) { context.world_size(); }
  DataLoader(DatasetRef<Dataset> dataset, const DataLoaderOptions& options, const Context& context)
      : DataLoader(std::move(dataset), options, context.rank(), context.world_size()) {}
  template <std::derived_from<Sampler> S>
  __attribute__((unavailable("the sampler is a temporary: use a variable")))
  DataLoader(DatasetRef<Dataset>, S&&, const DataLoaderOptions& = {});

  /// Number of batches in a complete epoch.
  int64_t size() const;
  /// Number of batches in the rest of the sampler's epoch: 0 after its last batch.
  int64_t remaining() const;
  const Dataset& dataset() const { return *dataset_; }           ///< the argument of the constructor
  Sampler& sampler() const { return *sampler_; }                 ///< the argument of the constructor, or its own
  const DataLoaderOptions& options() const { return options_; }  ///< the argument of the constructor

  /// Type of begin().
  using Iterator = BatchIterator;

  /// Starts an epoch of the sampler and returns an iterator to its first batch.
  Iterator begin();
  std::default_sentinel_t end() const { return {}; }  ///< compares equal to an iterator past the last batch

 private:
  DatasetRef<Dataset> dataset_;
  std::shared_ptr<Sampler> sampler_;  ///< owned or not
  DataLoaderOptions options_;
};

}}}  // namespace tandem::v0::data
