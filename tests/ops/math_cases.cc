#include <numbers>

#include <tandem/tests/ops/op_cases.h>

namespace tandem::testing {

namespace {

/// One operand with values in [low, high).
OpCase unary(const Shape& shape, std::function<Tensor(const Tensor&)> run, std::function<double(double)> f, double low,
             double high) {
  return {.inputs = {{"input", shape, low, high}},
          .run = [run](const Tensors& x) { return run(x[0]); },
          .reference = elementwise(std::move(f))};
}

using Function = Tensor (*)(Tensor);

struct MathFunction {
  const char* name;
  Function run;
  double (*f)(double);
  double low, high;
  CastPolicy policy = CastPolicy::kWidest;
};

double sign_of(double x) { return (x > 0) - (x < 0); }
double inverse_erf(double y) {
  if (!(std::abs(y) < 1)) return NAN;
  double low = -6, high = 6;
  for (int step = 0; step < 100; ++step) (std::erf((low + high) / 2) < y ? low : high) = (low + high) / 2;
  return low == 0 ? low : low - (std::erf(low) - y) / (2 * std::numbers::inv_sqrtpi * std::exp(-low * low));
}

constexpr CastPolicy kFull = CastPolicy::kFloat32;
const MathFunction kFunctions[] = {
    {"abs", abs, std::fabs, -2, 2},
    {"sign", sign, sign_of, -2, 2},
    {"square", square, [](double x) { return x * x; }, -2, 2, kFull},
    {"reciprocal", reciprocal, [](double x) { return 1 / x; }, 0.5, 2, kFull},
    {"floor", floor, std::floor, -3, 3},
    {"ceil", ceil, std::ceil, -3, 3},
    {"trunc", trunc, std::trunc, -3, 3},
    {"round", round, std::nearbyint, -3, 3},
    {"frac", frac, [](double x) { return x - std::trunc(x); }, -3, 3},
    {"exp2", exp2, std::exp2, -3, 3},
    {"expm1", expm1, std::expm1, -2, 2, kFull},
    {"log2", log2, std::log2, 0.25, 4, kFull},
    {"log10", log10, std::log10, 0.25, 4, kFull},
    {"log1p", log1p, std::log1p, -0.5, 2, kFull},
    {"cos", cos, std::cos, -4, 4},
    {"tan", tan, std::tan, -1.2, 1.2, kFull},
    {"asin", asin, std::asin, -0.9, 0.9, kFull},
    {"acos", acos, std::acos, -0.9, 0.9, kFull},
    {"atan", atan, std::atan, -2, 2},
    {"sinh", sinh, std::sinh, -2, 2, kFull},
    {"cosh", cosh, std::cosh, -2, 2, kFull},
    {"erf", erf, std::erf, -3, 3},
    {"erfc", erfc, std::erfc, -3, 3},
    {"erfinv", erfinv, inverse_erf, -0.9, 0.9, kFull},
};

}  // namespace

TANDEM_OP_CASES(math) {
  const auto wide = CastPolicy::kWidest, full = CastPolicy::kFloat32;
  std::vector<OpCase> sqrt_cases, rsqrt_cases, sin_cases, power_cases, clamp_cases, min_cases, max_cases;
  for (const Shape& shape : {Shape{3, 7}, Shape{3, 33}, Shape{2, 3, 7}, Shape{}, Shape{0, 3}}) {
    sqrt_cases.push_back(unary(
        shape, [](const Tensor& x) { return sqrt(x); }, [](double x) { return std::sqrt(x); }, 0.25, 4));
    rsqrt_cases.push_back(unary(
        shape, [](const Tensor& x) { return rsqrt(x); }, [](double x) { return 1 / std::sqrt(x); }, 0.25, 4));
    sin_cases.push_back(unary(
        shape, [](const Tensor& x) { return sin(x); }, [](double x) { return std::sin(x); }, -4, 4));
    // Each special case of the kernel; negative bases where the result is real.
    for (const double exponent : {2.0, 3.0, -1.0, -2.0, 4.0, 1.0, 0.0}) {
      for (const double sign : {1, -1}) {
        power_cases.push_back(unary(
            shape, [exponent](const Tensor& x) { return pow(x, exponent); },
            [exponent](double x) { return std::pow(x, exponent); }, sign > 0 ? 0.5 : -2, sign > 0 ? 2 : -0.5));
        power_cases.back().tolerance = 8;
      }
    }
    clamp_cases.push_back(unary(
        shape, [](const Tensor& x) { return clamp(x, -1.25, 0.5); },
        [](double x) { return std::min(std::max(x, -1.25), 0.5); }, -3, 3));
    clamp_cases.push_back(unary(
        shape, [](const Tensor& x) { return clamp(x, 0.75); }, [](double x) { return std::max(x, 0.75); }, -3, 3));
    clamp_cases.push_back(unary(
        shape, [](const Tensor& x) { return clamp(x, {}, 1); }, [](double x) { return std::min(x, 1.0); }, -3, 3));
    min_cases.push_back(unary(
        shape, [](const Tensor& x) { return clamp_min(x, 0.75); }, [](double x) { return std::max(x, 0.75); }, -3, 3));
    max_cases.push_back(unary(
        shape, [](const Tensor& x) { return clamp_max(x, 1); }, [](double x) { return std::min(x, 1.0); }, -3, 3));
  }
  for (const double exponent : {0.5, -0.5, 1.5, 1.7, 2.5, -2.3}) {
    power_cases.push_back(unary(
        {3, 33}, [exponent](const Tensor& x) { return pow(x, exponent); },
        [exponent](double x) { return std::pow(x, exponent); }, 0.5, 2));
  }
  cases.op("Tensor sqrt(Tensor input)", wide, sqrt_cases);
  cases.op("Tensor rsqrt(Tensor input)", full, rsqrt_cases);
  cases.op("Tensor sin(Tensor input)", wide, sin_cases);
  cases.op("Tensor pow(Tensor input, Scalar exponent)", full, power_cases);
  cases.op("Tensor clamp(Tensor input, std::optional<Scalar> min, std::optional<Scalar> max = {})", wide, clamp_cases);
  cases.op("Tensor clamp_min(Tensor input, Scalar min)", wide, min_cases);
  cases.op("Tensor clamp_max(Tensor input, Scalar max)", wide, max_cases);

  std::vector<OpCase> tensor_power_cases;
  const std::pair<Shape, Shape> shapes[] = {{{3, 7}, {7}},       {{3, 7}, {3, 7}}, {{2, 33}, {33}},
                                            {{5, 1, 3}, {4, 1}}, {{}, {7}},        {{0, 3}, {3}}};
  for (const auto& [input, exponent] : shapes) {
    tensor_power_cases.push_back({.inputs = {{"input", input, 0.5, 2}, {"exponent", exponent, -1.5, 2.5}},
                                  .run = [](const Tensors& x) { return pow(x[0], x[1]); },
                                  .reference = elementwise([](double a, double b) { return std::pow(a, b); }),
                                  .tolerance = 8,
                                  .terms = 5,
                                  .broadcasts = true});
  }
  cases.op("Tensor pow(Tensor input, Tensor exponent)", full, tensor_power_cases);
  std::vector<OpCase> power_of_number_cases;
  for (const Shape& shape : {Shape{3, 7}, Shape{2, 33}, Shape{}, Shape{0, 3}}) {
    power_of_number_cases.push_back({.inputs = {{"exponent", shape, -1.5, 2.5}},
                                     .run = [](const Tensors& x) { return pow(1.75, x[0]); },
                                     .reference = elementwise([](double x) { return std::pow(1.75, x); }),
                                     .tolerance = 8});
  }
  cases.op("Tensor pow(Scalar input, Tensor exponent)", full, power_of_number_cases);

  const auto positive = [] { return TensorList{rand({128, 32, 24, 24}) + 0.5}; };
  const auto fractions = [] { return TensorList{rand({128, 32, 24, 24}) * 1.8 - 0.9}; };
  for (const MathFunction& function : kFunctions) {
    std::vector<OpCase> list;
    for (const Shape& shape : {Shape{3, 7}, Shape{33}, Shape{}, Shape{0, 3}}) {
      list.push_back(unary(
          shape, [run = function.run](const Tensor& x) { return run(x); }, function.f, function.low, function.high));
      list.back().tolerance = 8;
    }
    cases.op(str("Tensor ", function.name, "(Tensor input)"), function.policy, list);
    const auto run = [run = function.run](const TensorList& in) { return run(in[0]); };
    if (function.high < 1) {
      cases.benchmark(function.name, fractions, run);
    } else {
      cases.benchmark(function.name, positive, run);
    }
  }
  OpCase to_tenths = unary(
      {3, 7}, [](const Tensor& x) { return round(x, 1); }, [](double x) { return std::nearbyint(x * 10) / 10; }, -2, 2);
  to_tenths.dtypes = {kFloat64, kFloat32};
  cases.op("Tensor round(Tensor input, int64_t decimals)", wide, {to_tenths});
  cases.op(
      "Tensor nan_to_num(const Tensor& input, double nan = 0, std::optional<double> posinf = {}, "
      "std::optional<double> neginf = {})",
      wide,
      {unary(
          {3, 7}, [](const Tensor& x) { return nan_to_num(x, 5); }, [](double x) { return x; }, -2, 2)});
  cases.benchmark("nan_to_num", positive, [](const TensorList& in) { return nan_to_num(in[0]); });

  // Long enough for several threads.
  OpCase large = unary(
      {3, 32769}, [](const Tensor& x) { return sqrt(x); }, [](double x) { return std::sqrt(x); }, 0.25, 4);
  large.name = "sqrt";
  cases.add(large, kValues | kThreads);
  large = unary(
      {70001}, [](const Tensor& x) { return clamp(x, -1, 1); },
      [](double x) { return std::min(std::max(x, -1.0), 1.0); }, -2, 2);
  large.name = "clamp";
  cases.add(large, kValues | kThreads);

  cases.benchmark("pow square", positive, [](const TensorList& in) { return pow(in[0], 2); });
  cases.benchmark("pow number", positive, [](const TensorList& in) { return pow(in[0], 1.7); });
  cases.benchmark(
      "pow tensor",
      [] {
        return TensorList{rand({2048, 1024}) + 0.5, randn({1024})};
      },
      [](const TensorList& in) { return pow(in[0], in[1]); });
  cases.benchmark("clamp_min", positive, [](const TensorList& in) { return clamp_min(in[0], 0.75); });
  cases.benchmark("clamp_max", positive, [](const TensorList& in) { return clamp_max(in[0], 1.25); });
}

}  // namespace tandem::testing
