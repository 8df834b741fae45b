#include <tandem/distributed/low_rank.h>

#include <gtest/gtest.h>

#include <cmath>
#include <cstdint>
#include <vector>

#include <tandem/tensor/dtype.h>

namespace tandem::distributed {
namespace {

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
        add_and_project<T, A>(gradient.data(), m.data(), rows, cols, q.data(), rank, p.data());
        project_transposed<A>(m.data(), rows, cols, p.data(), rank, back.data());
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
        subtract_product<T, A>(rest.data(), rows, cols, integers<A>(rank * rows, 4).data(), q.data(), rank,
                               result.data());
        const auto small = integers<A>(rank * rows, 4);
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
  BFloat16 result{};
  subtract_product<BFloat16, float>(m.data(), 1, 1, &p, &q, 1, &result);
  EXPECT_EQ(static_cast<float>(result), 1.0f);
  EXPECT_EQ(m[0], 0x1p-10f);
}

template <class A>
void expect_orthonormal(double tolerance) {
  for (const int64_t n : {4, 31, 1000}) {
    std::vector<A> columns = integers<A>(4 * n, 6);
    for (int64_t i = 0; i < n; ++i) columns[static_cast<size_t>(i)] *= A(1e3);  // large
    for (int64_t i = n; i < 2 * n; ++i) columns[static_cast<size_t>(i)] += columns[static_cast<size_t>(i - n)];  // near
    const std::vector<A> first(columns.begin(), columns.begin() + n);
    orthonormalize<A>(columns.data(), n, 4, [](int64_t) {
      ADD_FAILURE();
      return false;
    });
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
  std::vector<int64_t> asked;
  orthonormalize<float>(columns.data(), 3, 4, [&](int64_t k) {
    asked.push_back(k);
    return false;
  });
  EXPECT_EQ(asked, (std::vector<int64_t>{1, 3}));
  EXPECT_EQ(columns, (std::vector<float>{0.6f, 0, 0.8f, 0, 0, 0, 0, 1, 0, 0, 0, 0}));

  columns = dependent;
  orthonormalize<float>(columns.data(), 3, 2, [&](int64_t k) {
    const float other[] = {0, 5, 0};
    std::copy(other, other + 3, columns.begin() + 3 * k);
    return true;
  });
  EXPECT_EQ((std::vector<float>(columns.begin(), columns.begin() + 6)), (std::vector<float>{0.6f, 0, 0.8f, 0, 1, 0}));

  columns = dependent;
  orthonormalize<float>(columns.data(), 3, 2, [&](int64_t k) {  // no better than the one before
    std::copy(dependent.begin(), dependent.begin() + 3, columns.begin() + 3 * k);
    return true;
  });
  EXPECT_EQ((std::vector<float>(columns.begin(), columns.begin() + 6)), (std::vector<float>{0.6f, 0, 0.8f, 0, 0, 0}));
}

}  // namespace
}  // namespace tandem::distributed
