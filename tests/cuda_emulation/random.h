// Random numbers for TANDEM_EMULATED_ORDER=random:SEED, and random orders of blocks and threads.
#pragma once

#include <cstdint>
#include <numeric>

namespace cuda_emulation {

class Random {
 public:
  explicit Random(uint64_t seed = 0) : state_(seed) {}

  uint64_t next() {  // splitmix64
    uint64_t z = state_ += 0x9E3779B97F4A7C15;
    z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9;
    z = (z ^ (z >> 27)) * 0x94D049BB133111EB;
    return z ^ (z >> 31);
  }
  uint64_t below(uint64_t n) { return n == 0 ? 0 : next() % n; }

 private:
  uint64_t state_;
};

/// A permutation of 0 .. n-1: i -> (step * i + start) mod n, where step and n are coprime.
class Order {
 public:
  Order() = default;
  Order(uint64_t n, Random* random) : n_(n) {
    if (random == nullptr || n < 2) {
      return;
    }
    start_ = random->below(n);
    do {
      step_ = 1 + random->below(n);
    } while (std::gcd(step_, n) != 1);
  }
  uint64_t operator()(uint64_t i) const {
    return step_ == 1 && start_ == 0 ? i
                                     : static_cast<uint64_t>((static_cast<unsigned __int128>(step_) * i + start_) % n_);
  }

 private:
  uint64_t n_ = 1, step_ = 1, start_ = 0;
};

}  // namespace cuda_emulation
