// Samplers: in which order, and by which rank, the items of a dataset are visited.
#pragma once

#include <cstdint>
#include <vector>

#include <tandem/base/macros.h>
#include <tandem/tensor/state.h>

namespace tandem { inline namespace v0 { namespace data {

/// The order of items of each epoch: a pure function of the epoch's number, and where the training stands in it.
///
/// Each iteration is an epoch of its own: the first is epoch 0 (or what set_epoch said), the next one epoch 1, and so
/// on, whether or not the one before was left early.  After load_state_dict the first iteration goes on where the saved
/// one stood.  Not safe from many threads.
class TANDEM_API Sampler {
 public:
  virtual ~Sampler();

  /// Number of indices in an epoch.
  virtual int64_t size() const = 0;

  /// Begins an iteration; returns the indices left in its epoch.
  std::vector<int64_t> begin_epoch();
  /// Notes that the next `count` indices of the epoch have been consumed.
  void advance(int64_t count) { position_ += count; }
  /// The epoch that the running, or else the next, iteration belongs to.
  int64_t epoch() const { return epoch_; }
  /// Makes the next iteration epoch `epoch`, from its start.  Throws ValueError if negative.
  void set_epoch(int64_t epoch);

  /// {"epoch", "position", "size"} and the sampler's own: position indices of the epoch have been consumed.
  State state_dict() const;
  /// Throws StateError, changing nothing, if an entry is missing or out of range, or if it stands inside an epoch of
  /// another size.
  void load_state_dict(const State& state);

 protected:
  /// An epoch's number and where it starts: 0, or the place in its order up to which another number of ranks went.
  struct Epoch {
    int64_t number;  ///< of the epoch, from 0
    int64_t start;   ///< place in the order of the epoch
  };
  /// Where an epoch goes on: `position` indices after `start`.
  struct Place {
    int64_t start;     ///< place in the order of the epoch
    int64_t position;  ///< indices consumed since `start`
  };

  /// All indices of an epoch, size_from(epoch.start) of them.
  virtual std::vector<int64_t> indices(Epoch epoch) const = 0;
  /// Number of indices in an epoch that starts at `start`.
  virtual int64_t size_from(int64_t start) const { return size() - start; }
  /// Adds the sampler's own entries to `state`; `start` as in Epoch.  Adds nothing by default.
  virtual void save(State& state, int64_t start) const;
  /// Takes over what `save` wrote, and says where to go on after `position` indices.  Throws before it changes anything.
  virtual Place load(const State& state, int64_t position);

 private:
  int64_t epoch_ = 0;
  int64_t start_ = 0;     ///< of epoch_
  int64_t position_ = 0;  ///< indices of epoch_ that have been consumed since start_
  bool started_ = false;  ///< whether an iteration over epoch_ has begun
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

/// A permutation of 0 .. size - 1, another one each epoch; a pure function of (seed, epoch).
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
  /// How items are divided if their number is not a multiple of world_size.
  enum class Mode {
    kTraining,    ///< every rank gets the same number of items, so that all take part in every collective
    kEvaluation,  ///< every item is visited once over all ranks; ranks' counts may differ by one
  };
  bool shuffle = true;          ///< another permutation each epoch, the same on all ranks; otherwise ascending
  uint64_t seed = 0;            ///< must be the same on all ranks
  Mode mode = Mode::kTraining;  ///< see Mode
  /// Training: where the size is no multiple of world_size, leave the end of the order out instead of repeating items.
  bool drop_last = false;
};

/// One rank's share of a dataset: of the epoch's order it takes the items rank, rank + world_size, ...  In training the
/// order is first made divisible by world_size, by repeating items from its beginning (as often as needed) or, with
/// drop_last, by cutting its end.  This is the rule of PyTorch's DistributedSampler; the permutations are our own.
///
/// Training may go on with another number of ranks, inside an epoch too: the W ranks that saved have consumed the first
/// position * W items of the epoch's order, and the new ones deal out the rest among themselves.  Nothing is lost and
/// nothing visited twice, except for the padding of the rest (fewer items than there are new ranks, repeated from the
/// beginning of the order, or with drop_last left out) as at the end of every epoch.  Inside an epoch of evaluation,
/// whose ranks do not go in step, a state of another number of ranks throws StateError.
class TANDEM_API DistributedSampler : public Sampler {
 public:
  /// Type of the options.
  using Options = DistributedSamplerOptions;

  /// Throws ValueError if `size` is negative, `world_size` < 1 or `rank` is outside [0, world_size).
  DistributedSampler(int64_t size, int rank, int world_size, Options options = {});
  int64_t size() const override { return size_from(0); }

 protected:
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

}}}  // namespace tandem::v0::data
