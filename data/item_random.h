// Random numbers of one item of a dataset.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>

#include <tandem/tensor/generator.h>

namespace tandem { inline namespace v0 { namespace data {

/// A stream of random numbers that is a pure function of (seed, index, stream). So an item does not depend on the
/// thread or the time of its creation. `stream` separates users of the same seed.
class ItemRandom {
 public:
  /// The stream of (seed, index, stream), from its start.
  ItemRandom(uint64_t seed, int64_t index, uint32_t stream)
      : seed_(seed), index_(static_cast<uint64_t>(index)), stream_(stream) {}

  /// The next 32 random bits.
  uint32_t word() {
    if (used_ == words_.size()) {
      words_ = philox({static_cast<uint32_t>(seed_), static_cast<uint32_t>(seed_ >> 32)},
                      {block_++, static_cast<uint32_t>(index_), static_cast<uint32_t>(index_ >> 32), stream_});
      used_ = 0;
    }
    return words_[used_++];
  }
  /// A random integer in 0 .. bound - 1, for a bound of at most 2^31.
  int64_t below(int64_t bound) {
    return static_cast<int64_t>(static_cast<uint64_t>(word()) * static_cast<uint64_t>(bound) >> 32);
  }
  /// A random number in [low, high).
  double uniform(double low, double high) {
    const double value = low + (high - low) * (word() * 0x1p-32);
    return value == high ? __builtin_nextafter(high, low) : value;  // the sum may round up
  }

 private:
  uint64_t seed_;
  uint64_t index_;
  uint32_t stream_;
  uint32_t block_ = 0;
  std::array<uint32_t, 4> words_ = {};
  size_t used_ = 4;
};

}}}  // namespace tandem::v0::data
