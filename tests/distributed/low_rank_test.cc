// PowerSGD's kernels of the CPU; those of GPUs are compared with them in gpu_power_sgd_test.cc.
#include <tandem/distributed/ddp/low_rank_kernels.h>

#include <gtest/gtest.h>

#include <cmath>
#include <cstdint>
#include <limits>
#include <vector>

#include <tandem/tensor/dtype.h>

namespace tandem::distributed { namespace {

const KernelContext kCpu = {};
constexpr int64_t kSizes[] = {1, 3, 7, 15, 16, 17, 31, 33, 300};

/// Small integers, so that float sums are exact in any order.
template <class A>
std::vector<A> integers(int64_t n, int64_t seed) {
  std::vector<A> v;
  for (int64_t i = 0; i < n; ++i) v.push_back(static_cast<A>((i * i + 7 * i + seed) % 11 - 5));
  return v;
}

template <class T>
class LowRank : public ::testing::Test {};
using Types = ::testing::Types<Half, BFloat16, float, double>;
TYPED_TEST_SUITE(LowRank, Types, );

TYPED_TEST(LowRank, ProductsEqualTheDefinition) {
  using T = TypeParam;
  using A = Accumulator<T>;
  for (const int64_t rows : {1, 5, 32}) {
    for (const int64_t cols : kSizes) {
      for (const int64_t rank : {1, 2, 5}) {
        const auto gradient = integers<T>(rows * cols, 1);
        const auto before = integers<A>(rows * cols, 2);
        const auto q = integers<A>(rank * cols, 3);
        auto m = before;
        std::vector<A> p(static_cast<size_t>(rank * rows), A(99)), back(static_cast<size_t>(rank * cols), A(99));
        const LowRankShape shape = {rows, cols, rank};
        cpu::add_and_project(kCpu, dtype_of<T>(), shape, gradient.data(), m.data(), q.data(), p.data());
        cpu::project_transposed(kCpu, dtype_of<T>(), shape, m.data(), p.data(), back.data());
        const auto at = [](const auto& v, int64_t i, int64_t n, int64_t j) {
          return static_cast<double>(v[static_cast<size_t>(i * n + j)]);
        };
        for (int64_t i = 0; i < rows; ++i) {
          for (int64_t j = 0; j < cols; ++j) {
            ASSERT_EQ(at(m, i, cols, j), at(before, i, cols, j) + at(gradient, i, cols, j));
          }
        }
        for (int64_t k = 0; k < rank; ++k) {
          for (int64_t i = 0; i < rows; ++i) {
            double sum = 0;
            for (int64_t j = 0; j < cols; ++j) sum += at(m, i, cols, j) * at(q, k, cols, j);
            ASSERT_EQ(at(p, k, rows, i), sum);
          }
          for (int64_t j = 0; j < cols; ++j) {
            double sum = 0;
            for (int64_t i = 0; i < rows; ++i) sum += at(m, i, cols, j) * at(p, k, rows, i);
            ASSERT_EQ(at(back, k, cols, j), sum);
          }
        }
        auto rest = m;
        std::vector<T> result(static_cast<size_t>(rows * cols));
        const auto small = integers<A>(rank * rows, 4);
        int32_t finite = 7;
        cpu::all_finite(kCpu, dtype_of<T>(), shape, small.data(), q.data(), &finite);
        ASSERT_EQ(finite, 1);
        cpu::subtract_product(kCpu, dtype_of<T>(), shape, small.data(), q.data(), &finite, rest.data(), result.data());
        for (int64_t i = 0; i < rows; ++i) {
          for (int64_t j = 0; j < cols; ++j) {
            double sum = 0;
            for (int64_t k = 0; k < rank; ++k) sum += at(small, k, rows, i) * at(q, k, cols, j);
            ASSERT_EQ(at(result, i, cols, j), sum);  // below 256: exact in half types too
            ASSERT_EQ(at(rest, i, cols, j), at(m, i, cols, j) - sum);
          }
        }
      }
    }
  }
}

TEST(LowRank, WhatIsRoundedAwayStaysInTheMatrix) {
  std::vector<float> m = {1.0f + 0x1p-10f};
  const float p = 1.0f + 0x1p-10f, q = 1;
  const int32_t finite = 1;
  BFloat16 result{};
  cpu::subtract_product(kCpu, kBFloat16, {1, 1, 1}, &p, &q, &finite, m.data(), &result);
  EXPECT_EQ(static_cast<float>(result), 1.0f);
  EXPECT_EQ(m[0], 0x1p-10f);
}

TEST(LowRank, FactorsThatAreNotFiniteGiveNanAndLeaveNothing) {
  const float infinity = std::numeric_limits<float>::infinity();
  for (const bool in_p : {false, true}) {
    std::vector<float> m = {1, 2, 3, 4}, p = {1, in_p ? infinity : 2}, q = {in_p ? 1 : std::nanf(""), 2}, result(4);
    int32_t finite = 7;
    cpu::all_finite(kCpu, kFloat32, {2, 2, 1}, p.data(), q.data(), &finite);
    EXPECT_EQ(finite, 0);
    cpu::subtract_product(kCpu, kFloat32, {2, 2, 1}, p.data(), q.data(), &finite, m.data(), result.data());
    EXPECT_EQ(m, (std::vector<float>(4, 0)));
    for (const float v : result) EXPECT_TRUE(std::isnan(v));
    const std::vector<float> before = p;
    cpu::orthonormalize(kCpu, kFloat32, 2, 1, {}, p.data());
    EXPECT_EQ(p == before, in_p);
  }
}

/// Columns that were drawn from this stream.
struct Drawn {
  int64_t draws = 3;
  ColumnStream stream() { return {{42, 7, 0, 0}, &draws}; }
};

template <class A>
void expect_orthonormal(double tolerance) {
  for (const int64_t n : {4, 31, 1000}) {
    std::vector<A> columns = integers<A>(4 * n, 6);
    for (int64_t i = 0; i < n; ++i) columns[static_cast<size_t>(i)] *= A(1e3);  // large
    for (int64_t i = n; i < 2 * n; ++i) columns[static_cast<size_t>(i)] += columns[static_cast<size_t>(i - n)];  // near
    const std::vector<A> first(columns.begin(), columns.begin() + n);
    Drawn drawn;
    cpu::orthonormalize(kCpu, dtype_of<A>(), n, 4, drawn.stream(), columns.data());
    EXPECT_EQ(drawn.draws, 3);  // none was needed
    for (int64_t k = 0; k < 4; ++k) {
      for (int64_t l = 0; l <= k; ++l) {
        double sum = 0;
        for (int64_t i = 0; i < n; ++i) {
          sum += static_cast<double>(columns[static_cast<size_t>(k * n + i)]) * columns[static_cast<size_t>(l * n + i)];
        }
        EXPECT_NEAR(sum, k == l ? 1 : 0, tolerance) << n << ": " << k << " " << l;
      }
    }
    // The first keeps its direction.
    double norm = 0;
    for (const A v : first) norm += static_cast<double>(v) * v;
    EXPECT_NEAR(columns[0], first[0] / std::sqrt(norm), tolerance);
  }
}

TEST(LowRank, ColumnsBecomeOrthonormal) {
  expect_orthonormal<float>(1e-5);
  expect_orthonormal<double>(1e-12);
}

TEST(LowRank, DependentColumnsBecomeZeroOrAnotherOne) {
  const std::vector<float> dependent = {3, 0, 4, -6, 0, -8, 0, 2, 0, 0, 0, 0};  // b = -2 a, c, 0
  std::vector<float> columns = dependent;
  cpu::orthonormalize(kCpu, kFloat32, 3, 4, {}, columns.data());
  EXPECT_EQ(columns, (std::vector<float>{0.6f, 0, 0.8f, 0, 0, 0, 0, 1, 0, 0, 0, 0}));

  // Space has three dimensions: for the fourth column the one that is drawn is no better.
  columns = dependent;
  Drawn drawn;
  cpu::orthonormalize(kCpu, kFloat32, 3, 4, drawn.stream(), columns.data());
  EXPECT_EQ(drawn.draws, 5);
  for (int64_t k = 0; k < 3; ++k) {
    double norm = 0, along = 0;
    for (int64_t j = 0; j < 3; ++j) {
      const double v = columns[static_cast<size_t>(3 * k + j)];
      norm += v * v;
      along += v * columns[static_cast<size_t>((3 * k + 3) % 9 + j)];
    }
    EXPECT_NEAR(norm, 1, 1e-6);
    EXPECT_NEAR(along, 0, 1e-6);
  }
  EXPECT_EQ((std::vector<float>(columns.begin() + 9, columns.end())), (std::vector<float>{0, 0, 0}));
}

TEST(LowRank, DrawnColumnsGoOnFromTheCount) {
  Drawn drawn;
  std::vector<double> columns(10), next(5);
  const int32_t yes = 0, no = 1;
  cpu::draw_columns(kCpu, kFloat64, 5, 2, drawn.stream(), &no, columns.data());
  EXPECT_EQ(columns, std::vector<double>(10));
  EXPECT_EQ(drawn.draws, 3);
  cpu::draw_columns(kCpu, kFloat64, 5, 2, drawn.stream(), &yes, columns.data());
  EXPECT_EQ(drawn.draws, 5);
  drawn.draws = 4;
  cpu::draw_columns(kCpu, kFloat64, 5, 1, drawn.stream(), nullptr, next.data());
  EXPECT_EQ((std::vector<double>(columns.begin() + 5, columns.end())), next);
  EXPECT_NE(columns[0], columns[5]);
  for (const double v : columns) EXPECT_LT(std::abs(v), 0.5);
}

}}  // namespace tandem::distributed
