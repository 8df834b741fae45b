// One description of an operation, from which all its tests follow.
#pragma once

#include <functional>
#include <optional>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include <tandem/tensor/tensor.h>
#include <tandem/tests/support/error_text.h>

namespace tandem::testing {

/// The device that the checks of an OpCase make its inputs on: cpu, or what TANDEM_TEST_DEVICE says.
Device test_device();

/// Row-major values in float64: what naive references compute on.
struct Dense {
  Shape shape;
  std::vector<double> values;

  double& operator[](int64_t i) { return values[static_cast<size_t>(i)]; }
  double operator[](int64_t i) const { return values[static_cast<size_t>(i)]; }
  int64_t num_elements() const { return static_cast<int64_t>(values.size()); }
};

/// All zeros.
Dense dense_zeros(const Shape& shape);
/// The values of a tensor.
Dense dense(const Tensor& tensor);
/// f(a[i], b[i], ...) with the inputs broadcast to `shape`, element by element.
Dense dense_map(const Shape& shape, const std::vector<Dense>& inputs,
                const std::function<double(const std::vector<double>&)>& f);

/// float64, float32, float16, bfloat16.
std::vector<DType> floating_dtypes();

/// A tensor argument of an operation.
struct Input {
  const char* name;  ///< what the operation calls it in error texts
  Shape shape;
  double low = -2;  ///< values are uniform in [low, high), rounded down for integers and bool
  double high = 2;
  std::optional<DType> dtype = {};  ///< fixed, such as int64 for labels; else the case's floating dtype
  bool differentiable = true;       ///< of a floating input
  bool optional = false;            ///< whether it may be undefined
};

/// An operation, what it is run on, and what it should give.
///
/// Choose sizes that are awkward (0, 1, 3, 7, 31, 32, 33) and attributes that are not the defaults; both live in `run`.
struct OpCase {
  std::string name;  ///< how its error texts begin
  std::vector<Input> inputs;
  std::function<Tensor(const std::vector<Tensor>&)> run;
  std::function<Dense(const std::vector<Dense>&)> reference;
  double tolerance = 4;  ///< c in |actual - expected| <= c eps(dtype) sqrt(terms) (1 + |expected|)
  double terms = 1;      ///< numbers summed for one result
  std::vector<DType> dtypes = floating_dtypes();  ///< that the operation accepts
  std::optional<DType> result_dtype = {};         ///< where it is not the inputs' dtype
  bool has_gradient = true;                       ///< of the first order
  bool has_second_gradient = true;
  bool names_operands = true;  ///< whether device errors list `inputs` in order
};

/// Everything below, on one case.
void check(const OpCase& op);

/// Values in each dtype, with inputs contiguous, transposed, sliced, expanded and mixed, against the reference; the
/// inputs and the memory around them stay as they were.
void check_values(const OpCase& op);
/// gradcheck and gradgradcheck in float64; then each other dtype's gradients, for random cotangents and each layout,
/// against those of the float64 operation on the same (rounded) inputs.
void check_gradients(const OpCase& op);
/// 1 and 2 threads give the same bits, in the result and the gradients.
void check_threads(const OpCase& op);
/// Undefined operands and operands on another device are refused with the full text.
void check_errors(const OpCase& op);

/// Whether all elements lie within `tolerance` (1 + |expected|) of the expected ones; shapes must agree.  NaN is close
/// to nothing; infinities are close to themselves.
::testing::AssertionResult close(const Tensor& actual, const Dense& expected, double tolerance);

/// The whole text of the DeviceError of `op` whose operands have these names: those that are not where most are (of equally
/// many, where the first is) are marked.
std::string different_devices_text(const std::string& op, const std::vector<std::string>& names,
                                   const std::vector<Tensor>& operands);

/// Distance from 1 to the next number of a floating dtype.
double epsilon(DType dtype);

/// How a test input lies in memory.
enum class Layout { kContiguous, kTransposed, kSliced, kExpanded };
constexpr Layout kLayouts[] = {Layout::kContiguous, Layout::kTransposed, Layout::kSliced, Layout::kExpanded};

/// `values` as a tensor of that layout, the gaps filled with NaN (integers: 77).  kExpanded repeats index 0 of the
/// first dimension.
Tensor make_tensor(const Dense& values, DType dtype, Layout layout = Layout::kContiguous, Device device = {});
/// Values uniform in [low, high), a function of the seed.
Dense random_dense(const Shape& shape, uint64_t seed, double low = -2, double high = 2);
/// Random values as a contiguous tensor.
Tensor random_tensor(const Shape& shape, uint64_t seed, DType dtype = kFloat32, double low = -2, double high = 2);

}  // namespace tandem::testing
