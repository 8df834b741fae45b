// Words of a random stream on CPUs. Private to ops/.
#pragma once

#include <cstdint>

#include <tandem/tensor/generator.h>

namespace tandem { inline namespace v0 {

/// Philox blocks that are computed together, in vectorized code.
inline constexpr int64_t kPhiloxBlocks = 16;

/// words[4 b + j] = word j of block first + b for kPhiloxBlocks blocks: PhiloxState::block, written so that the
/// compiler vectorizes over blocks.
inline void philox_blocks(const PhiloxState& state, uint64_t first, uint32_t* words) {
  uint32_t counter[4][kPhiloxBlocks];
  for (int64_t b = 0; b < kPhiloxBlocks; ++b) {
    const uint64_t position = state.offset + first + static_cast<uint64_t>(b);
    counter[0][b] = static_cast<uint32_t>(position);
    counter[1][b] = static_cast<uint32_t>(position >> 32);
    counter[2][b] = state.rank;
    counter[3][b] = state.device_number;
  }
  uint32_t key[2] = {static_cast<uint32_t>(state.seed), static_cast<uint32_t>(state.seed >> 32)};
  for (int round = 0; round < 10; ++round) {
    for (int64_t b = 0; b < kPhiloxBlocks; ++b) {
      const uint64_t even = uint64_t{0xD2511F53} * counter[0][b];
      const uint64_t odd = uint64_t{0xCD9E8D57} * counter[2][b];
      counter[0][b] = static_cast<uint32_t>(odd >> 32) ^ counter[1][b] ^ key[0];
      counter[1][b] = static_cast<uint32_t>(odd);
      counter[2][b] = static_cast<uint32_t>(even >> 32) ^ counter[3][b] ^ key[1];
      counter[3][b] = static_cast<uint32_t>(even);
    }
    key[0] += 0x9E3779B9;
    key[1] += 0xBB67AE85;
  }
  for (int64_t b = 0; b < kPhiloxBlocks; ++b) {
    for (int64_t j = 0; j < 4; ++j) words[4 * b + j] = counter[j][b];
  }
}

}}  // namespace tandem::v0
