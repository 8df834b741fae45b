// One description of a call of an operation, from which its tests follow.
#pragma once

#include <tandem/tensor/tensor.h>
#include <tandem/tests/support/test.h>

namespace tandem::testing {

/// The device of the inputs of an OpCase: TANDEM_TEST_DEVICE, or cpu if it is not set.
Device test_device();

using Tensors = std::vector<Tensor>;

/// Row-major float64 values, used by references.
struct Dense {
  Shape shape;
  std::vector<double> values;

  double& operator[](int64_t i) { return values[static_cast<size_t>(i)]; }
  double operator[](int64_t i) const { return values[static_cast<size_t>(i)]; }
  int64_t numel() const { return static_cast<int64_t>(values.size()); }
};

/// All zeros.
Dense dense_zeros(const Shape& shape);
/// The values of a tensor.
Dense dense(const Tensor& tensor);
/// f(a[i], b[i], ...) with the inputs broadcast to `shape`, element by element.
Dense dense_map(const Shape& shape, const std::vector<Dense>& inputs,
                const std::function<double(const std::vector<double>&)>& f);

/// Computes the expected result in float64 from the values of the inputs.
using Reference = std::function<Dense(const std::vector<Dense>&)>;
/// f applied to the elements of one, two or three inputs, which broadcast.
Reference elementwise(std::function<double(double)> f);
Reference elementwise(std::function<double(double, double)> f);
Reference elementwise(std::function<double(double, double, double)> f);

/// float64, float32, float16, bfloat16.
std::vector<DType> floating_dtypes();

/// Strides of a test input.
enum class Layout { kContiguous, kTransposed, kSliced, kExpanded };
constexpr Layout kLayouts[] = {Layout::kContiguous, Layout::kTransposed, Layout::kSliced, Layout::kExpanded};

/// A tensor argument of an operation.
struct Input {
  const char* name;  ///< in error texts
  Shape shape;
  double low = -2;  ///< values are uniform in [low, high), rounded down for integers and bool
  double high = 2;
  std::optional<DType> dtype = {};  ///< fixed, such as int64 for labels; else the case's floating dtype
  bool differentiable = true;       ///< of a floating input
  bool optional = false;            ///< whether it may be undefined
  bool autocast = true;             ///< whether autocast casts it if the operation casts its operands
};

/// int64 from 0 to end - 1, such as indices and labels.
Input integers(const char* name, const Shape& shape, double end);
Input bools(const char* name, const Shape& shape);
Input positive(const char* name, const Shape& shape);
/// An input that may be undefined.
Input optional(Input input);
/// A floating input that autocast never casts, such as an attention mask.
Input keeps_dtype(Input input);
/// A floating input that has no gradient.
Input constant(Input input);

/// The result of an operation: one tensor or several. Checks of values and of gradients read the first.
struct Results {
  Results(Tensor tensor) : tensors{std::move(tensor)} {}
  Results(Tensors list) : tensors(std::move(list)) {}
  operator Tensor() const { return tensors.at(0); }
  Tensors tensors;
};

/// A call of an operation, its inputs and its expected result.
///
/// Choose awkward sizes (0, 1, 3, 7, 31, 32, 33) and attributes that are not the defaults; `run` passes both.
struct OpCase {
  std::string name = {};  ///< the operation's name in error texts
  std::vector<Input> inputs;
  std::function<Results(const Tensors&)> run;
  Reference reference = {};  ///< undefined: values and gradients are not compared
  double tolerance = 4;      ///< c in |actual - expected| <= c eps(dtype) sqrt(terms) (1 + |expected|)
  double terms = 1;          ///< numbers summed for one result
  int roundings = 1;         ///< of half-type results; 2 if an intermediate result is rounded too
  std::vector<DType> dtypes = floating_dtypes();  ///< dtypes that are checked
  std::optional<DType> result_dtype = {};         ///< if different from the dtype of the inputs
  bool has_gradient = true;                       ///< of the first order
  bool has_second_gradient = true;
  bool names_operands = true;  ///< whether device errors list `inputs` in order
  bool broadcasts = false;     ///< whether each input may have no dimensions
  bool in_place = false;       ///< whether it changes inputs[0]
};

/// The operation itself, of float64 inputs in row-major order on the CPU: for operations whose values fixtures_test
/// compares with PyTorch's.
Reference in_float64(const OpCase& op);

/// Random inputs, the same for each dtype up to rounding. Inputs with a fixed dtype keep it.
Tensors make_inputs(const OpCase& op, DType dtype, Layout layout = Layout::kContiguous, Device device = test_device());

/// Compares values with the reference in each dtype, for inputs that are contiguous, transposed, sliced, expanded and
/// mixed. Verifies that the inputs and the memory around them do not change.
void check_values(const OpCase& op);
/// gradcheck and gradgradcheck in float64, for each layout (with a sanitizer or emulated GPUs: for one, unless
/// runs_all_combinations()). Then compares the gradients of each other dtype, for random cotangents and each layout,
/// with those of the float64 operation on the same (rounded) inputs.
void check_gradients(const OpCase& op);
/// Verifies that 1 and 2 threads give the same bits, in the result and the gradients.
void check_threads(const OpCase& op);
/// Verifies the error texts for undefined operands and for operands on another device.
void check_errors(const OpCase& op);

/// The four checks above; gradients only if the case has them.
void check(const OpCase& op);

/// Whether all elements are within `tolerance` (1 + abs(expected)) of the expected ones; shapes must be equal. NaN is
/// not close to anything; infinities are close to themselves.
::testing::AssertionResult close(const Tensor& actual, const Dense& expected, double tolerance);

/// The complete text of the DeviceError of `op` for operands with these names. Marks operands that are not on the
/// device of the majority (on a tie, the device of the first operand).
std::string different_devices_text(const std::string& op, const std::vector<std::string>& names,
                                   const std::vector<Tensor>& operands);

/// Distance from 1 to the next number of a floating dtype.
double epsilon(DType dtype);

/// `values` as a tensor of the given layout; gaps in memory contain NaN (integers: 77). kExpanded repeats index 0 of
/// the first dimension.
Tensor make_tensor(const Dense& values, DType dtype, Layout layout = Layout::kContiguous, Device device = {});
/// Values uniform in [low, high), a function of the seed.
Dense random_dense(const Shape& shape, uint64_t seed, double low = -2, double high = 2);
/// Random values as a contiguous tensor.
Tensor random_tensor(const Shape& shape, uint64_t seed, DType dtype = kFloat32, double low = -2, double high = 2);

/// Whether two tensors have the same shape, dtype and bits.
bool same_bits(const Tensor& a, const Tensor& b);

}  // namespace tandem::testing
