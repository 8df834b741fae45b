#include <tandem/data/sampler.h>

#include <algorithm>
#include <numeric>
#include <utility>

#include <tandem/tensor/generator.h>

namespace tandem { inline namespace v0 { namespace data {

namespace {

/// Last word of the counters of permutations, which separates them from other random streams of the same seed.
constexpr uint32_t kPermutationStream = 0x70657200;

std::vector<int64_t> ascending(int64_t size) {
  std::vector<int64_t> order(static_cast<size_t>(size));
  std::iota(order.begin(), order.end(), int64_t{0});
  return order;
}

/// A permutation of 0 .. size - 1, a pure function of (seed, epoch): a Fisher-Yates shuffle. Random numbers are bounded
/// by a 64-bit multiplication, with a bias below size / 2^64.
std::vector<int64_t> permutation(int64_t size, uint64_t seed, int64_t epoch) {
  std::vector<int64_t> order = ascending(size);
  const std::array<uint32_t, 2> key = {static_cast<uint32_t>(seed), static_cast<uint32_t>(seed >> 32)};
  for (uint64_t i = order.size(); i > 1; --i) {
    const auto words = philox(key, {static_cast<uint32_t>(i), static_cast<uint32_t>(i >> 32),
                                    static_cast<uint32_t>(epoch), kPermutationStream});
    const uint64_t draw = words[0] | static_cast<uint64_t>(words[1]) << 32;
    const auto j = static_cast<uint64_t>((static_cast<unsigned __int128>(draw) * i) >> 64);
    std::swap(order[i - 1], order[j]);
  }
  return order;
}

}  // namespace

Sampler::~Sampler() = default;

std::vector<int64_t> Sampler::begin_epoch() {
  if (started_) set_epoch(epoch_ + 1);
  started_ = true;
  std::vector<int64_t> all = indices({epoch_, start_});
  all.erase(all.begin(), all.begin() + position_);
  return all;
}

void Sampler::set_epoch(int64_t epoch) {
  TANDEM_CHECK(ValueError, epoch >= 0, "Sampler: epoch is ", epoch, ", expected at least 0");
  epoch_ = epoch;
  start_ = 0;
  position_ = 0;
  started_ = false;
}

State Sampler::state_dict() const {
  const bool finished = started_ && position_ >= size_from(start_);
  State state;
  state.set("epoch", finished ? epoch_ + 1 : epoch_);
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
  TANDEM_CHECK(StateError, position == 0 || saved_size == size(), "Sampler: the state is from within an epoch of ",
               saved_size, " items, but this sampler has ", size());
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
  return options_.drop_last ? left / world_size_ : (left + world_size_ - 1) / world_size_;
}

std::vector<int64_t> DistributedSampler::indices(Epoch epoch) const {
  const std::vector<int64_t> order =
      options_.shuffle ? permutation(dataset_size_, options_.seed, epoch.number) : ascending(dataset_size_);
  const int64_t count = size_from(epoch.start);
  std::vector<int64_t> mine;
  mine.reserve(static_cast<size_t>(count));
  // Training without drop_last wraps around at the end of the order.
  for (int64_t i = 0; i < count; ++i)
    mine.push_back(order[static_cast<size_t>((epoch.start + rank_ + i * world_size_) % dataset_size_)]);
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
               "DistributedSampler: the state is from within an epoch of a dataset of ", dataset_size,
               " items, but this sampler's has ", dataset_size_);
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
  options_.seed = seed;
  return place;
}

}}}  // namespace tandem::v0::data
