// Random streams: Philox 4x32-10 (Salmon et al., "Parallel random numbers: as easy as 1, 2, 3", SC 2011).
#pragma once

#include <array>
#include <cstdint>
#include <memory>

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

/// A position in a random stream, passed to kernels that draw numbers. Number i of a draw is word i % 4 of
/// philox(key = seed, counter = {offset + i / 4 (64 bits), rank, device_number}).
struct PhiloxState {
  uint64_t seed = 0;           ///< seed of the stream
  uint32_t rank = 0;           ///< draws of different ranks are independent
  uint32_t device_number = 0;  ///< see Generator
  uint64_t offset = 0;         ///< number of the first block, four words each
  const PhiloxState* of_step =
      nullptr;  ///< in a cuda::Graph: the state of the current replay, in GPU memory, which replaces this one

  /// Words 4 * index to 4 * index + 3 of the draw.
  TANDEM_HOST_DEVICE std::array<uint32_t, 4> block(uint64_t index) const {
    const PhiloxState& now = of_step == nullptr ? *this : *of_step;
    const uint64_t position = now.offset + index;
    return philox(
        {static_cast<uint32_t>(now.seed), static_cast<uint32_t>(now.seed >> 32)},
        {static_cast<uint32_t>(position), static_cast<uint32_t>(position >> 32), now.rank, now.device_number});
  }
};

/// The random stream (seed, rank, device_number) of a device. device_number is 0 on the rank's own device, of whatever
/// type, so that CPU, CUDA, thread and process ranks draw the same bits. Not thread-safe.
class TANDEM_API Generator {
 public:
  /// The stream of (seed, rank, device_number), from its start.
  explicit Generator(uint64_t seed = 0, uint32_t rank = 0, uint32_t device_number = 0);
  /// Sets the seed and returns to the start of the stream.
  void manual_seed(uint64_t seed);
  uint64_t seed() const { return state_.seed; }  ///< of the stream
  /// Reserves num_values 32-bit numbers and returns their start.
  PhiloxState reserve(int64_t num_values);
  /// As above, for a kernel on `device`. If the kernel is captured in a cuda::Graph, each replay reserves other
  /// numbers; the generator must outlive the graph.
  PhiloxState reserve(int64_t num_values, Device device);
  /// {"seed", "rank", "device_number", "offset"}.
  State state_dict() const;
  /// Loads seed and offset. Rank and device number are kept, so a rank that loads another rank's state still draws
  /// different numbers. Throws StateError, without changes, if seed or offset is missing.
  void load_state_dict(const State& state);

 private:
  PhiloxState state_;
};

/// The calling rank's own device, whose device_number is 0; cpu unless set by set_rank_device.
TANDEM_API Device rank_device();
/// Sets the calling rank's own device. Throws StateError after the first use of a generator.
TANDEM_API void set_rank_device(Device device);

/// The calling rank's generator of `device`.
TANDEM_API Generator& default_generator(Device device = {});
/// The positions of the calling rank's generators at one time, to draw the same numbers again. If they are used in the
/// capture of a cuda::Graph, each replay uses the positions of that replay.
class TANDEM_API GeneratorPositions {
 public:
  /// Saves the current positions.
  GeneratorPositions();
  /// Returns all generators to these positions. A generator that was created later returns to its start.
  void restore() const;

 private:
  struct Positions;
  std::shared_ptr<Positions> positions_;
};

/// Seeds all generators of the calling rank. After the same seed on all ranks, initial values of layers (nn::init) are
/// equal on all ranks, and all other random numbers differ between ranks (docs/determinism.md).
TANDEM_API void manual_seed(uint64_t seed);

}}  // namespace tandem::v0
