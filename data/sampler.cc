#include <tandem/data/sampler.h>

#include <algorithm>
#include <cmath>
#include <numeric>
#include <utility>

#include <tandem/base/host_memory.h>
#include <tandem/base/math.h>
#include <tandem/tensor/generator.h>

namespace tandem { inline namespace v0 { namespace data {

namespace {

/// Last word of the counters of permutations, which separates them from other random streams of the same seed.
constexpr uint32_t kPermutationStream = 0x70657200;
constexpr uint32_t kWeightedStream = 0x77656900;  // the same of weighted draws

std::vector<int64_t> numbers(int64_t size) {
  return with_host_memory("Sampler", saturating_mul(size, sizeof(int64_t)),
                          [size] { return std::vector<int64_t>(static_cast<size_t>(size)); });
}

std::vector<int64_t> ascending(int64_t size) {
  std::vector<int64_t> order = numbers(size);
  std::iota(order.begin(), order.end(), int64_t{0});
  return order;
}

/// 64 random bits, a pure function of the arguments; `stream` separates users of the same seed.
uint64_t random_bits(uint64_t seed, int64_t epoch, uint64_t number, uint32_t stream) {
  const auto words = philox(
      {static_cast<uint32_t>(seed), static_cast<uint32_t>(seed >> 32)},
      {static_cast<uint32_t>(number), static_cast<uint32_t>(number >> 32), static_cast<uint32_t>(epoch), stream});
  return words[0] | static_cast<uint64_t>(words[1]) << 32;
}

/// A permutation of 0 .. size - 1, a pure function of (seed, epoch): a Fisher-Yates shuffle. Random numbers are bounded
/// by a 64-bit multiplication, with a bias below size / 2^64.
std::vector<int64_t> permutation(int64_t size, uint64_t seed, int64_t epoch) {
  std::vector<int64_t> order = ascending(size);
  for (uint64_t i = order.size(); i > 1; --i) {
    const uint64_t draw = random_bits(seed, epoch, i, kPermutationStream);
    const auto j = static_cast<uint64_t>((static_cast<unsigned __int128>(draw) * i) >> 64);
    std::swap(order[i - 1], order[j]);
  }
  return order;
}

}  // namespace

Sampler::~Sampler() = default;

std::vector<int64_t> Sampler::begin_epoch() {
  if (started_) set_epoch(saturating_add(epoch_, 1));
  started_ = true;
  std::vector<int64_t> all = indices({epoch_, start_});
  const auto size = static_cast<int64_t>(all.size());
  TANDEM_CHECK(StateError, position_ <= size, "Sampler: ", position_, " indices have been consumed of an epoch of ",
               size);
  all.erase(all.begin(), all.begin() + position_);
  return all;
}

void Sampler::advance(int64_t count) {
  TANDEM_CHECK(ValueError, count >= 0, "Sampler: count is ", count, ", expected at least 0");
  position_ = saturating_add(position_, count);
}

void Sampler::set_epoch(int64_t epoch) {
  TANDEM_CHECK(ValueError, epoch >= 0, "Sampler: epoch is ", epoch, ", expected at least 0");
  epoch_ = epoch;
  start_ = 0;
  position_ = 0;
  started_ = false;
}

State Sampler::state_dict() const {
  const bool finished = started_ && remaining() <= 0;
  State state;
  state.set("epoch", finished ? saturating_add(epoch_, 1) : epoch_);
  state.set("position", finished ? int64_t{0} : position_);
  state.set("size", size());
  save(state, finished ? 0 : start_);
  return state;
}

void Sampler::load_state_dict(const State& state) {
  const auto epoch = state.get<int64_t>("epoch");
  const auto position = state.get<int64_t>("position");
  const auto saved_size = state.get<int64_t>("size");
  TANDEM_CHECK(StateError, epoch >= 0, "Sampler: epoch is ", epoch, ", expected at least 0");
  TANDEM_CHECK(StateError, position >= 0 && position <= saved_size, "Sampler: position in the state is ", position,
               ", expected 0 <= position <= size ", saved_size);
  const Place place = load(state, position);
  epoch_ = epoch;
  start_ = place.start;
  position_ = place.position;
  started_ = false;
}

void Sampler::save(State&, int64_t) const {}

Sampler::Place Sampler::load(const State& state, int64_t position) {
  const auto saved_size = state.get<int64_t>("size");
  TANDEM_CHECK(StateError, position == 0 || saved_size == size(), "Sampler: the state was saved within an epoch of ",
               saved_size, " items, but this sampler has ", size(),
               "; resume with the same dataset, or from the end of an epoch");
  return {0, position};
}

SequentialSampler::SequentialSampler(int64_t size) : size_(size) {
  TANDEM_CHECK(ValueError, size >= 0, "SequentialSampler: size is ", size, ", expected at least 0");
}

std::vector<int64_t> SequentialSampler::indices(Epoch) const { return ascending(size_); }

RandomSampler::RandomSampler(int64_t size, uint64_t seed) : size_(size), seed_(seed) {
  TANDEM_CHECK(ValueError, size >= 0, "RandomSampler: size is ", size, ", expected at least 0");
}

std::vector<int64_t> RandomSampler::indices(Epoch epoch) const { return permutation(size_, seed_, epoch.number); }

void RandomSampler::save(State& state, int64_t) const { state.set("seed", static_cast<int64_t>(seed_)); }

Sampler::Place RandomSampler::load(const State& state, int64_t position) {
  const auto seed = static_cast<uint64_t>(state.get<int64_t>("seed"));
  const Place place = Sampler::load(state, position);
  seed_ = seed;
  return place;
}

DistributedSampler::DistributedSampler(int64_t size, int rank, int world_size, Options options)
    : dataset_size_(size), rank_(rank), world_size_(world_size), options_(options) {
  TANDEM_CHECK(ValueError, size >= 0, "DistributedSampler: size is ", size, ", expected at least 0");
  TANDEM_CHECK(ValueError, world_size >= 1, "DistributedSampler: world_size is ", world_size, ", expected at least 1");
  TANDEM_CHECK(ValueError, rank >= 0 && rank < world_size, "DistributedSampler: rank is ", rank,
               ", expected 0 <= rank < world_size ", world_size);
}

int64_t DistributedSampler::size_from(int64_t start) const {
  const int64_t left = dataset_size_ - start;
  if (options_.mode == Options::Mode::kEvaluation) return left > rank_ ? (left - rank_ - 1) / world_size_ + 1 : 0;
  return options_.drop_last ? left / world_size_ : ceil_div(left, world_size_);
}

std::vector<int64_t> DistributedSampler::order(int64_t epoch) const {
  return options_.shuffle ? permutation(dataset_size_, options_.seed, epoch) : ascending(dataset_size_);
}

std::vector<int64_t> DistributedSampler::indices(Epoch epoch) const {
  const std::vector<int64_t> all = order(epoch.number);
  const int64_t count = size_from(epoch.start);
  std::vector<int64_t> mine;
  mine.reserve(static_cast<size_t>(count));
  // Training without drop_last wraps around at the end of the order.
  for (int64_t i = 0; i < count; ++i)
    mine.push_back(all[static_cast<size_t>((epoch.start + rank_ + i * world_size_) % dataset_size_)]);
  return mine;
}

void DistributedSampler::save(State& state, int64_t start) const {
  state.set("seed", static_cast<int64_t>(options_.seed));
  state.set("dataset_size", dataset_size_);
  state.set("world_size", int64_t{world_size_});
  state.set("start", start);
}

Sampler::Place DistributedSampler::load(const State& state, int64_t position) {
  const auto seed = static_cast<uint64_t>(state.get<int64_t>("seed"));
  const auto dataset_size = state.get<int64_t>("dataset_size");
  const auto world_size = state.get<int64_t>("world_size");
  const auto start = state.get<int64_t>("start");
  const bool inside = position > 0 || start > 0;
  TANDEM_CHECK(StateError, !inside || dataset_size == dataset_size_,
               "DistributedSampler: the state was saved within an epoch of a dataset of ", dataset_size,
               " items, but this sampler's has ", dataset_size_,
               "; resume with the same dataset, or from the end of an epoch");
  // Items that all ranks together have consumed; in training all ranks have the same position.
  int64_t consumed = 0;
  const bool overflow =
      __builtin_mul_overflow(position, world_size, &consumed) || __builtin_add_overflow(consumed, start, &consumed);
  TANDEM_CHECK(StateError, start >= 0 && start <= dataset_size && world_size >= 1 && !overflow,
               "DistributedSampler: start ", start, " and position ", position, " of ", world_size,
               " ranks are outside an epoch of ", dataset_size, " items");
  Place place = {start, position};
  if (inside && world_size != world_size_) {
    TANDEM_CHECK(StateError, options_.mode == Options::Mode::kTraining,
                 "DistributedSampler: an evaluation epoch cannot be resumed with ", world_size_,
                 " ranks; the state was saved with ", world_size);
    place = {std::min(consumed, dataset_size_), 0};
  }
  TANDEM_CHECK(StateError, place.position <= size_from(place.start), "DistributedSampler: position ", position,
               " in the state is beyond the ", size_from(place.start), " items of a rank from item ", start, " on");
  options_.seed = seed;
  return place;
}

WeightedRandomSampler::WeightedRandomSampler(std::vector<double> weights, int64_t num_samples, Options options)
    : DistributedSampler(num_samples, options.rank, options.world_size, {.seed = options.seed}),
      weights_(std::move(weights)),
      replacement_(options.replacement) {
  int64_t num_positive = 0;
  for (size_t i = 0; i < weights_.size(); ++i) {
    TANDEM_CHECK(ValueError, weights_[i] >= 0 && std::isfinite(weights_[i]), "WeightedRandomSampler: weight ", i,
                 " is ", weights_[i], ", expected a finite number of at least 0");
    num_positive += weights_[i] > 0;
  }
  TANDEM_CHECK(ValueError, num_positive > 0, "WeightedRandomSampler: all ", weights_.size(),
               " weights are 0, expected at least one positive weight");
  TANDEM_CHECK(ValueError, replacement_ || num_samples <= num_positive, "WeightedRandomSampler: num_samples is ",
               num_samples, ", expected at most ", num_positive,
               ", the number of positive weights, without replacement");
}

std::vector<int64_t> WeightedRandomSampler::order(int64_t epoch) const {
  // In (0, 1].
  const auto uniform = [&](size_t number) {
    return static_cast<double>((random_bits(seed(), epoch, number, kWeightedStream) >> 11) + 1) * 0x1p-53;
  };
  std::vector<int64_t> result = numbers(dataset_size());
  if (replacement_) {
    std::vector<double> sums(weights_.size());
    std::partial_sum(weights_.begin(), weights_.end(), sums.begin());
    for (size_t i = 0; i < result.size(); ++i) {
      // The first item whose sum is not less; items of weight 0 are never the first.
      const auto found = std::lower_bound(sums.begin(), sums.end(), uniform(i) * sums.back());
      result[i] = found - sums.begin();
    }
    return result;
  }
  // Exponential times with these rates: their ascending order has the distribution of draws without replacement (P.
  // Efraimidis and P. Spirakis, "Weighted random sampling with a reservoir", Information Processing Letters 97, 2006).
  std::vector<std::pair<double, int64_t>> times;
  for (size_t i = 0; i < weights_.size(); ++i) {
    if (weights_[i] > 0) times.emplace_back(-std::log(uniform(i)) / weights_[i], static_cast<int64_t>(i));
  }
  std::partial_sort(times.begin(), times.begin() + static_cast<std::ptrdiff_t>(result.size()), times.end());
  for (size_t i = 0; i < result.size(); ++i) result[i] = times[i].second;
  return result;
}

}}}  // namespace tandem::v0::data
