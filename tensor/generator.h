// Random streams: Philox 4x32-10 (Salmon et al., "Parallel random numbers: as easy as 1, 2, 3", SC 2011).
#pragma once

#include <array>
#include <cstdint>

#include <tandem/base/macros.h>
#include <tandem/tensor/device.h>
#include <tandem/tensor/state.h>

namespace tandem { inline namespace v0 {

/// Philox4x32-10: four random words, a pure function of (key, counter).
TANDEM_HOST_DEVICE constexpr std::array<uint32_t, 4> philox(std::array<uint32_t, 2> key,
                                                            std::array<uint32_t, 4> counter) {
  for (int round = 0; round < 10; ++round) {
    const uint64_t a = uint64_t{0xD2511F53} * counter[0];
    const uint64_t b = uint64_t{0xCD9E8D57} * counter[2];
    counter = {static_cast<uint32_t>(b >> 32) ^ counter[1] ^ key[0], static_cast<uint32_t>(b),
               static_cast<uint32_t>(a >> 32) ^ counter[3] ^ key[1], static_cast<uint32_t>(a)};
    key[0] += 0x9E3779B9;
    key[1] += 0xBB67AE85;
  }
  return counter;
}

/// A position in a stream: what a kernel needs to draw numbers.  Number i of a draw uses the counter
/// {offset + i / 4 (64 bits), rank, device number} under the key `seed`, word i % 4.
struct PhiloxState {
  uint64_t seed = 0;
  uint32_t rank = 0;
  uint32_t device_number = 0;
  uint64_t offset = 0;
  const PhiloxState* of_step =
      nullptr;  ///< in a cuda::Graph: the state in its place, of each replay, in the GPU's memory

  TANDEM_HOST_DEVICE std::array<uint32_t, 4> block(uint64_t index) const {
    const PhiloxState& now = of_step == nullptr ? *this : *of_step;
    const uint64_t position = now.offset + index;
    return philox(
        {static_cast<uint32_t>(now.seed), static_cast<uint32_t>(now.seed >> 32)},
        {static_cast<uint32_t>(position), static_cast<uint32_t>(position >> 32), now.rank, now.device_number});
  }
};

/// The stream Philox(seed, rank, k) of a device: k = 0 on the rank's own device, whatever it is, so that CPU, CUDA,
/// thread and process ranks draw the same bits.  Not safe from many threads.
class TANDEM_API Generator {
 public:
  explicit Generator(uint64_t seed = 0, uint32_t rank = 0, uint32_t device_number = 0);
  void manual_seed(uint64_t seed);
  uint64_t seed() const { return state_.seed; }
  /// Reserves num_values 32-bit numbers and returns where they start.
  PhiloxState reserve(int64_t num_values);
  /// {"seed", "rank", "device_number", "offset"}.
  State state_dict() const;
  /// Takes over seed and offset.  Rank and device number stay the generator's own: they tell streams apart, so a rank
  /// that goes on from another's state draws other numbers than that one.  Throws StateError, changing nothing, if one
  /// is missing.
  void load_state_dict(const State& state);

 private:
  PhiloxState state_;
};

/// The calling rank's own device, whose stream has the number 0; cpu unless set_rank_device said otherwise.
TANDEM_API Device rank_device();
/// Says so, before the first use of a generator.  Throws StateError after it.
TANDEM_API void set_rank_device(Device device);

/// The calling rank's generator of `device`.
TANDEM_API Generator& default_generator(Device device = {});
/// Seeds all generators of the calling rank.  Streams of different ranks stay different.
TANDEM_API void manual_seed(uint64_t seed);

}}  // namespace tandem::v0
