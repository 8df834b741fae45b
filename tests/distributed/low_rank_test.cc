// PowerSGD's linear algebra, and one step of the hook in which the test replaces the all-reduce. On the CPU, without a
// group.
#include <tandem/distributed/ddp/power_sgd.h>

#include <gtest/gtest.h>

#include <cmath>
#include <cstdint>
#include <functional>
#include <limits>
#include <vector>

#include <tandem/distributed/comm_hooks.h>
#include <tandem/tensor/dtype.h>
#include <tandem/tensor/factories.h>
#include <tandem/tensor/primitives.h>

namespace tandem::distributed { namespace {

/// rows[k][j]
using Rows = std::vector<std::vector<double>>;

Rows rows_of(const Tensor& matrix) {
  const std::vector<double> values = matrix.to_vector<double>();
  const auto cols = static_cast<std::ptrdiff_t>(matrix.size(1));
  Rows rows;
  for (auto at = values.begin(); at != values.end(); at += cols) rows.emplace_back(at, at + cols);
  return rows;
}

double dot(const std::vector<double>& a, const std::vector<double>& b) {
  double sum = 0;
  for (size_t i = 0; i < a.size(); ++i) sum += a[i] * b[i];
  return sum;
}

Tensor matrix_of(const std::vector<double>& values, int64_t rows, DType dtype) {
  return from_vector<double>(values, {rows, static_cast<int64_t>(values.size()) / rows}).to(dtype);
}

/// Small integers.
Tensor integers(int64_t rows, int64_t cols, int64_t seed, DType dtype) {
  std::vector<double> v;
  for (int64_t i = 0; i < rows * cols; ++i) v.push_back(static_cast<double>((i * i + 7 * i + seed) % 11 - 5));
  return matrix_of(v, rows, dtype);
}

/// A hook with one parameter, and the tensors that a step all-reduces.
struct OneMatrix {
  OneMatrix(int64_t rows, int64_t cols, DType dtype, PowerSgdOptions options)
      : hook(power_sgd(options)), gradient(zeros({rows, cols}, {dtype})) {
    const Tensor values = gradient.view({rows * cols});
    bucket = {.values = values, .slices = {{.name = "w", .shape = {rows, cols}, .values = values}}};
    hook->prepare({bucket});
  }
  /// Averages the gradient; `exchange` stands for the all-reduce and may change its tensor.
  void step(const std::function<void(const Tensor& values, int number)>& exchange = [](const Tensor&, int) {}) {
    int number = 0;
    hook->average(
        bucket,
        [&](const Tensor& values, const std::function<void()>& done) {
          exchange(values, number++);
          done();
        },
        [] {});
  }
  Tensor state(const std::string& what) const { return hook->state_dict().get<Tensor>("memory.w." + what); }

