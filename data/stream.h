// Streams: datasets whose items have no index and are read in order.
#pragma once

#include <cstdint>
#include <iterator>
#include <memory>
#include <optional>

#include <tandem/base/macros.h>
#include <tandem/data/batch_iterator.h>
#include <tandem/data/data_loader.h>
#include <tandem/tensor/state.h>

namespace tandem { inline namespace v0 { namespace data {

/// A part of a stream: shard `index` of `count` shards.
struct StreamShard {
  int64_t index = 0;  ///< number of the shard over all ranks
  int64_t count = 1;  ///< shards of all ranks
  int64_t epoch = 0;  ///< number of the pass over the stream, from 0
};

/// The items of a shard, in order. Only one thread at a time uses a stream.
class TANDEM_API ExampleStream {
 public:
  virtual ~ExampleStream();
  /// The next item, or nullopt after the last.
  virtual std::optional<Example> next() = 0;
  /// Skips items, to resume: `count` calls of next(), unless a derived class has a faster way.
  virtual void skip(int64_t count);
};

/// A dataset that is read in order: torch.utils.data.IterableDataset. Each item is in exactly one shard. Several
/// threads call stream() concurrently.
///
///     struct Lines : data::IterableDataset {  // line i of a file is in shard i % count
///       std::unique_ptr<data::ExampleStream> stream(const data::StreamShard& shard) const override {
///         return std::make_unique<LinesOfShard>(path, shard);
///       }
///     };
class TANDEM_API IterableDataset {
 public:
  virtual ~IterableDataset();
  /// The items of a shard from its beginning; they depend only on the argument.
  virtual std::unique_ptr<ExampleStream> stream(const StreamShard& shard) const = 0;
};

/// Options of StreamLoader.
struct StreamOptions {
  int rank = 0;        ///< of this process
  int world_size = 1;  ///< number of ranks
  int64_t shards = 1;  ///< shards of each rank; also the largest number of workers that create batches concurrently
};

/// Batches of a stream, for use in a range-based for loop:
///
///     data::StreamLoader loader(lines, {.batch_size = 64, .num_workers = 4},
///                               {.rank = ctx.rank(), .world_size = ctx.world_size(), .shards = 4});
///     for (auto& batch : loader) train(batch);
///
/// Rank r reads the shards r * shards, .., (r + 1) * shards - 1 of world_size * shards. Each batch has items of one
/// shard, and batches are taken from the rank's unfinished shards in turn. The order and content of the batches depend
/// on batch_size and the number of shards, not on the number of workers. Each begin() starts the next epoch, from 0. As
/// for a DataLoader, workers copy batches to the device on a stream of their own, exceptions are rethrown in the
/// consumer, and the loader is not thread-safe. The loader and its dataset (DatasetRef) must outlive iterators.
///
/// Ranks may have different numbers of batches: end the training on all ranks after the same number of steps.
class TANDEM_API StreamLoader {
 public:
  /// For the random numbers of the transforms in `loader`, the index of item i of a shard is i * world_size * shards +
  /// the shard's index. Throws ValueError as DataLoader, and unless 0 <= rank < world_size and 1 <= shards <= 2^20.
  explicit StreamLoader(DatasetRef<IterableDataset> dataset, DataLoaderOptions loader = {}, StreamOptions options = {});

  /// Type of begin().
  using Iterator = BatchIterator;

  /// Starts an epoch, or continues the epoch of a loaded state, and returns an iterator to its first batch.
  Iterator begin();
  std::default_sentinel_t end() const { return {}; }  ///< compares equal to an iterator past the last batch

  /// {"epoch", "position", "batch_size", "shards", "world_size", "drop_last"}; `position`: turns of shards that the
  /// consumer has used, which includes the current batch.
  State state_dict() const;
  /// The next begin() continues after the batch at which the state was saved, on the same rank. Throws StateError,
  /// changing nothing, if an entry is missing or out of range, or if the position is within an epoch and batch_size,
  /// shards, world_size or drop_last differ.
  void load_state_dict(const State& state);

 private:
  class Epoch;
  /// Turn t of an epoch is batch t / shards of shard t % shards; it is empty if the shard has ended.
  struct Position {
    int64_t epoch = 0;
    int64_t turn = 0;  ///< turns that the consumer has used
    bool is_started = false;
    bool is_at_end = false;
  };

  DatasetRef<IterableDataset> dataset_;
  DataLoaderOptions loader_;
  StreamOptions options_;
  Position position_;
};

}}}  // namespace tandem::v0::data
