// CPU kernels of random tensors.
#include <algorithm>
#include <cmath>

#include <tandem/base/parallel_for.h>
#include <tandem/ops/common/wide.h>
#include <tandem/ops/random/philox_blocks.h>
#include <tandem/ops/random/random_kernels.h>

namespace tandem { inline namespace v0 { namespace cpu {
namespace {

/// Words per piece of parallel work; a multiple of the words drawn together.
constexpr int64_t kGrainWords = 1 << 12;

/// Calls f(begin, end, words) for pieces [begin, end) of n values that take `per_value` words each (1, 2 or 4);
/// words[0] is the first word of value `begin`.
template <class F>
void for_words(const PhiloxState& state, int64_t n, int64_t per_value, F f) {
  parallel_for(n, kGrainWords / per_value, [&](int64_t begin, int64_t end) {
    uint32_t words[kGrainWords];
    const int64_t first = begin * per_value, count = (end - begin) * per_value;
    run_wide([&] {
      for (int64_t w = 0; w < count; w += 4 * kPhiloxBlocks) {
        philox_blocks(state, static_cast<uint64_t>((first + w) / 4), words + w);
      }
      f(begin, end, words);
    });
  });
}

}  // namespace

void uniform(const KernelContext&, DType dtype, PhiloxState state, int64_t n, void* out) {
  visit_floating_dtype(dtype, [&]<class T>() {
    T* values = static_cast<T*>(out);
    constexpr int64_t kWords = words_per_uniform(dtype_of<T>());
    for_words(state, n, kWords, [=](int64_t begin, int64_t end, const uint32_t* words) {
      for (int64_t i = begin; i < end; ++i) values[i] = uniform_value<T>(words + (i - begin) * kWords);
    });
  });
}

void normal(const KernelContext&, DType dtype, PhiloxState state, int64_t n, void* out) {
  visit_floating_dtype(dtype, [&]<class T>() {
    T* values = static_cast<T*>(out);
    constexpr int64_t kWords = words_per_uniform(dtype_of<T>());
    for_words(state, (n + 1) / 2, 2 * kWords, [=](int64_t begin, int64_t end, const uint32_t* words) {
      const int64_t whole = std::min(end, n / 2);
      for (int64_t pair = begin; pair < whole; ++pair) {
        const NormalPair<T> drawn = normal_pair<T>(words + (pair - begin) * 2 * kWords);
        values[2 * pair] = drawn.first;
        values[2 * pair + 1] = drawn.second;
      }
      if (whole < end) values[n - 1] = normal_pair<T>(words + (whole - begin) * 2 * kWords).first;
    });
  });
}

void integers(const KernelContext&, DType dtype, PhiloxState state, int64_t low, uint64_t range, int64_t n, void* out) {
  visit_integral_dtype(dtype, [&]<class T>() {
    auto* const values = static_cast<T*>(out);
    for_words(state, n, 2, [=](int64_t begin, int64_t end, const uint32_t* words) {
      for (int64_t i = begin; i < end; ++i) {
        const uint64_t drawn = scale_to_range(join(words + 2 * (i - begin)), range);
        values[i] = static_cast<T>(static_cast<uint64_t>(low) + drawn);
      }
    });
  });
}

void permutation(const CpuContext&, PhiloxState state, int64_t n, int64_t* out) {
  for (int64_t i = 0; i < n; ++i) out[i] = i;
  // Sequential, because swaps depend on each other.
  for (int64_t i = n - 1; i > 0; --i) {
    const auto block = state.block(static_cast<uint64_t>(i / 2));
    const int64_t j = static_cast<int64_t>(
        scale_to_range(join(&block[static_cast<size_t>(2 * (i % 2))]), static_cast<uint64_t>(i) + 1));
    std::swap(out[i], out[j]);
  }
}

void check_probabilities(const KernelContext&, DType dtype, int64_t n, const void* p) {
  visit_floating_dtype(dtype, [&]<class T>() {
    const T* values = static_cast<const T*>(p);
    for (int64_t i = 0; i < n; ++i) {
      const double value = static_cast<double>(static_cast<Accumulator<T>>(values[i]));
      TANDEM_CHECK(ValueError, value >= 0 && value <= 1, bad_probability_text(value, i));
    }
  });
}

void bernoulli(const KernelContext&, DType dtype, PhiloxState state, int64_t n, const void* p, void* out) {
  visit_floating_dtype(dtype, [&]<class T>() {
    using C = Accumulator<T>;
    const T* probabilities = static_cast<const T*>(p);
    T* values = static_cast<T*>(out);
    for_words(state, n, 2, [=](int64_t begin, int64_t end, const uint32_t* words) {
      for (int64_t i = begin; i < end; ++i) {
        const uint32_t* own = words + 2 * (i - begin);
        const bool one = uniform_double(own[0], own[1]) < static_cast<double>(static_cast<C>(probabilities[i]));
        values[i] = static_cast<T>(one ? C(1) : C(0));
      }
    });
  });
}

void check_weights(const KernelContext&, DType dtype, int64_t rows, int64_t classes, int64_t needed,
                   const void* weights) {
  visit_floating_dtype(dtype, [&]<class T>() {
    const T* values = static_cast<const T*>(weights);
    for (int64_t row = 0; row < rows; ++row) {
      int64_t positive = 0;
      for (int64_t c = 0; c < classes; ++c) {
        const double weight = static_cast<double>(static_cast<Accumulator<T>>(values[row * classes + c]));
        TANDEM_CHECK(ValueError, weight >= 0 && !std::isinf(weight), bad_weight_text(weight, row, c));
        positive += weight > 0;
      }
      TANDEM_CHECK(ValueError, positive >= needed, too_few_weights_text(row, positive, needed));
    }
  });
}

namespace {

/// rand's float64 values of a stream, in any order; fast for consecutive values.
class UniformDoubles {
 public:
  explicit UniformDoubles(const PhiloxState& state) : state_(state) {}
  double operator[](int64_t i) {
    if (i < begin_ || i >= begin_ + kDrawn) {
      begin_ = i / 2 * 2;
      philox_blocks(state_, static_cast<uint64_t>(begin_ / 2), words_);
    }
    return uniform_double(words_[2 * (i - begin_)], words_[2 * (i - begin_) + 1]);
  }

