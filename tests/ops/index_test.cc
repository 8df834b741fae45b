#include <tandem/tests/support/op_case.h>
#include <tandem/tests/support/ops.h>

namespace tandem::testing { namespace {

using Values = std::vector<double>;

/// The end of error texts that a device reports at its next synchronization.
std::string deferred_suffix() {
  return test_device().is_cpu() ? ""
                                : str("; detected on ", zeros({}, {kFloat32, test_device()}).device(),
                                      ", reported at this synchronization");
}

using Indices = std::vector<int64_t>;

TEST(Gather, HalfTypeGradientsAreSummedInFloat32) {
  // Added sequentially in float16, 4096 ones would give 2048.
  Tensor x = ones({2}, {kFloat16}).requires_grad_();
  gather(x, 0, zeros({4096}, {kInt64})).backward(ones({4096}, {kFloat16}));
  EXPECT_EQ(x.grad().to_vector<double>(), (Values{4096, 0}));
  Tensor y = ones({2, 1}, {kBFloat16}).requires_grad_();
  index_select(y, 0, zeros({4096}, {kInt64})).backward(ones({4096, 1}, {kBFloat16}));
  EXPECT_EQ(y.grad().to_vector<double>(), (Values{4096, 0}));
}

TEST(TopK, TiesKeepPositionOrderAndNaNIsLargest) {
  const Tensor x = tensor({2.0, NAN, 5.0, 2.0, INFINITY, 5.0, NAN, -INFINITY, 2.0});
  EXPECT_EQ(topk(x, 9).indices.to_vector<int64_t>(), (Indices{1, 6, 4, 2, 5, 0, 3, 8, 7}));
  EXPECT_EQ(topk(x, 9, 0, false).indices.to_vector<int64_t>(), (Indices{7, 0, 3, 8, 2, 5, 4, 1, 6}));
  for (int64_t k = 0; k <= 9; ++k) {  // every k gives a prefix of the same order
    EXPECT_EQ(topk(x, k).indices.to_vector<int64_t>(), topk(x, 9).indices.slice(0, 0, k).to_vector<int64_t>());
  }
  const ValuesIndices of_integers = topk(tensor({3, -1, 7, 7, -9}), 3);
  EXPECT_EQ(of_integers.values.to_vector<int64_t>(), (Indices{7, 7, 3}));
  EXPECT_EQ(of_integers.indices.to_vector<int64_t>(), (Indices{2, 3, 0}));
}

TEST(TopK, GradientFlowsToSelectedElements) {
  Tensor x = tensor({1.0, 5.0, 5.0, 3.0}).requires_grad_();
  const ValuesIndices best = topk(x, 2);
  EXPECT_FALSE(best.indices.requires_grad());
  topk(x, 3).values.backward(tensor({2.0, 3.0, 4.0}));
  EXPECT_EQ(x.grad().to_vector<double>(), (Values{0, 2, 3, 4}));
}

TEST(MaskedFill, OutOfRangeValueIsRejected) {
  const Tensor x = tensor({1, 2}).to(kUInt8), mask = tensor({true, false});
  EXPECT_ERROR(ValueError, masked_fill(x, mask, -1),
               "masked_fill: value -1 does not fit in uint8 (0 to 255); choose another dtype");
  EXPECT_EQ(masked_fill(x, mask, 255).to_vector<int64_t>(), (std::vector<int64_t>{255, 2}));
}

TEST(Tril, ExtremeDiagonalsAndOtherDTypes) {
  EXPECT_EQ(tril(ones({2, 2}, {kBool})).to_vector<int64_t>(), (Indices{1, 0, 1, 1}));
  EXPECT_EQ(tril(ones({2, 2}, {kInt32}), INT64_MIN).to_vector<int64_t>(), (Indices{0, 0, 0, 0}));
  EXPECT_EQ(tril(ones({2, 2}, {kInt32}), INT64_MAX).to_vector<int64_t>(), (Indices{1, 1, 1, 1}));
}

/// Verifies that f gives the same bits on test_device() and on the CPU.
void expect_the_cpus_bits(const std::function<Tensor(Device)>& f) {
  const Tensor actual = f(test_device()).cpu(), expected = f(Device());
  ASSERT_EQ(actual.shape(), expected.shape());
  ASSERT_EQ(actual.dtype(), expected.dtype());
  EXPECT_TRUE(primitives::bytes_equal(actual, expected));
}

/// Random indices below `size`, some of them frequent.
Tensor indices(const Shape& shape, int64_t size, Device device) {
  Dense values = random_dense(shape, 5, 0, 1);
  for (double& value : values.values) value = std::floor(value * value * static_cast<double>(size));
  return make_tensor(values, kInt64).to(device);
}

TEST(Gather, GradientIsBitwiseEqualToCpu) {
  struct Case {
    Shape input, index;
    int64_t dim;
  };
  for (const Case& c : {Case{{50}, {1023}, 0}, Case{{300}, {1024}, 0}, Case{{70}, {1025}, 0}, Case{{1000}, {33000}, 0},
                        Case{{7, 3}, {129, 3}, 0}, Case{{7, 3}, {128, 3}, 0}, Case{{3, 5, 2}, {3, 200, 2}, 1},
                        Case{{1030, 9}, {1025, 2}, 1}, Case{{1}, {300}, 0}}) {
    for (DType dtype : floating_dtypes()) {
      SCOPED_TRACE(str(c.input, " ", c.index, " ", dtype));
      expect_the_cpus_bits([&](Device device) {
        Tensor x = random_tensor(c.input, 1, dtype).to(device).requires_grad_();
        const Tensor y = gather(x, c.dim, indices(c.index, c.input[static_cast<size_t>(c.dim)], device));
        y.backward(random_tensor(c.index, 2, dtype).to(device));
        return x.grad();
      });
    }
  }
}

TEST(IndexSelect, GradientIsBitwiseEqualToCpu) {
  struct Case {
    Shape input;
    int64_t dim, n;
  };
  for (const Case& c : {Case{{50}, 0, 1023}, Case{{300, 3}, 0, 2049}, Case{{5, 70, 2}, 1, 1025},
                        Case{{3, 1000}, 1, 33000}, Case{{1, 33}, 0, 300}, Case{{300}, 0, 0}}) {
    for (DType dtype : floating_dtypes()) {
      SCOPED_TRACE(str(c.input, " ", c.n, " ", dtype));
      expect_the_cpus_bits([&](Device device) {
        Tensor x = random_tensor(c.input, 1, dtype).to(device).requires_grad_();
        const Tensor y = index_select(x, c.dim, indices({c.n}, c.input[static_cast<size_t>(c.dim)], device));
        y.backward(random_tensor(y.shape(), 2, dtype).to(device));
        return x.grad();
      });
    }
  }
}

TEST(IndexSelect, RowsOfAnyWidthAndAlignmentMatchCpu) {
  for (DType dtype : {kBool, kInt8, kInt16, kFloat16, kInt32, kFloat64}) {
    for (int64_t width : {1, 2, 3, 4, 8, 16, 33}) {
      for (int64_t skipped : {0, 1}) {  // first element of the rows in memory
        SCOPED_TRACE(str(dtype, " ", width, " ", skipped));
        expect_the_cpus_bits([&](Device device) {
          const Tensor memory = random_tensor({7 * width + 1}, 1, kFloat64, 0, 2).to(dtype).to(device);
          return index_select(memory.slice(0, skipped, skipped + 7 * width).view({7, width}), 0,
                              indices({40}, 7, device));
        });
      }
    }
  }
}

TEST(TopK, AllDTypesAndSizesMatchCpuOrder) {
  struct Case {
    Shape shape;
    int64_t k;
  };
  for (const Case& c : {Case{{1, 1}, 1}, Case{{2, 256}, 7}, Case{{2, 257}, 257}, Case{{1, 1023}, 1},
                        Case{{2, 1025}, 1024}, Case{{1, 1300}, 1025}, Case{{1, 33000}, 50}}) {
    for (DType dtype : {kBool, kUInt8, kInt8, kInt16, kInt32, kInt64, kFloat16, kBFloat16, kFloat32, kFloat64}) {
      for (bool largest : {true, false}) {
        SCOPED_TRACE(str(c.shape, " ", c.k, " ", dtype, " ", largest));
        // A wide range of values for few equal elements, a narrow range for many.
        for (double width : {size_of(dtype) == 1 ? 120.0 : 30000.0, 3.0}) {
          const Tensor x = random_tensor(c.shape, 1, kFloat64, dtype == kUInt8 ? 0 : -width, width).to(dtype);
          expect_the_cpus_bits([&](Device device) { return topk(x.to(device), c.k, 1, largest).indices; });
          expect_the_cpus_bits([&](Device device) { return topk(x.to(device), c.k, 1, largest).values; });
        }
      }
    }
  }
}

TEST(TopK, SpecialNumbersAreOrderedOnTheDevice) {
  const double infinity = std::numeric_limits<double>::infinity();
  for (DType dtype : floating_dtypes()) {
    const Tensor x =
        tensor({0.0, -0.0, NAN, -infinity, 1.0, -NAN, infinity, -0.0, 0.0, -1.0}).to(dtype).to(test_device());
    EXPECT_EQ(topk(x, 10).indices.to_vector<int64_t>(), (Indices{2, 5, 6, 4, 0, 1, 7, 8, 9, 3})) << dtype;
    EXPECT_EQ(topk(x, 10, 0, false).indices.to_vector<int64_t>(), (Indices{3, 9, 0, 1, 7, 8, 4, 6, 2, 5})) << dtype;
  }
  const int64_t low = std::numeric_limits<int64_t>::min(), high = std::numeric_limits<int64_t>::max();
  const Tensor ends = tensor({int64_t{-1}, high, low, int64_t{0}, high, int64_t{1}}).to(test_device());
  EXPECT_EQ(topk(ends, 6).indices.to_vector<int64_t>(), (Indices{1, 4, 5, 3, 0, 2}));
}

TEST(Index, IntegerDTypesMatchCpuOnTheDevice) {
  for (DType dtype : {kBool, kUInt8, kInt8, kInt16, kInt32, kInt64}) {
    SCOPED_TRACE(to_string(dtype));
    expect_the_cpus_bits([&](Device device) {
      return gather(random_tensor({7, 3}, 1, kFloat64, 0, 2).to(dtype).to(device), 0, indices({9, 3}, 7, device));
    });
    expect_the_cpus_bits([&](Device device) {
      return tril(random_tensor({2, 5, 33}, 1, kFloat64, 1, 99).to(dtype).to(device), 3);
    });
  }
  expect_the_cpus_bits([](Device device) { return one_hot(indices({1025}, 33, device), 33); });
}

TEST(Index, BadIndexIsReportedAndDeviceStaysUsable) {
  const auto here = [](const Tensor& x) { return x.to(test_device()); };
  const Tensor x = here(random_tensor({5}, 1)), bad = here(tensor({1, 0, 5, 2})), negative = here(tensor({-1}));
  const Tensor good = here(tensor({1, 0, 4, 2})), nothing = here(zeros({0}));
  EXPECT_ERROR(IndexError, gather(x, 0, bad).to_vector<float>(),
               "gather: index 5 at position 2 is outside [0, 5)" + deferred_suffix());
  EXPECT_ERROR(IndexError, index_select(x, 0, negative).to_vector<float>(),
               "index_select: index -1 at position 0 is outside [0, 5)" + deferred_suffix());
  EXPECT_ERROR(IndexError, one_hot(bad, 3).to_vector<int64_t>(),
               "one_hot: label 5 at position 2 is outside [0, 3)" + deferred_suffix());
  EXPECT_ERROR(IndexError, gather(nothing, 0, here(tensor({0}))).to_vector<float>(),
               "gather: index 0 at position 0 is outside [0, 0)");
  EXPECT_ERROR(IndexError, index_select(nothing, 0, here(tensor({3}))).to_vector<float>(),
               "index_select: index 3 at position 0 is outside [0, 0)");
  const std::vector<float> values = x.to_vector<float>();
  EXPECT_EQ(gather(x, 0, good).to_vector<float>(), (std::vector<float>{values[1], values[0], values[4], values[2]}));
}

TEST(Index, BackwardWithOutOfRangeIndexIsReported) {
  for (int64_t n : {3, 300}) {  // without and with sorting of the indices
    const auto backward_of = [&](bool select) {
      return error_text<IndexError>([&] {
        Tensor x = zeros({5}, {kFloat32, test_device()}).requires_grad_();
        Dense values = dense_zeros({n});
        values[1] = 1 << 20;
        const Tensor index = make_tensor(values, kInt64).to(test_device());
        (select ? index_select(x, 0, index) : gather(x, 0, index)).backward(ones({n}, {kFloat32, test_device()}));
        x.grad().to_vector<float>();
      });
    };
    EXPECT_EQ(backward_of(false), "gather: index 1048576 at position 1 is outside [0, 5)" + deferred_suffix());
    EXPECT_EQ(backward_of(true), "index_select: index 1048576 at position 1 is outside [0, 5)" + deferred_suffix());
  }
}

TEST(Index, EmptyResultsOfLongShapesReturnAtOnce) {
  const int64_t kLong = int64_t{1} << 40;
  const Tensor x = empty({kLong, 0}), index = empty({kLong, 0}, {kInt64});
  EXPECT_EQ(gather(x, 0, index).shape(), (Shape{kLong, 0}));
  EXPECT_EQ(scatter_add(x, 0, index, x).shape(), (Shape{kLong, 0}));
  EXPECT_EQ(index_select(x, 1, empty({0}, {kInt64})).shape(), (Shape{kLong, 0}));
  EXPECT_EQ(index_add(x, 1, empty({0}, {kInt64}), x).shape(), (Shape{kLong, 0}));
}

TEST(Index, InvalidArgumentsAreNamedInErrors) {
  const Tensor x = zeros({2, 3});
  EXPECT_ERROR(IndexError, gather(x, 1, tensor({0, 2, 1, 3, -1, 0}).view({2, 3})),
               "gather: index 3 at position [1, 0] is outside [0, 3)");
  EXPECT_ERROR(DTypeError, gather(x, 1, zeros({2, 3}, {kUInt8})),
               "gather: index must be int32 or int64\n"
               "  input  cpu  float32 [2, 3]\n"
               "  index  cpu  uint8   [2, 3]");
  EXPECT_ERROR(
      ShapeError, gather(x, 1, zeros({3, 3}, {kInt64})),
      "gather: index must have as many dimensions as input, and no size larger than input's except in dimension 1\n"
      "  input  cpu  float32 [2, 3]\n"
      "  index  cpu  int64   [3, 3]");
  EXPECT_ERROR(IndexError, gather(x, 2, zeros({2, 3}, {kInt64})),
               "gather: dimension 2 is out of range [-2, 2) of a tensor with 2 dimensions");
  EXPECT_ERROR(IndexError, index_select(x, 0, tensor({1, 0, -2, 5})),
               "index_select: index -2 at position 2 is outside [0, 2)");
  EXPECT_ERROR(ShapeError, index_select(x, 0, zeros({1, 1}, {kInt64})),
               "index_select: index must have one dimension\n"
               "  input  cpu  float32 [2, 3]\n"
               "  index  cpu  int64   [1, 1]");
  EXPECT_ERROR(DTypeError, index_select(x, 0, tensor({1.0})),
               "index_select: index must be int32 or int64\n"
               "  input  cpu  float32 [2, 3]\n"
               "  index  cpu  float32 [1]");
  EXPECT_ERROR(IndexError, index_select(zeros({}), 0, tensor({0})),
               "index_select: input has no dimensions\n"
               "  input  cpu  float32 []\n"
               "  index  cpu  int64   [1]");
  EXPECT_ERROR(IndexError, one_hot(tensor({0, 4, 3}), 4), "one_hot: label 4 at position 1 is outside [0, 4)");
  EXPECT_ERROR(DTypeError, one_hot(tensor({0.0}), 4), "one_hot: labels must be int64\n  labels  cpu  float32 [1]");
  EXPECT_ERROR(ValueError, one_hot(tensor({0}), 0),
               "one_hot: num_classes is 0, must be at least 1\n  labels  cpu  int64 [1]");
  EXPECT_ERROR(ValueError, topk(x, 4),
               "topk: k is 4, must be in [0, 3], the size of dimension 1\n  input  cpu  float32 [2, 3]");
  EXPECT_ERROR(DTypeError, masked_fill(x, zeros({3}), 1),
               "masked_fill: mask must be bool\n"
               "  input  cpu  float32 [2, 3]\n"
               "  mask   cpu  float32 [3]");
  EXPECT_ERROR(ShapeError, masked_fill(x, zeros({2}, {kBool}), 1),
               "masked_fill: shapes do not broadcast\n"
               "  input  cpu  float32 [2, 3]\n"
               "  mask   cpu  bool    [2]");
  EXPECT_ERROR(DTypeError, masked_fill(tensor({1}), tensor({true}), 0.5),
               "masked_fill: the value is a floating number, which input cannot represent\n"
               "  input  cpu  int64 [1]\n"
               "  mask   cpu  bool  [1]");
  EXPECT_ERROR(ShapeError, tril(zeros({3})),
               "tril: input must have at least two dimensions\n  input  cpu  float32 [3]");
}

}}  // namespace tandem::testing
