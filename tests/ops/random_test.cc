#include <numbers>

#include <tandem/base/parallel_for.h>
#include <tandem/tests/support/op_case.h>
#include <tandem/tests/support/ops.h>

namespace tandem::testing { namespace {

/// The stream's words from `state` on.
std::vector<uint32_t> words(PhiloxState state, int64_t n) {
  std::vector<uint32_t> result;
  for (uint64_t block = 0; static_cast<int64_t>(result.size()) < n; ++block) {
    for (uint32_t word : state.block(block)) result.push_back(word);
  }
  result.resize(static_cast<size_t>(n));
  return result;
}

/// A generator after some draws, and its position.
struct Stream {
  Generator generator{17, 3, 2};
  PhiloxState state;
  Stream() {
    static_cast<void>(generator.reserve(9));
    Generator same = generator;
    state = same.reserve(0);
  }
};

/// Verifies that mean and variance of the sample are within five standard deviations of the expected values.
void expect_moments(const std::vector<double>& values, double mean, double variance, double fourth_moment) {
  const double n = static_cast<double>(values.size());
  double sum = 0, squares = 0;
  for (double value : values) {
    sum += value;
    squares += (value - mean) * (value - mean);
  }
  EXPECT_NEAR(sum / n, mean, 5 * std::sqrt(variance / n));
  EXPECT_NEAR(squares / n, variance, 5 * std::sqrt((fourth_moment - variance * variance) / n));
}

TEST(Rand, ValuesFollowDocumentedFunctionOfPhiloxWords) {
  for (const int64_t n : {0, 1, 3, 7, 33, 5000}) {
    Stream stream;
    const auto w = words(stream.state, 2 * n);
    const Tensor single = rand({n}, {}, &stream.generator);
    for (int64_t i = 0; i < n; ++i) {
      ASSERT_EQ(single.data<float>()[i], static_cast<float>(w[static_cast<size_t>(i)] >> 8) / 16777216.0f) << i;
    }
    Stream again;
    const Tensor twice = rand({n}, {kFloat64}, &again.generator);
    for (int64_t i = 0; i < n; ++i) {
      const double high = w[static_cast<size_t>(2 * i)] >> 5, low = w[static_cast<size_t>(2 * i + 1)] >> 6;
      ASSERT_EQ(twice.data<double>()[i], (high * 67108864.0 + low) / 9007199254740992.0) << i;
    }
  }
}

TEST(Rand, HalfTypesStayBelowOne) {
  for (const DType dtype : {kFloat16, kBFloat16}) {
    Stream stream;
    const std::vector<double> values = rand({40000}, {dtype}, &stream.generator).to_vector<double>();
    EXPECT_GE(*std::min_element(values.begin(), values.end()), 0);
    EXPECT_LT(*std::max_element(values.begin(), values.end()), 1);
    // Uniform on the multiples of 2^-b: the mean is half a step below 1/2.
    const double step = dtype == kFloat16 ? 0x1p-11 : 0x1p-8;
    expect_moments(values, 0.5 - step / 2, (1 - step * step) / 12, 1.0 / 80);
  }
}

TEST(Rand, NextCallContinuesTheStream) {
  Generator generator(5), same(5);
  const Tensor first = rand({8}, {}, &generator), second = rand({4}, {}, &generator), both = rand({12}, {}, &same);
  EXPECT_EQ(second.to_vector<float>(), both.slice(0, 8, 12).to_vector<float>());
  manual_seed(11);
  const Tensor a = rand({3});
  manual_seed(11);
  EXPECT_EQ(a.to_vector<float>(), rand({3}).to_vector<float>());
  EXPECT_NE(a.to_vector<float>(), rand({3}).to_vector<float>());
  EXPECT_TRUE(rand({3}, {kFloat32, {}, true}).requires_grad());
}

TEST(Randn, ValuesFollowDocumentedFunctionOfPhiloxWords) {
  for (const int64_t n : {0, 1, 2, 7, 32, 33, 5001}) {
    Stream stream;
    const auto w = words(stream.state, n + 1);
    const Tensor x = randn({n}, {}, &stream.generator);
    for (int64_t i = 0; i < n; ++i) {
      const size_t pair = static_cast<size_t>(i / 2 * 2);
      const double u = (w[pair] >> 8) * 0x1p-24, v = (w[pair + 1] >> 8) * 0x1p-24;
      const double radius = std::sqrt(-2 * std::log1p(-u)), angle = 2 * std::numbers::pi * v;
      ASSERT_EQ(x.data<float>()[i],
                static_cast<float>(i % 2 == 0 ? radius * std::cos(angle) : radius * std::sin(angle)))
          << i;
    }
  }
}

TEST(Randn, MeanAndVarianceMatchNormalDistribution) {
  Stream stream;
  for (const DType dtype : {kFloat32, kFloat64}) {
    expect_moments(randn({100001}, {dtype}, &stream.generator).to_vector<double>(), 0, 1, 3);
  }
  for (const DType dtype : {kFloat16, kBFloat16}) {
    const std::vector<double> values = randn({10000}, {dtype}, &stream.generator).to_vector<double>();
    for (double value : values) ASSERT_TRUE(std::isfinite(value));
    expect_moments(values, 0, 1, 3);
  }
}

TEST(Randint, ValuesFollowDocumentedFunctionOfPhiloxWords) {
  Stream stream;
  const auto w = words(stream.state, 66);
  const Tensor x = randint(-5, 12, {3, 11}, {kInt64}, &stream.generator);
  for (size_t i = 0; i < 33; ++i) {
    const uint64_t word = w[2 * i] | static_cast<uint64_t>(w[2 * i + 1]) << 32;
    const int64_t expected = -5 + static_cast<int64_t>((static_cast<unsigned __int128>(word) * 17) >> 64);
    ASSERT_EQ(x.data<int64_t>()[i], expected);
  }
}

TEST(Randint, ValuesSpanTheFullIntegerRange) {
  const int64_t low = std::numeric_limits<int64_t>::min(), high = std::numeric_limits<int64_t>::max();
  Stream stream;
  const std::vector<int64_t> values = randint(low, high, {1000}, {kInt64}, &stream.generator).to_vector<int64_t>();
  EXPECT_LT(*std::min_element(values.begin(), values.end()), low / 2);
  EXPECT_GT(*std::max_element(values.begin(), values.end()), high / 2);
  EXPECT_EQ(randint(-128, -127, {1}, {kInt8}).item<int64_t>(), -128);
  EXPECT_EQ(randint(32767, 32768, {1}, {kInt16}).item<int64_t>(), 32767);
  EXPECT_EQ(randint(1, {3}).to_vector<int64_t>(), (std::vector<int64_t>{0, 0, 0}));
  EXPECT_EQ(randint(255, 256, {2}, {kUInt8}).to_vector<int64_t>(), (std::vector<int64_t>{255, 255}));
}

TEST(Randint, DTypesHaveTheSameIntegers) {
  for (const DType dtype : {kUInt8, kInt8, kInt16, kInt32, kFloat16, kBFloat16, kFloat32, kFloat64}) {
    const int64_t low = dtype == kUInt8 ? 0 : -9, high = dtype == kUInt8 || is_floating_point(dtype) ? 256 : 128;
    Stream stream, same;
    const Tensor integers = randint(low, high, {100}, {kInt64}, &stream.generator);
    const Tensor drawn = randint(low, high, {100}, {dtype}, &same.generator);
    EXPECT_EQ(drawn.dtype(), dtype);
    EXPECT_EQ(drawn.to_vector<int64_t>(), integers.to_vector<int64_t>());
  }
}

TEST(Randint, InvalidRangeAndDTypeAreNamedInErrors) {
  EXPECT_ERROR(ValueError, randint(3, 3, {2}), "randint: low must be below high, they are 3 and 3");
  EXPECT_ERROR(ValueError, randint(0, 257, {2}, {kUInt8}), "randint: [0, 257) does not fit uint8");
  EXPECT_ERROR(ValueError, randint(-129, 3, {2}, {kInt8}), "randint: [-129, 3) does not fit int8");
  EXPECT_ERROR(ValueError, randint(32769, {2}, {kInt16}), "randint: [0, 32769) does not fit int16");
  EXPECT_ERROR(DTypeError, randint(0, 2, {2}, {kBool}), "randint: the dtype must not be bool");
  EXPECT_ERROR(ValueError, randint(0, 258, {2}, {kBFloat16}), "randint: [0, 258) does not fit bfloat16");
  EXPECT_ERROR(DTypeError, rand({2}, {kInt64}), "rand: dtype is int64, expected a floating-point dtype");
  EXPECT_ERROR(DTypeError, randn({2}, {kBool}), "randn: dtype is bool, expected a floating-point dtype");
}

TEST(Randperm, ResultIsShuffledPermutation) {
  for (const int64_t n : {0, 1, 2, 7, 1000}) {
    Stream stream;
    std::vector<int64_t> values = randperm(n, {}, &stream.generator).to_vector<int64_t>();
    if (n == 1000) {
      EXPECT_FALSE(std::is_sorted(values.begin(), values.end()));
    }
    std::sort(values.begin(), values.end());
    for (int64_t i = 0; i < n; ++i) ASSERT_EQ(values[static_cast<size_t>(i)], i);
  }
  EXPECT_ERROR(ValueError, randperm(-1), "randperm: n is -1, expected at least 0");
}

TEST(Randperm, AllOrdersAreEquallyLikely) {
  Stream stream;
  constexpr int kDraws = 12000;
  std::vector<double> counts(27);
  for (int i = 0; i < kDraws; ++i) {
    const std::vector<int64_t> p = randperm(3, {}, &stream.generator).to_vector<int64_t>();
    ++counts[static_cast<size_t>(9 * p[0] + 3 * p[1] + p[2])];
  }
  double chi_square = 0;
  for (double count : counts) {
    if (count > 0) chi_square += (count - kDraws / 6) * (count - kDraws / 6) / (kDraws / 6);
  }
  EXPECT_EQ(std::count(counts.begin(), counts.end(), 0.0), 21);
  EXPECT_LT(chi_square, 25.7);  // exceeded with probability 1e-4 at five degrees of freedom
}

TEST(Bernoulli, FrequenciesFollowTheProbabilities) {
  Stream stream;
  for (const DType dtype : {kFloat32, kFloat64, kFloat16, kBFloat16}) {
    const Tensor p = full({40000}, 0.25, {dtype});
    const std::vector<double> values = bernoulli(p, &stream.generator).to_vector<double>();
    for (double value : values) ASSERT_TRUE(value == 0 || value == 1);
    expect_moments(values, 0.25, 0.1875, 0.25 * 0.31640625 + 0.75 * 0.00390625);
  }
  const Tensor certain = tensor({0.0, 1.0}).view({2, 1}).expand({2, 100});
  const std::vector<double> values = bernoulli(certain, &stream.generator).to_vector<double>();
  EXPECT_EQ(std::count(values.begin(), values.begin() + 100, 0.0), 100);
  EXPECT_EQ(std::count(values.begin() + 100, values.end(), 1.0), 100);
}

TEST(Bernoulli, ProbabilitiesOutsideUnitIntervalAreRejected) {
  EXPECT_ERROR(ValueError, bernoulli(tensor({0.5, 1.5, -1.0})),
               "bernoulli: probability 1.5 at position 1 is outside [0, 1]");
  EXPECT_ERROR(ValueError, bernoulli(full({2}, std::nan(""))),
               "bernoulli: probability nan at position 0 is outside [0, 1]");
}

TEST(Dropout, EvaluationOrZeroProbabilityReturnsInput) {
  Stream stream;
  const Tensor x = random_tensor({7}, 1);
  EXPECT_TRUE(dropout(x, 0.5, false, &stream.generator).is_same(x));
  EXPECT_TRUE(dropout(x, 0, true, &stream.generator).is_same(x));
  Generator fresh = stream.generator;
  EXPECT_EQ(fresh.reserve(0).offset, stream.state.offset);
}

TEST(Dropout, ValuesAndGradientsFollowDocumentedThresholdOnPhiloxWords) {
  OpCase op;
  op.name = "dropout";
  op.inputs = {{"x", {3, 33}}};
  op.run = [](const std::vector<Tensor>& in) {
    Stream stream;
    return dropout(in[0], 0.375, true, &stream.generator);
  };
  op.reference = [](const std::vector<Dense>& in) {
    Dense out = in[0];
    const auto w = words(Stream().state, 99);
    for (int64_t i = 0; i < 99; ++i) out[i] = w[static_cast<size_t>(i)] >= 0x60000000u ? in[0][i] / 0.625 : 0.0;
    return out;
  };
  check(op);
}

TEST(Dropout, ShapesOfChannelsAreChecked) {
  const Tensor x = ones({2});
  EXPECT_ERROR(ShapeError, dropout1d(x), "dropout1d: input must be [N, C, L] or [C, L]\n  input  cpu  float32 [2]");
  EXPECT_ERROR(ShapeError, dropout2d(x, 0.5, false),
               "dropout2d: input must be [N, C, H, W] or [N, C, L]\n  input  cpu  float32 [2]");
  EXPECT_ERROR(ValueError, dropout2d(ones({2, 3, 4}), -0.5), "dropout2d: p is -0.5, expected 0 <= p <= 1");
  const Tensor images = ones({2, 3, 4, 5});
  EXPECT_TRUE(dropout2d(images, 0.5, false).is_same(images));
}

TEST(Dropout, ProbabilityOneGivesZeros) {
  Tensor x = ones({70}).requires_grad_();
  const Tensor out = dropout(x, 1);
  EXPECT_EQ(out.to_vector<float>(), std::vector<float>(70));
  out.backward(ones({70}));
  EXPECT_EQ(x.grad().to_vector<float>(), std::vector<float>(70));
}

TEST(Dropout, ProbabilityOutsideRangeIsRejected) {
  EXPECT_ERROR(ValueError, dropout(ones({2}), 1.5), "dropout: p is 1.5, expected 0 <= p <= 1");
  EXPECT_ERROR(ValueError, dropout(ones({2}), -0.5, false), "dropout: p is -0.5, expected 0 <= p <= 1");
}

TEST(Random, ThreadCountDoesNotChangeBits) {
  auto draw = [](int threads) {
    set_num_threads(threads);
    Stream stream;
    Generator* g = &stream.generator;
    const Tensor weights = random_tensor({300, 101}, 1, kFloat32, 0, 1);
    return std::vector<Tensor>{rand({20001}, {}, g),
                               rand({9999}, {kFloat64}, g),
                               randn({20001}, {}, g),
                               randint(0, 1000, {9999}, {kInt32}, g),
                               bernoulli(full({9999}, 0.5), g),
                               dropout(ones({20001}), 0.5, true, g),
                               multinomial(weights, 50, true, g),
                               multinomial(weights, 50, false, g)};
  };
  const auto one = draw(1), two = draw(2);
  set_num_threads(0);
  for (size_t i = 0; i < one.size(); ++i) EXPECT_TRUE(primitives::bytes_equal(one[i], two[i])) << i;
}

/// The results of f with a fresh stream on test_device() and on the CPU.
std::pair<Tensor, Tensor> on_both(const std::function<Tensor(Device, Generator*)>& f) {
  Stream stream, same;
  return {f(test_device(), &stream.generator).cpu(), f(Device(), &same.generator)};
}
void expect_the_cpus_bits(const std::function<Tensor(Device, Generator*)>& f) {
  const auto [actual, expected] = on_both(f);
  ASSERT_EQ(actual.shape(), expected.shape());
  ASSERT_EQ(actual.dtype(), expected.dtype());
  EXPECT_TRUE(primitives::bytes_equal(actual, expected));
}

const int64_t kCounts[] = {0, 1, 2, 3, 5, 7, 1023, 1024, 1025, 33000};

TEST(Random, DeviceDrawsMatchTheCpu) {
  for (int64_t n : kCounts) {
    for (DType dtype : floating_dtypes()) {
      SCOPED_TRACE(str(n, " ", dtype));
      expect_the_cpus_bits([&](Device device, Generator* g) { return rand({n}, {dtype, device}, g); });
      expect_the_cpus_bits(
          [&](Device device, Generator* g) { return bernoulli(random_tensor({n}, 1, dtype, 0, 1).to(device), g); });
      expect_the_cpus_bits(
          [&](Device device, Generator* g) { return dropout(random_tensor({n}, 1, dtype).to(device), 0.3, true, g); });
      // They use the device's own logarithms, cosines and sines.
      const auto [actual, expected] = on_both([&](Device device, Generator* g) {
        return randn({n}, {dtype, device}, g);
      });
      EXPECT_TRUE(close(actual, dense(expected), 4 * epsilon(dtype)));
    }
    for (DType dtype : {kUInt8, kInt8, kInt16, kInt32, kInt64}) {
      expect_the_cpus_bits([&](Device device, Generator* g) { return randint(3, 127, {n}, {dtype, device}, g); });
    }
    expect_the_cpus_bits([&](Device device, Generator* g) { return randperm(n, device, g); });
  }
  const int64_t low = std::numeric_limits<int64_t>::min(), high = std::numeric_limits<int64_t>::max();
  expect_the_cpus_bits([&](Device device, Generator* g) { return randint(low, high, {33}, {kInt64, device}, g); });
}

TEST(Random, DeviceContinuesTheRandomStream) {
  expect_the_cpus_bits([](Device device, Generator* g) {
    const Tensor first = rand({5}, {kFloat32, device}, g), second = rand({7}, {kFloat32, device}, g);
    return second;
  });
  expect_the_cpus_bits([](Device device, Generator* g) {  // x begins in the middle of a Philox block
    Tensor x = random_tensor({40}, 1).to(device).slice(0, 3, 36).detach().requires_grad_();
    dropout(x, 0.5, true, g).backward(random_tensor({33}, 2).to(device));
    return x.grad();
  });
}

TEST(Multinomial, DeviceIndicesMatchTheCpu) {
  struct Case {
    int64_t rows, classes, samples;
  };
  for (const Case& c :
       {Case{3, 1, 1}, Case{33, 7, 5}, Case{2, 1023, 1023}, Case{2, 1024, 9}, Case{1, 2100, 1025}, Case{5, 1025, 3}}) {
    for (DType dtype : floating_dtypes()) {
      for (bool replacement : {true, false}) {
        SCOPED_TRACE(str(c.rows, " ", c.classes, " ", c.samples, " ", dtype, " ", replacement));
        expect_the_cpus_bits([&](Device device, Generator* g) {
          const Tensor weights = random_tensor({c.rows, c.classes}, 1, dtype, 0.25, 1).to(device);
          return multinomial(weights, c.samples, replacement, g);
        });
      }
    }
  }
  expect_the_cpus_bits([](Device device, Generator* g) {  // zeros are never drawn
    return multinomial(tensor({0.0, 1.0, 0.0, 2.0, 0.0}).to(device), 2, false, g);
  });
  expect_the_cpus_bits([](Device device, Generator* g) {
    return multinomial(zeros({0, 3}, {kFloat32, device}), 2, true, g);
  });
}

TEST(Random, InvalidProbabilitiesAreReportedAndDeviceStaysUsable) {
  const auto here = [](const Tensor& x) { return x.to(test_device()); };
  const std::string deferred_suffix =
      test_device().is_cpu() ? ""
                             : str("; detected on ", here(zeros({})).device(), ", reported at this synchronization");
  const auto text_of = [&](const Tensor& p) {
    return error_text<ValueError>([&] { bernoulli(here(p)).to_vector<float>(); });
  };
  EXPECT_EQ(text_of(tensor({0.5, 1.5, 1.0})),
            "bernoulli: probability 1.5 at position 1 is outside [0, 1]" + deferred_suffix);
  EXPECT_EQ(text_of(tensor({0.5, 1.0, NAN})),
            "bernoulli: probability nan at position 2 is outside [0, 1]" + deferred_suffix);
  const auto text_with = [&](const Tensor& weights, int64_t samples, bool replacement) {
    return error_text<ValueError>([&] { multinomial(here(weights), samples, replacement).to_vector<int64_t>(); });
  };
  for (bool replacement : {true, false}) {
    for (double value : {-0.5, static_cast<double>(INFINITY), static_cast<double>(NAN)}) {
      const Tensor bad = ones({2, 3});
      bad.select(0, 1).select(0, 2).fill_(value);
      EXPECT_EQ(
          text_with(bad, 1, replacement),
          str("multinomial: row 1 holds ", value, " at position 2, must be finite and not negative", deferred_suffix));
    }
    EXPECT_EQ(text_with(zeros({1, 3}), 1, replacement),
              "multinomial: row 0 holds no positive number" + deferred_suffix);
    EXPECT_EQ(text_with(zeros({1, 0}), 1, replacement),
              "multinomial: row 0 holds no positive number" + deferred_suffix);
  }
  EXPECT_EQ(text_with(tensor({0.0, 1.0, 2.0}), 3, false),
            "multinomial: row 0 holds 2 positive numbers, which are not enough to draw 3 without replacement" +
                deferred_suffix);
  EXPECT_EQ(text_with(tensor({4.0, 1.0, 2.0}), 5, false),
            "multinomial: row 0 holds 3 positive numbers, which are not enough to draw 5 without replacement" +
                deferred_suffix);
  EXPECT_EQ(multinomial(here(tensor({0.0, 1.0})), 2, true).to_vector<int64_t>(), (std::vector<int64_t>{1, 1}));
}

/// rand's float64 value i of a stream.
double uniform(const std::vector<uint32_t>& w, size_t i) {
  return ((w[2 * i] >> 5) * 67108864.0 + (w[2 * i + 1] >> 6)) / 9007199254740992.0;
}

TEST(Multinomial, ReplacementFollowsDocumentedFunctionOfPhiloxWords) {
  const std::vector<double> weights = {0, 1, 0, 2, 0.5, 0, /**/ 3, 0, 0, 0, 0, 0, /**/ 0, 0, 1, 1, 1, 1};
  for (const DType dtype : floating_dtypes()) {
    Stream stream;
    const auto w = words(stream.state, 2 * 3 * 7);
    const Tensor drawn = multinomial(from_vector<double>(weights, {3, 6}, {dtype}), 7, true, &stream.generator);
    ASSERT_EQ(drawn.shape(), (Shape{3, 7}));
    ASSERT_EQ(drawn.dtype(), kInt64);
    for (size_t row = 0; row < 3; ++row) {
      double total = 0;
      for (size_t c = 0; c < 6; ++c) total += weights[row * 6 + c];
      for (size_t s = 0; s < 7; ++s) {
        double sum = 0;
        size_t want = 0;
        while ((sum += weights[row * 6 + want]) <= uniform(w, row * 7 + s) * total) ++want;
        EXPECT_EQ(drawn.data<int64_t>()[row * 7 + s], static_cast<int64_t>(want)) << dtype << " " << row << " " << s;
      }
    }
  }
}

TEST(Multinomial, NoReplacementFollowsDocumentedFunctionOfPhiloxWords) {
  const std::vector<double> weights = {0, 1, 0.25, 2, 0.5, 0, 8, /**/ 3, 1, 1, 0, 1, 1, 1};
  for (int64_t samples : {1, 3, 5}) {
    Stream stream;
    const auto w = words(stream.state, 2 * 2 * 7);
    const Tensor drawn = multinomial(from_vector<double>(weights, {2, 7}), samples, false, &stream.generator);
    for (size_t row = 0; row < 2; ++row) {
      std::vector<std::pair<double, int64_t>> keys;
      for (size_t c = 0; c < 7; ++c) {
        if (weights[row * 7 + c] > 0) {
          keys.emplace_back(-std::log1p(-uniform(w, row * 7 + c)) / weights[row * 7 + c], static_cast<int64_t>(c));
        }
      }
      std::sort(keys.begin(), keys.end());
      for (int64_t s = 0; s < samples; ++s) {
        EXPECT_EQ(drawn.select(0, static_cast<int64_t>(row)).select(0, s).item<int64_t>(),
                  keys[static_cast<size_t>(s)].second);
      }
    }
  }
}

TEST(Multinomial, Float64WeightsOfAnySizeAreDrawnInProportion) {
  for (const bool replacement : {true, false}) {
    const auto drawn = [&](double scale) {
      Stream stream;
      const Tensor weights = (tensor({1.0, 0.0, 1.0, 1.0}, {kFloat64, test_device()}) * scale).expand({100, 4});
      return multinomial(weights, 3, replacement, &stream.generator).to_vector<int64_t>();
    };
    for (const double scale : {0x1p1023, 0x1p-1074}) EXPECT_EQ(drawn(scale), drawn(1)) << replacement;
  }
  const Tensor weights = tensor({1e308, 0.0, 5e-324}, {kFloat64, test_device()});
  EXPECT_EQ(multinomial(weights, 2).to_vector<int64_t>(), (std::vector<int64_t>{0, 2}));
}

TEST(Multinomial, OneDimensionalWeightsAndEmptyBatchesAreAccepted) {
  Stream stream;
  std::vector<int64_t> all = multinomial(full({33}, 0.5), 33, false, &stream.generator).to_vector<int64_t>();
  std::sort(all.begin(), all.end());
  for (int64_t i = 0; i < 33; ++i) EXPECT_EQ(all[static_cast<size_t>(i)], i);
  EXPECT_EQ(multinomial(tensor({0.0, 0.0, 7.0}), 2, true, &stream.generator).to_vector<int64_t>(),
            (std::vector<int64_t>{2, 2}));
  EXPECT_EQ(multinomial(zeros({0, 3}), 2, true).shape(), (Shape{0, 2}));
}

TEST(Multinomial, InvalidArgumentsAreNamedInErrors) {
  const Tensor weights = ones({2, 3});
  EXPECT_ERROR(ValueError, multinomial(weights, 0),
               "multinomial: num_samples is 0, must be at least 1\n  input  cpu  float32 [2, 3]");
  EXPECT_ERROR(ShapeError, multinomial(ones({1, 2, 3}), 1),
               "multinomial: input must be [N, C] or [C]\n  input  cpu  float32 [1, 2, 3]");
  EXPECT_ERROR(DTypeError, multinomial(tensor({1, 2}), 1),
               "multinomial: input must be floating\n  input  cpu  int64 [2]");
  EXPECT_ERROR(StateError, multinomial(Tensor(), 1), "multinomial: input is undefined\n  input  undefined");
}

}}  // namespace tandem::testing