  std::shared_ptr<CommHook> hook;
  Tensor gradient;
  GradBucket bucket;
};

PowerSgdOptions of_rank(int64_t rank) {
  return {.rank = static_cast<int>(rank), .start_step = 0, .min_saving = 1, .seed = 5};
}

template <class T>
class LowRankKernels : public ::testing::Test {};
using Types = ::testing::Types<Half, BFloat16, float, double>;
TYPED_TEST_SUITE(LowRankKernels, Types, );

/// P = orthonormal(M Q), Q = M^T P, result = P Q^T, by plain loops in double.
TYPED_TEST(LowRankKernels, ProductsMatchNaiveReference) {
  const DType dtype = dtype_of<TypeParam>();
  for (const int64_t rows : {5, 32}) {
    for (const int64_t cols : {7, 15, 16, 17, 31, 33, 300}) {
      for (const int64_t rank : {1, 2, 3}) {
        if ((rows + cols) * rank > rows * cols) continue;  // not compressed
        OneMatrix one(rows, cols, dtype, of_rank(rank));
        primitives::copy(integers(rows, cols, 1, dtype), one.gradient);
        const Rows m = rows_of(one.gradient);
        const Rows q = rows_of(orthonormalize(one.state("factor")));
        Rows p, next_q;
        std::vector<double> flat;
        for (const auto& column : q) {
          for (const auto& row : m) flat.push_back(dot(row, column));
        }
        p = rows_of(orthonormalize(matrix_of(flat, rank, kFloat64)));
        for (const auto& column : p) {
          next_q.emplace_back(static_cast<size_t>(cols));
          for (size_t j = 0; j < static_cast<size_t>(cols); ++j) {
            for (size_t i = 0; i < static_cast<size_t>(rows); ++i) next_q.back()[j] += m[i][j] * column[i];
          }
        }
        one.step();
        const Rows result = rows_of(one.gradient), error = rows_of(one.state("error"));
        const double tolerance = 100 * static_cast<double>(std::numeric_limits<float>::epsilon());
        // Tensors are rounded to the gradient's dtype before they are sent.
        const double of_type = dtype == kBFloat16 ? 0x1p-4 : dtype == kFloat16 ? 0x1p-7 : tolerance;
        for (size_t i = 0; i < static_cast<size_t>(rows); ++i) {
          for (size_t j = 0; j < static_cast<size_t>(cols); ++j) {
            double want = 0;
            for (size_t k = 0; k < static_cast<size_t>(rank); ++k) want += p[k][i] * next_q[k][j];
            ASSERT_NEAR(result[i][j], want, of_type * 8) << rows << " x " << cols << ", rank " << rank;
            ASSERT_NEAR(error[i][j], m[i][j] - result[i][j], tolerance);
          }
        }
      }
    }
  }
}

TEST(LowRankKernels, RoundingErrorStaysInMatrix) {
  OneMatrix one(6, 6, kBFloat16, of_rank(1));
  for (int step = 0; step < 2; ++step) {
    const Rows before = rows_of(one.state("error"));
    primitives::copy(integers(6, 6, 3 + step, kBFloat16), one.gradient);
    const Rows gradient = rows_of(one.gradient);
    one.step();
    const Rows delivered = rows_of(one.gradient), error = rows_of(one.state("error"));
    for (size_t i = 0; i < 6; ++i) {
      for (size_t j = 0; j < 6; ++j) {
        EXPECT_NEAR(delivered[i][j] + error[i][j], before[i][j] + gradient[i][j],
                    1e-5);  // bfloat16 rounds by up to 1e-2
      }
    }
  }
}

TEST(LowRankKernels, NonFiniteFactorsGiveNanAndZeroMatrix) {
  const double infinity = std::numeric_limits<double>::infinity();
  for (const int bad_exchange : {0, 1}) {
    for (const double bad : {infinity, std::nan("")}) {
      OneMatrix one(6, 8, kFloat32, of_rank(2));
      const Rows start = rows_of(one.state("factor"));
      for (int step = 0; step < 2; ++step) {
        primitives::copy(integers(6, 8, step, kFloat32), one.gradient);
        one.step([&](const Tensor& values, int number) {
          if (step == 1 && number == bad_exchange) primitives::fill(values.slice(0, 1, 2), bad);
        });
        for (const double v : one.gradient.to_vector<double>()) EXPECT_EQ(std::isnan(v), step == 1);
      }
      EXPECT_EQ(one.state("error").to_vector<double>(), std::vector<double>(48, 0));
      EXPECT_EQ(rows_of(one.state("factor")), start);
    }
  }
}

void expect_orthonormal(DType dtype, double tolerance) {
  for (const int64_t n : {4, 31, 1000}) {
    const Tensor rows = integers(4, n, 6, kFloat64);
    std::vector<double> values = rows.to_vector<double>();
    const auto count = static_cast<size_t>(n);
    for (size_t i = 0; i < count; ++i) values[i] *= 1e3;                        // large
    for (size_t i = count; i < 2 * count; ++i) values[i] += values[i - count];  // near
    const Tensor input = matrix_of(values, 4, dtype);
    const Rows columns = rows_of(orthonormalize(input, ones({4, n}, {dtype})));  // no replacement is needed
    for (size_t k = 0; k < 4; ++k) {
      for (size_t l = 0; l <= k; ++l) EXPECT_NEAR(dot(columns[k], columns[l]), k == l ? 1 : 0, tolerance) << n;
    }
    const Rows without = rows_of(orthonormalize(input));
    for (size_t k = 0; k < 4; ++k) {
      for (size_t j = 0; j < count; ++j) EXPECT_NEAR(columns[k][j], without[k][j], tolerance);
    }
    // The first keeps its direction.
    const std::vector<double> first = rows_of(input)[0];
    EXPECT_NEAR(columns[0][0], first[0] / std::sqrt(dot(first, first)), tolerance);
  }
}

TEST(LowRankKernels, OrthonormalizeGivesOrthonormalColumns) {
  expect_orthonormal(kFloat32, 1e-5);
  expect_orthonormal(kFloat64, 1e-12);
}

TEST(LowRankKernels, DependentColumnsAreZeroedOrRedrawn) {
  const Tensor dependent = matrix_of({3, 0, 4, -6, 0, -8, 0, 2, 0, 0, 0, 0}, 4, kFloat32);  // b = -2 a, c, 0
  EXPECT_EQ(orthonormalize(dependent).to_vector<float>(),
            (std::vector<float>{0.6f, 0, 0.8f, 0, 0, 0, 0, 1, 0, 0, 0, 0}));

  // Space has three dimensions: for the fourth column the replacement is no better.
  const Rows columns = rows_of(orthonormalize(dependent, integers(4, 3, 2, kFloat32)));
  for (size_t k = 0; k < 3; ++k) {
    EXPECT_NEAR(dot(columns[k], columns[k]), 1, 1e-6);
    EXPECT_NEAR(dot(columns[k], columns[(k + 1) % 3]), 0, 1e-6);
  }
  EXPECT_EQ(columns[3], (std::vector<double>{0, 0, 0}));
}

TEST(LowRankKernels, StartColumnsDependOnTheSeed) {
  const auto start = [](uint64_t seed) {
    return rows_of(
        OneMatrix(9, 10, kFloat64, {.rank = 2, .start_step = 0, .min_saving = 1, .seed = seed}).state("factor"));
  };
  const Rows columns = start(5);
  EXPECT_EQ(columns, start(5));
  EXPECT_NE(columns, start(6));
  EXPECT_NE(columns[0], columns[1]);
  for (const auto& column : columns) {
    for (const double v : column) EXPECT_LT(std::abs(v), 0.5);
  }
}

}}  // namespace tandem::distributed
