// Samplers: the order of a dataset's items in each epoch, and their distribution over ranks.
#pragma once

#include <cstdint>
#include <vector>

#include <tandem/base/macros.h>
#include <tandem/tensor/state.h>

namespace tandem { inline namespace v0 { namespace data {

/// The order of the items in each epoch, which is a pure function of the epoch's number, and the current position in
/// it.
///
/// Each iteration is one epoch: the first is epoch 0, or the argument of set_epoch, the next is epoch 1, and so on,
/// even if an iteration ended early. After load_state_dict the first iteration continues at the saved position. Not
/// thread-safe.
class TANDEM_API Sampler {
 public:
  virtual ~Sampler();

  /// Number of indices in an epoch.
  virtual int64_t size() const = 0;

  /// Starts an iteration; returns the remaining indices of its epoch. Throws StateError if advance() passed its end.
  std::vector<int64_t> begin_epoch();
  /// Records that the next `count` indices of the epoch have been consumed. Throws ValueError if `count` is negative.
  void advance(int64_t count);
  /// The epoch of the current iteration or, before the first iteration, of the next one.
  int64_t epoch() const { return epoch_; }
  /// Number of indices of the epoch that have not been consumed.
  int64_t remaining() const { return size_from(start_) - position_; }
  /// Sets the epoch of the next iteration, which starts at its beginning. Throws ValueError if `epoch` is negative.
  void set_epoch(int64_t epoch);

  /// {"epoch", "position", "size"} and entries of the derived class; `position`: number of consumed indices of the
  /// epoch.
  State state_dict() const;
  /// Throws StateError, changing nothing, if an entry is missing or out of range, or if the position is within an epoch
  /// of another size.
  void load_state_dict(const State& state);

 protected:
  /// `start`: position in the order at which this iteration of the epoch begins: 0 or, after a resume with another
  /// number of ranks, the number of items that had been consumed.
  struct Epoch {
    int64_t number;  ///< number of the epoch, from 0
    int64_t start;   ///< place in the order of the epoch
  };
  /// A position in an epoch: `position` indices after `start`.
  struct Place {
    int64_t start;     ///< place in the order of the epoch
    int64_t position;  ///< indices consumed since `start`
  };

  /// All indices of an epoch, size_from(epoch.start) of them.
  virtual std::vector<int64_t> indices(Epoch epoch) const = 0;
  /// Number of indices in an epoch that starts at `start`.
  virtual int64_t size_from(int64_t start) const { return size() - start; }
  /// Adds the sampler's own entries to `state`; `start` as in Epoch. Adds nothing by default.
  virtual void save(State& state, int64_t start) const;
  /// Loads the entries of save(), and returns the place at which the epoch continues after `position` indices. Throws
  /// before it changes anything.
  virtual Place load(const State& state, int64_t position);

 private:
  int64_t epoch_ = 0;
  int64_t start_ = 0;     ///< Epoch::start of epoch_
  int64_t position_ = 0;  ///< number of consumed indices of epoch_ since start_
  bool started_ = false;  ///< an iteration over epoch_ has started
};

/// 0, 1, .., size - 1.
class TANDEM_API SequentialSampler : public Sampler {
 public:
  /// Throws ValueError if `size` is negative.
  explicit SequentialSampler(int64_t size);
  int64_t size() const override { return size_; }

 protected:
  std::vector<int64_t> indices(Epoch epoch) const override;

 private:
  int64_t size_;
};

/// A different permutation of 0 .. size - 1 in each epoch, a pure function of (seed, epoch).
class TANDEM_API RandomSampler : public Sampler {
 public:
  /// Throws ValueError if `size` is negative.
  explicit RandomSampler(int64_t size, uint64_t seed = 0);
  int64_t size() const override { return size_; }

 protected:
  std::vector<int64_t> indices(Epoch epoch) const override;
  void save(State& state, int64_t start) const override;
  Place load(const State& state, int64_t position) override;

 private:
  int64_t size_;
  uint64_t seed_;
};

/// Options of DistributedSampler.
struct DistributedSamplerOptions {
  /// The division of the items if their number is not a multiple of world_size.
  enum class Mode {
    kTraining,    ///< every rank gets the same number of items, so that all ranks call the same collectives
    kEvaluation,  ///< every item is visited by exactly one rank; the numbers of items of the ranks differ by at most 1
  };
  bool shuffle = true;  ///< a different permutation in each epoch, the same on all ranks; otherwise ascending order
  uint64_t seed = 0;    ///< must be the same on all ranks
  Mode mode = Mode::kTraining;  ///< see Mode
  /// In training mode, if the size is not a multiple of world_size: drop the end of the order instead of repeating
  /// items.
  bool drop_last = false;
};

/// The items of one rank: the items at the positions rank, rank + world_size, ... of the epoch's order. In training
/// mode the order is first made divisible by world_size, by repeating items from its beginning or, with drop_last, by
/// dropping its end. This is the rule of PyTorch's DistributedSampler, with other permutations.
///
/// In training mode a state can be loaded by another number of ranks, also within an epoch: the W ranks that saved it
/// have consumed the first position * W items of the order, and the remaining items are distributed over the new ranks.
/// No item is lost or visited twice, except for the padding at the end of the epoch (or the items that drop_last
/// drops). In evaluation mode, in which the ranks' positions differ, a state of another number of ranks within an epoch
/// throws StateError.
class TANDEM_API DistributedSampler : public Sampler {
 public:
  /// Type of the options.
  using Options = DistributedSamplerOptions;

  /// Throws ValueError if `size` is negative, `world_size` < 1 or `rank` is outside [0, world_size).
  DistributedSampler(int64_t size, int rank, int world_size, Options options = {});
  int64_t size() const override { return size_from(0); }

 protected:
  /// The items of an epoch in the order that is divided over the ranks, dataset_size() many.
  virtual std::vector<int64_t> order(int64_t epoch) const;
  int64_t dataset_size() const { return dataset_size_; }  ///< `size` of the constructor
  uint64_t seed() const { return options_.seed; }         ///< of the options, or of a loaded state

  std::vector<int64_t> indices(Epoch epoch) const override;
  int64_t size_from(int64_t start) const override;
  void save(State& state, int64_t start) const override;
  Place load(const State& state, int64_t position) override;

 private:
  int64_t dataset_size_;
  int rank_;
  int world_size_;
  Options options_;
};

/// Options of WeightedRandomSampler.
struct WeightedRandomSamplerOptions {
  bool replacement = true;  ///< whether an item may be drawn again within an epoch
  uint64_t seed = 0;        ///< must be the same on all ranks
  int rank = 0;             ///< of this process
  int world_size = 1;       ///< number of ranks
};

/// Draws items with probabilities proportional to their weights, as torch.utils.data.WeightedRandomSampler: num_samples
/// in each epoch, a pure function of (seed, epoch). Without replacement every draw is proportional to the weights of
/// the remaining items. The ranks divide the draws as in a training epoch of DistributedSampler. The state has the same
/// entries as DistributedSampler's.
class TANDEM_API WeightedRandomSampler : public DistributedSampler {
 public:
  /// Type of the options.
  using Options = WeightedRandomSamplerOptions;

  /// Throws ValueError for a weight that is negative or not finite, or if all are 0; if num_samples is negative or,
  /// without replacement, more than the number of positive weights; and as DistributedSampler for rank and world_size.
  WeightedRandomSampler(std::vector<double> weights, int64_t num_samples, Options options = {});

 protected:
  std::vector<int64_t> order(int64_t epoch) const override;

 private:
  std::vector<double> weights_;
  bool replacement_;
};

}}}  // namespace tandem::v0::data
