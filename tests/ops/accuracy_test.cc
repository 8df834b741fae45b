// The worst errors of elementwise functions, compared with the table of docs/accuracy.md. Inputs are every
// TANDEM_ACCURACY_STRIDE-th (default: 16381st) float32 and all numbers of half types; of two operands, all pairs of
// kSide numbers of the dtype.
#include <bit>

#include <tandem/tests/ops/op_cases.h>

namespace tandem::testing { namespace {

struct Format {
  DType dtype;
  int digits;
  double smallest;  ///< magnitude of results that are compared: intermediate results should be normal numbers
  double end;       ///< half an ulp below it and beyond, a result is infinite
};
constexpr Format kFormats[] = {
    {kFloat32, 24, 0x1p-119, 0x1p128}, {kFloat16, 11, 0x1p-14, 0x1p16}, {kBFloat16, 8, 0x1p-119, 0x1p128}};
using Errors = std::vector<double>;  ///< in the order of kFormats, in units in the last place

constexpr int64_t kSide = 1021;

/// The numbers with the bits (begin + i) / divisor % modulus * stride, in the shape {1, ..., n}.
Tensor numbers(const Format& format, int64_t dims, int64_t begin, int64_t n, uint64_t stride, int64_t divisor,
               int64_t modulus) {
  const size_t size = static_cast<size_t>(size_of(format.dtype));
  Shape shape(static_cast<size_t>(dims), 1);
  if (dims > 0) shape.back() = n;
  const Tensor x = empty(shape, {format.dtype});
  for (int64_t i = 0; i < x.numel(); ++i) {
    const uint64_t bits = static_cast<uint64_t>((begin + i) / divisor % modulus) * stride;
    std::memcpy(static_cast<std::byte*>(x.data_ptr()) + static_cast<size_t>(i) * size, &bits, size);
  }
  return x;
}

/// The number of operands of a function that may be elementwise and has a bound in these units: not `round` to
/// decimals, remainders by a number, quotients, and logaddexp, whose terms cancel.
size_t num_operands(const Operation& operation) {
  const std::string arguments = operation.declaration.substr(operation.declaration.find('('));
  if (arguments == "(Tensor a, Tensor b)" || arguments == "(Tensor input, Tensor other)" ||
      arguments == "(Tensor input, Tensor exponent)") {
    return operation.name() == "floor_divide" || operation.name() == "logaddexp" ? 0 : 2;
  }
  const bool is_bounded =
      arguments.find("other") == std::string::npos && arguments.find("decimals") == std::string::npos;
  return arguments.starts_with("(Tensor input") && is_bounded ? 1 : 0;
}

/// Whether the call computes a function of each element of its floating operands; moves are none.
bool is_elementwise(const OpCase& op, size_t operands) {
  if (op.inputs.size() != operands || op.inputs[0].dtype || op.inputs[0].shape.dim() == 0 || op.in_place ||
      !op.reference || op.result_dtype) {
    return false;
  }
  if (operands == 2) return true;
  const auto is_elementwise_along = [&](size_t dim) {
    const auto run = [&](double a, double b) {
      Shape shape(op.inputs[0].shape.size(), 1);
      shape[dim] = 2;
      return Tensor(op.run({from_vector<double>({a, b}, shape)}));
    };
    const Tensor both = run(0.75, 0.5), first = run(0.75, 0.75), second = run(0.5, 0.5);
    if (both.numel() != 2 || first.numel() != 2) return false;
    return run(-0.75, 0.5).to_vector<double>() != std::vector<double>{-0.75, 0.5} && both.dtype() == kFloat64 &&
           both.to_vector<double>() == std::vector<double>{first.to_vector<double>()[0], second.to_vector<double>()[1]};
  };
  try {
    const size_t last = op.inputs[0].shape.size() - 1;
    return is_elementwise_along(last) && is_elementwise_along(std::min<size_t>(last, 1));  // 1: channels
  } catch (const Error&) {
    return false;
  }
}

double worst_error(const OpCase& op, const Format& format, uint64_t stride) {
  const bool is_pair = op.inputs.size() == 2;
  const int64_t all = int64_t{1} << (8 * size_of(format.dtype));
  const int64_t side = is_pair ? kSide : all / static_cast<int64_t>(stride), total = is_pair ? side * side : side;
  if (is_pair) stride = static_cast<uint64_t>(all / side) | 1;  // odd: all bits of the significand vary
  const double units = std::ldexp(1, 1 - format.digits);
  double worst = 0;
  for (int64_t begin = 0; begin < total; begin += 1 << 16) {
    const int64_t n = std::min<int64_t>(1 << 16, total - begin);
    const int64_t dims = op.inputs[0].shape.dim();
    Tensors x = {numbers(format, dims, begin, n, stride, 1, side)};
    if (is_pair) x.push_back(numbers(format, dims, begin, n, stride, side, side));
    std::vector<Dense> in;
    for (const Tensor& t : x) in.push_back(dense(t));
    const Dense expected = op.reference(in), actual = dense(op.run(x));
    for (int64_t i = 0; i < n; ++i) {
      const double e = expected[i];
      if (!std::isfinite(in.front()[i]) || !std::isfinite(in.back()[i]) || !std::isfinite(e) ||
          std::abs(e) < format.smallest)
        continue;
      const double power = std::bit_cast<double>(std::bit_cast<uint64_t>(e) & 0x7ff0000000000000);  // of 2, below |e|
      const double ulp = power * units;
      const double found = std::isinf(actual[i]) ? std::copysign(format.end, actual[i]) : actual[i];
      const double error =
          std::abs(e) >= format.end && found == std::copysign(format.end, e) ? 0 : std::abs(found - e) / ulp;
      worst = error <= worst ? worst : std::isnan(error) ? HUGE_VAL : error;
    }
  }
  return worst;
}

std::map<std::string, Errors> measured() {
  const NoGradGuard no_grad;
  const char* stride = std::getenv("TANDEM_ACCURACY_STRIDE");
  std::map<std::string, Errors> result;
  for (const Operation& operation : op_cases().operations) {
    const size_t operands = num_operands(operation);
    for (const OpCase& op : operation.cases) {
      const OpCase& first = operation.cases[0];
      if (operands == 0 || !is_elementwise(op, operands) || op.inputs[0].shape != first.inputs[0].shape ||
          (operands == 2 && &op != &first)) {
        continue;
      }
      Errors& worst = result.try_emplace(operation.name(), Errors(std::size(kFormats))).first->second;
      for (size_t f = 0; f < std::size(kFormats); ++f) {
        const uint64_t step = f > 0 ? 1 : stride == nullptr ? 16381 : std::strtoull(stride, nullptr, 10);
        worst[f] = std::max(worst[f], worst_error(op, kFormats[f], step));
      }
    }
  }
  return result;
}

/// The rows "| `name` | number | number | number |" of the page.
std::map<std::string, Errors> stated() {
  std::map<std::string, Errors> result;
  std::ifstream page("docs/accuracy.md");
  for (std::string line; std::getline(page, line);) {
    if (!line.starts_with("| `")) continue;
    const size_t end = line.find('`', 3);
    std::istringstream numbers(line.substr(end + 1));
    Errors& row = result[line.substr(3, end - 3)];
    char bar;
    for (double number; numbers >> bar >> number;) row.push_back(number);
  }
  return result;
}

TEST(Accuracy, WorstErrorsAreAtMostThoseOfThePage) {
  const std::map<std::string, Errors> limits = stated(), worst = measured();
  std::string table;
  for (const auto& [name, errors] : worst) {
    const auto limit = limits.find(name);
    bool is_rounded = true;
    std::ostringstream row;
    row << "| `" << name << "` |";
    for (size_t f = 0; f < errors.size(); ++f) {
      is_rounded = is_rounded && errors[f] <= 0.5;
      row << " " << std::ceil(errors[f] * 100) / 100 << " |";
      EXPECT_LE(errors[f], limit == limits.end() ? 0.5 : limit->second.at(f)) << name << " " << kFormats[f].dtype;
    }
    if (!is_rounded) table += row.str() + "\n";
  }
  for (const auto& [name, errors] : limits) EXPECT_TRUE(worst.contains(name)) << name;
  if (HasFailure()) std::cout << "measured:\n" << table;
}

}}  // namespace tandem::testing
