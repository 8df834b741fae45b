// Values in closed form for tests of collectives: what each rank puts in, and what comes out.
#pragma once

#include <algorithm>
#include <cstdint>
#include <type_traits>
#include <vector>

#include <tandem/base/half.h>
#include <tandem/distributed/process_group.h>
#include <tandem/tensor/factories.h>
#include <tandem/tensor/primitives.h>
#include <tandem/tensor/tensor.h>
#include <tandem/tests/support/sanitizers.h>

namespace tandem { inline namespace v0 { namespace distributed {

inline constexpr DType kDTypes[] = {kBool,  kUInt8,   kInt8,     kInt16,   kInt32,
                                    kInt64, kFloat16, kBFloat16, kFloat32, kFloat64};
inline constexpr ReduceOp kReduceOps[] = {ReduceOp::kSum, ReduceOp::kAvg,    ReduceOp::kProduct, ReduceOp::kMin,
                                          ReduceOp::kMax, ReduceOp::kBitAnd, ReduceOp::kBitOr,   ReduceOp::kBitXor};

inline bool is_allowed(ReduceOp op, DType dtype) {
  return is_floating_point(dtype) ? op < ReduceOp::kBitAnd : op != ReduceOp::kAvg;
}

/// Whether a test covers all operators and sizes for a dtype. Under ThreadSanitizer only one integer and one half type:
/// the other dtypes take the same paths.
inline bool is_walked_whole(DType dtype) { return !testing::kThreadSanitizer || dtype == kInt32 || dtype == kBFloat16; }

/// The operators that a test covers for a dtype.
inline std::vector<ReduceOp> reduce_ops_of(DType dtype) {
  if (!is_walked_whole(dtype)) return {ReduceOp::kSum};
  std::vector<ReduceOp> ops;
  for (const ReduceOp op : kReduceOps) {
    if (is_allowed(op, dtype)) ops.push_back(op);
  }
  return ops;
}

/// value() repeats after this many elements. The period of wide integers is long, so that a misplaced element is
/// detected at any offset.
inline constexpr int64_t kPeriod = 2 * 3 * 19;
inline constexpr int64_t kLongPeriod = 2 * 3 * 683;
inline int64_t period_of(DType dtype) { return dtype == kInt32 || dtype == kInt64 ? kLongPeriod : kPeriod; }

/// Element i of the input of rank r. Values are small: every dtype represents the result of up to seven ranks exactly,
/// or rounded once.
inline double value(int rank, int64_t i, ReduceOp op, DType dtype) {
  if (dtype == kBool) return (i + rank) % 3 == 0;
  if (op == ReduceOp::kProduct) return static_cast<double>(1 + (i + rank) % 2);  // at most 2^7
  if (period_of(dtype) == kLongPeriod) return static_cast<double>(i % kLongPeriod * 7 + rank * 1000003);
  const auto number = static_cast<double>((i * 7 + rank * 5) % 19);
  return is_floating_point(dtype) ? (number - 6) * 0.375 : number;
}

/// a op b, without rounding; for kAvg the sum.
inline double combined(double a, double b, ReduceOp op) {
  const auto x = static_cast<int64_t>(a);
  const auto y = static_cast<int64_t>(b);
  switch (op) {
    case ReduceOp::kSum:
    case ReduceOp::kAvg: return a + b;
    case ReduceOp::kProduct: return a * b;
    case ReduceOp::kMin: return std::min(a, b);
    case ReduceOp::kMax: return std::max(a, b);
    case ReduceOp::kBitAnd: return static_cast<double>(x & y);
    case ReduceOp::kBitOr: return static_cast<double>(x | y);
    case ReduceOp::kBitXor: break;
  }
  return static_cast<double>(x ^ y);
}

/// `v` rounded to the dtype.
inline double stored(double v, DType dtype) {
  if (dtype == kBool) return v != 0;
  if (dtype == kFloat16) return Half(static_cast<float>(v));
  if (dtype == kBFloat16) return BFloat16(static_cast<float>(v));
  if (dtype == kFloat32) return static_cast<float>(v);
  return v;
}

template <class T>
T as(double v) {
  if constexpr (kIsHalf<T>) {
    return T(static_cast<float>(v));
  } else {
    return static_cast<T>(v);
  }
}

/// The reduction of of_rank(0), of_rank(1), ..., rounded to the dtype.
template <class OfRank>
double reduced(int world, ReduceOp op, DType dtype, const OfRank& of_rank) {
  double result = of_rank(0);
  for (int rank = 1; rank < world; ++rank) result = combined(result, of_rank(rank), op);
  return stored(op == ReduceOp::kAvg ? result / world : result, dtype);
}

inline double expected(int world, int64_t i, ReduceOp op, DType dtype) {
  return reduced(world, op, dtype, [&](int rank) { return value(rank, i, op, dtype); });
}

inline Tensor make(const std::vector<double>& values, DType dtype, const Shape& shape) {
  Tensor out = empty(shape, {dtype});
  primitives::copy(from_vector<double>(values, shape), out);
  return out;
}

inline Tensor input_of(int rank, int64_t n, ReduceOp op, DType dtype) {
  std::vector<double> values(static_cast<size_t>(n));
  for (int64_t i = 0; i < n; ++i) values[static_cast<size_t>(i)] = value(rank, i, op, dtype);
  return make(values, dtype, {n});
}

/// Number of elements i that differ from want(i).
template <class Want>
int count_wrong(const Tensor& tensor, const Want& want) {
  const std::vector<double> got = tensor.to_vector<double>();
  int wrong = 0;
  for (size_t i = 0; i < got.size(); ++i) wrong += got[i] == want(static_cast<int64_t>(i)) ? 0 : 1;
  return wrong;
}

}}}  // namespace tandem::v0::distributed