 private:
  static constexpr int64_t kDrawn = 2 * kPhiloxBlocks;  ///< values drawn together, two per block
  const PhiloxState& state_;
  int64_t begin_ = -kDrawn;
  uint32_t words_[4 * kPhiloxBlocks];
};

}  // namespace

void multinomial(const KernelContext&, DType dtype, PhiloxState state, int64_t rows, int64_t classes, int64_t samples,
                 bool replacement, const void* weights, double* workspace, int64_t* out) {
  visit_floating_dtype(dtype, [&]<class T>() {
    const T* values = static_cast<const T*>(weights);
    const int64_t grain = std::max<int64_t>(1, kGrainWords / (classes + samples));
    parallel_for(rows, grain, [&](int64_t begin, int64_t end) {
      UniformDoubles uniform_doubles(state);
      for (int64_t row = begin; row < end; ++row) {
        const T* weight = values + row * classes;
        double* scratch = workspace + row * classes;
        int64_t* drawn = out + row * samples;
        if (replacement) {
          double sum = 0;
          for (int64_t c = 0; c < classes; ++c) {
            scratch[c] = sum += static_cast<double>(static_cast<Accumulator<T>>(weight[c]));
          }
          for (int64_t i = 0; i < samples; ++i) {
            drawn[i] = sampled_index(scratch, classes, uniform_doubles[row * samples + i]);
          }
          continue;
        }
        // A heap of the `samples` smallest values so far, with the largest on top.
        const auto is_before = [&](int64_t a, int64_t b) {
          return scratch[a] < scratch[b] || (scratch[a] == scratch[b] && a < b);
        };
        for (int64_t c = 0; c < classes; ++c) {
          const double u = uniform_doubles[row * classes + c];
          const double w = static_cast<double>(static_cast<Accumulator<T>>(weight[c]));
          scratch[c] = exponential_value(u, w);
          if (c < samples) {
            drawn[c] = c;
            std::push_heap(drawn, drawn + c + 1, is_before);
          } else if (is_before(c, drawn[0])) {
            std::pop_heap(drawn, drawn + samples, is_before);
            drawn[samples - 1] = c;
            std::push_heap(drawn, drawn + samples, is_before);
          }
        }
        std::sort_heap(drawn, drawn + samples, is_before);
      }
    });
  });
}

void dropout(const KernelContext&, DType dtype, PhiloxState state, uint64_t threshold, double scale, int64_t n,
             const void* x, void* out) {
  visit_floating_dtype(dtype, [&]<class T>() {
    using C = Accumulator<T>;
    const T* values = static_cast<const T*>(x);
    T* result = static_cast<T*>(out);
    const C factor = static_cast<C>(scale);
    for_words(state, n, 1, [=](int64_t begin, int64_t end, const uint32_t* words) {
      for (int64_t i = begin; i < end; ++i) {
        result[i] = static_cast<T>(words[i - begin] >= threshold ? static_cast<C>(values[i]) * factor : C(0));
      }
    });
  });
}

}}}  // namespace tandem::v0::cpu
