// Mean: an exact sum of float64.
//
// A double is an integer of 53 bits times 2^e with -1126 <= e <= 971, so in units of 2^-1152 each finite double is an
// integer. 70 digits of 32 bits can hold it and the carries of 2^63 summands. Digits are int64, so that 2^30 summands
// fit between two carries, and the sum of the digits over the ranks represents the sum of the ranks' numbers.
#include <cmath>
#include <limits>
#include <utility>

#include <tandem/base/error.h>
#include <tandem/distributed/process_group.h>
#include <tandem/train/metrics.h>
#include <tandem/train/over_ranks.h>

namespace tandem { inline namespace v0 { namespace train {

namespace {

constexpr int kUnit = 1152;  // the lowest bit is 2^-kUnit
constexpr int64_t kMaxAdded = int64_t{1} << 30;

}  // namespace

Mean::Mean(MeanOptions options) : options_(std::move(options)) {}

void Mean::update(double value, int64_t weight) {
  constexpr int64_t kMaxWeight = int64_t{1} << 53;
  TANDEM_CHECK(ValueError, weight >= 0 && weight <= kMaxWeight, "Mean: weight is ", weight, ", expected 0 to 2^53");
  if (weight == 0) return;
  const auto factor = static_cast<double>(weight);
  const double product = value * factor;
  add(product);
  if (std::isfinite(product)) add(std::fma(value, factor, -product));  // the rounding error of the product
  state_.back() += weight;
}

void Mean::update(const Tensor& values, int64_t weight) {
  TANDEM_CHECK(StateError, values.defined(), "Mean: values is undefined");
  for (const double value : values.to_vector<double>()) update(value, weight);
}

double Mean::compute() const {
  State state = state_;
  carry(state);  // so that the digits of the ranks can be added
  sum_over_ranks(state, options_.group, "Mean");
  return state.back() == 0 ? std::numeric_limits<double>::quiet_NaN()
                           : rounded_sum(state) / static_cast<double>(state.back());
}

void Mean::reset() {
  state_ = {};
  num_added_ = 0;
}

void Mean::add(double value) {
  if (!std::isfinite(value)) {
    ++state_[static_cast<size_t>(kDigits + (std::isnan(value) ? 0 : value > 0 ? 1 : 2))];
    return;
  }
  if (value == 0) return;
  int exponent = 0;
  const auto integer = static_cast<uint64_t>(std::ldexp(std::frexp(std::abs(value), &exponent), 53));
  const int position = exponent - 53 + kUnit;
  unsigned __int128 bits = static_cast<unsigned __int128>(integer) << (position % 32);
  for (auto digit = static_cast<size_t>(position / 32); bits != 0; ++digit, bits >>= 32) {
    const auto part = static_cast<int64_t>(static_cast<uint32_t>(bits));
    state_[digit] += value < 0 ? -part : part;
  }
  if (++num_added_ < kMaxAdded) return;
  carry(state_);
  num_added_ = 0;
}

void Mean::carry(State& state) {
  for (size_t i = 0; i + 1 < kDigits; ++i) {
    const int64_t high = state[i] >> 32;
    state[i] -= high * (int64_t{1} << 32);
    state[i + 1] += high;
  }
}

double Mean::rounded_sum(State state) {
  const bool is_nan = state[kDigits] > 0 || (state[kDigits + 1] > 0 && state[kDigits + 2] > 0);
  if (is_nan) return std::numeric_limits<double>::quiet_NaN();
  if (state[kDigits + 1] > 0) return std::numeric_limits<double>::infinity();
  if (state[kDigits + 2] > 0) return -std::numeric_limits<double>::infinity();
  carry(state);
  const bool is_negative = state[kDigits - 1] < 0;
  if (is_negative) {
    for (size_t i = 0; i < kDigits; ++i) state[i] = -state[i];
    carry(state);
  }
  int highest = kDigits - 1;
  while (highest > 0 && state[static_cast<size_t>(highest)] == 0) --highest;
  // The highest 128 bits, of which at least 97 are significant; one bit represents all lower ones, so that the
  // conversion to float64 rounds correctly.
  unsigned __int128 bits = 0;
  for (int i = highest; i > highest - 4; --i) {
    bits = (bits << 32) | static_cast<uint32_t>(i >= 0 ? state[static_cast<size_t>(i)] : 0);
  }
  for (int i = highest - 4; i >= 0; --i) bits |= static_cast<uint32_t>(state[static_cast<size_t>(i)] != 0);
  const double sum = std::ldexp(static_cast<double>(bits), 32 * (highest - 3) - kUnit);
  return is_negative ? -sum : sum;
}

}}}  // namespace tandem::v0::train
