#include <tandem/data/sampler.h>

#include <numeric>
#include <utility>

#include <tandem/tensor/generator.h>

namespace tandem::inline v0::data {

namespace {

/// Last word of the counters under which permutations are drawn, so that no other stream of the same seed repeats them.
constexpr uint32_t kPermutationStream = 0x70657200;

std::vector<int64_t> ascending(int64_t size) {
  std::vector<int64_t> order(static_cast<size_t>(size));
  std::iota(order.begin(), order.end(), int64_t{0});
  return order;
}

/// A permutation of 0 .. size - 1 as a function of (seed, epoch): Fisher and Yates' shuffle, the bound of each draw
/// applied by a 64-bit multiplication (a bias below size / 2^64).
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
  if (started_) {
    ++epoch_;
    position_ = 0;
  }
  started_ = true;
  std::vector<int64_t> all = indices(epoch_);
  all.erase(all.begin(), all.begin() + position_);
  return all;
}

void Sampler::set_epoch(int64_t epoch) {
  TANDEM_CHECK(ValueError, epoch >= 0, "Sampler: epoch ", epoch, " is negative");
  epoch_ = epoch;
  position_ = 0;
  started_ = false;
}

State Sampler::state_dict() const {
  const bool finished = started_ && position_ >= size();
  State state;
  state.set("epoch", finished ? epoch_ + 1 : epoch_);
  state.set("position", finished ? int64_t{0} : position_);
  state.set("size", size());
  save(state);
  return state;
}

void Sampler::load_state_dict(const State& state) {
  const auto epoch = state.get<int64_t>("epoch");
  const auto position = state.get<int64_t>("position");
  const auto saved_size = state.get<int64_t>("size");
  TANDEM_CHECK(StateError, epoch >= 0, "Sampler: epoch ", epoch, " is negative");
  TANDEM_CHECK(StateError, position >= 0 && position <= saved_size, "Sampler: position ", position,
               " is outside an epoch of ", saved_size);
  TANDEM_CHECK(StateError, position == 0 || saved_size == size(), "Sampler: the state stands inside an epoch of ",
               saved_size, " items, this sampler's have ", size());
  load(state);
  epoch_ = epoch;
  position_ = position;
  started_ = false;
}

void Sampler::save(State&) const {}
void Sampler::load(const State&) {}

SequentialSampler::SequentialSampler(int64_t size) : size_(size) {
  TANDEM_CHECK(ValueError, size >= 0, "SequentialSampler: size ", size, " is negative");
}

std::vector<int64_t> SequentialSampler::indices(int64_t) const { return ascending(size_); }

RandomSampler::RandomSampler(int64_t size, uint64_t seed) : size_(size), seed_(seed) {
  TANDEM_CHECK(ValueError, size >= 0, "RandomSampler: size ", size, " is negative");
}

std::vector<int64_t> RandomSampler::indices(int64_t epoch) const { return permutation(size_, seed_, epoch); }

void RandomSampler::save(State& state) const { state.set("seed", static_cast<int64_t>(seed_)); }
void RandomSampler::load(const State& state) { seed_ = static_cast<uint64_t>(state.get<int64_t>("seed")); }

DistributedSampler::DistributedSampler(int64_t size, int rank, int world_size, Options options)
    : dataset_size_(size), rank_(rank), world_size_(world_size), options_(options) {
  TANDEM_CHECK(ValueError, size >= 0, "DistributedSampler: size ", size, " is negative");
  TANDEM_CHECK(ValueError, world_size >= 1, "DistributedSampler: world size ", world_size, " is less than 1");
  TANDEM_CHECK(ValueError, rank >= 0 && rank < world_size, "DistributedSampler: rank ", rank, " is outside a world of ",
               world_size);
  if (options.mode == Options::Mode::kEvaluation) {
    count_ = size > rank ? (size - rank - 1) / world_size + 1 : 0;
  } else {
    count_ = options.drop_last ? size / world_size : (size + world_size - 1) / world_size;
  }
}

std::vector<int64_t> DistributedSampler::indices(int64_t epoch) const {
  const std::vector<int64_t> order =
      options_.shuffle ? permutation(dataset_size_, options_.seed, epoch) : ascending(dataset_size_);
  std::vector<int64_t> mine;
  mine.reserve(static_cast<size_t>(count_));
  // Beyond the end of the order, in training without drop_last, it starts again.
  for (int64_t i = 0; i < count_; ++i)
    mine.push_back(order[static_cast<size_t>((rank_ + i * world_size_) % dataset_size_)]);
  return mine;
}

void DistributedSampler::save(State& state) const { state.set("seed", static_cast<int64_t>(options_.seed)); }
void DistributedSampler::load(const State& state) { options_.seed = static_cast<uint64_t>(state.get<int64_t>("seed")); }

}  // namespace tandem::inline v0::data
