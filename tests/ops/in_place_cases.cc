#include <tandem/tests/ops/op_cases.h>

namespace tandem::testing {

namespace {

using Values = std::vector<double>;

/// run(self, other) changes self in place. The case runs it on a copy of self, so it is tested like a function.
OpCase in_place_case(const char* name, const Shape& other,
                     std::function<const Tensor&(const Tensor&, const Tensor&)> run,
                     std::function<double(double, double)> f) {
  OpCase op;
  op.name = name;
  op.inputs = {{"self", {3, 7}}, {"other", other, 0.5, 2}};
  op.run = [run](const std::vector<Tensor>& in) {
    // A product, so that self is not saved by accident.
    const Tensor self = in[0].defined() ? in[0] * 1.5 : in[0];
    run(self, in[1]);
    return self * 1.25;
  };
  op.reference = [f](const std::vector<Dense>& in) {
    return dense_map({3, 7}, in, [&](const Values& v) { return 1.25 * f(1.5 * v[0], v[1]); });
  };
  return op;
}

/// Runs an in-place form and returns self.
std::function<Results(const Tensors&)> changed(std::function<void(const Tensor&)> run) {
  return [run](const Tensors& x) {
    run(x[0]);
    return x[0];
  };
}

}  // namespace

TANDEM_OP_CASES(in_place) {
  const std::vector<Input> self = {{"self", {3, 7}}}, two = {{"self", {3, 7}}, {"other", {7}}};
  const std::vector<Input> overwritten = {constant({"self", {3, 7}})};
  const std::vector<Input> scalar = {{"self", {3, 7}}, {"other", {}}};
  cases.op("const Tensor& add_(const Tensor& other, Scalar alpha = 1) const", std::nullopt,
           {{.inputs = two, .run = [](const Tensors& x) { return x[0].add_(x[1], 0.5); }, .in_place = true},
            {.inputs = scalar, .run = [](const Tensors& x) { return x[0].add_(x[1]); }, .in_place = true}});
  cases.op("const Tensor& sub_(const Tensor& other, Scalar alpha = 1) const", std::nullopt,
           {{.inputs = two, .run = [](const Tensors& x) { return x[0].sub_(x[1], 0.5); }, .in_place = true},
            {.inputs = scalar, .run = [](const Tensors& x) { return x[0].sub_(x[1]); }, .in_place = true}});
  cases.op("const Tensor& mul_(const Tensor& other) const", std::nullopt,
           {{.inputs = two, .run = [](const Tensors& x) { return x[0].mul_(x[1]); }, .in_place = true},
            {.inputs = scalar, .run = [](const Tensors& x) { return x[0].mul_(x[1]); }, .in_place = true}});
  cases.op("const Tensor& div_(const Tensor& other) const", std::nullopt,
           {{.inputs = two, .run = [](const Tensors& x) { return x[0].div_(x[1]); }, .in_place = true},
            {.inputs = scalar, .run = [](const Tensors& x) { return x[0].div_(x[1]); }, .in_place = true}});
  cases.op("const Tensor& add_(Scalar other) const", std::nullopt,
           {{.inputs = self, .run = [](const Tensors& x) { return x[0].add_(2.5); }, .in_place = true}});
  cases.op("const Tensor& sub_(Scalar other) const", std::nullopt,
           {{.inputs = self, .run = [](const Tensors& x) { return x[0].sub_(2.5); }, .in_place = true}});
  cases.op("const Tensor& mul_(Scalar other) const", std::nullopt,
           {{.inputs = self, .run = [](const Tensors& x) { return x[0].mul_(2.5); }, .in_place = true}});
  cases.op("const Tensor& div_(Scalar other) const", std::nullopt,
           {{.inputs = self, .run = [](const Tensors& x) { return x[0].div_(2.5); }, .in_place = true}});
  const auto operators = [&](const std::string& sign, const char* name,
                             std::function<void(const Tensor&, const Tensor&)> run,
                             std::function<void(const Tensor&)> run_number) {
    const auto run_two = [run](const Tensors& x) {
      run(x[0], x[1]);
      return x[0];
    };
    cases.op("const Tensor& operator" + sign + "(const Tensor& other) const", std::nullopt,
             {{.name = name, .inputs = two, .run = run_two, .in_place = true}});
    cases.op("const Tensor& operator" + sign + "(Scalar other) const", std::nullopt,
             {{.name = name, .inputs = self, .run = changed(run_number), .in_place = true}});
  };
  operators(
      "+=", "add_", [](const Tensor& a, const Tensor& b) { a += b; }, [](const Tensor& x) { x += 2; });
  operators(
      "-=", "sub_", [](const Tensor& a, const Tensor& b) { a -= b; }, [](const Tensor& x) { x -= 2; });
  operators(
      "*=", "mul_", [](const Tensor& a, const Tensor& b) { a *= b; }, [](const Tensor& x) { x *= 2; });
  operators(
      "/=", "div_", [](const Tensor& a, const Tensor& b) { a /= b; }, [](const Tensor& x) { x /= 2; });
  struct {
    const char* name;
    const char* arguments;
    std::function<void(const Tensor&)> run;
    double (*f)(double);
    double low = -2;
  } const unary[] = {
      {"abs_", "", &Tensor::abs_, std::fabs},
      {"neg_", "", &Tensor::neg_, [](double x) { return -x; }},
      {"sign_", "", &Tensor::sign_, [](double x) { return x < 0 ? -1.0 : 1.0; }},
      {"floor_", "", &Tensor::floor_, std::floor},
      {"ceil_", "", &Tensor::ceil_, std::ceil},
      {"trunc_", "", &Tensor::trunc_, std::trunc},
      {"round_", "", &Tensor::round_, std::nearbyint},
      {"exp_", "", &Tensor::exp_, std::exp},
      {"log_", "", &Tensor::log_, std::log, 0.5},
      {"sqrt_", "", &Tensor::sqrt_, std::sqrt, 0.5},
      {"rsqrt_", "", &Tensor::rsqrt_, [](double x) { return 1 / std::sqrt(x); }, 0.5},
      {"reciprocal_", "", &Tensor::reciprocal_, [](double x) { return 1 / x; }, 0.5},
      {"sin_", "", &Tensor::sin_, std::sin},
      {"cos_", "", &Tensor::cos_, std::cos},
      {"relu_", "", &Tensor::relu_, [](double x) { return std::max(x, 0.0); }},
      {"tanh_", "", &Tensor::tanh_, std::tanh},
      {"sigmoid_", "", &Tensor::sigmoid_, [](double x) { return 1 / (1 + std::exp(-x)); }},
      {"clamp_", "std::optional<Scalar> min, std::optional<Scalar> max = {}",
       [](const Tensor& x) { x.clamp_(-0.75, 1); }, [](double x) { return std::clamp(x, -0.75, 1.0); }},
      {"clamp_min_", "Scalar min", [](const Tensor& x) { x.clamp_min_(0.75); },
       [](double x) { return std::max(x, 0.75); }},
      {"clamp_max_", "Scalar max", [](const Tensor& x) { x.clamp_max_(0.75); },
       [](double x) { return std::min(x, 0.75); }},
      {"pow_", "Scalar exponent", [](const Tensor& x) { x.pow_(2); }, [](double x) { return x * x; }},
  };
  for (const auto& [name, arguments, run, f, low] : unary) {
    cases.op(str("const Tensor& ", name, "(", arguments, ") const"), std::nullopt,
             {{.name = name, .inputs = {{"self", {3, 7}, low, 2}}, .run = changed(run), .in_place = true}});
    OpCase op;
    op.name = name;
    op.inputs = {{"self", {3, 7}, low, 2}};
    op.run = [run](const Tensors& in) {
      const Tensor doubled = in[0].defined() ? in[0] * 2 : in[0];
      run(doubled);
      return doubled * doubled;
    };
    op.reference = elementwise([f](double x) { return f(2 * x) * f(2 * x); });
    op.tolerance = 16;
    op.terms = 4;
    cases.add(op);
  }
  cases.op("const Tensor& lerp_(const Tensor& end, Scalar weight) const", std::nullopt,
           {{.inputs = {{"self", {3, 7}}, {"other", {7}}},
             .run = [](const Tensors& x) { return x[0].lerp_(x[1], 0.75); },
             .in_place = true}});
  const std::vector<Input> three = {{"self", {3, 7}}, {"tensor1", {7}}, {"tensor2", {3, 1}, 0.5, 2}};
  const auto ternary = [&](const char* name, std::function<void(const Tensors&)> run,
                           std::function<double(double, double, double)> f) {
    const auto run_in_place = [run](const Tensors& x) {
      run(x);
      return x[0];
    };
    cases.op(str("const Tensor& ", name, "(const Tensor& tensor1, const Tensor& tensor2, Scalar value = 1) const"),
             std::nullopt, {{.name = name, .inputs = three, .run = run_in_place, .in_place = true}});
    const auto run_copy = [run](const Tensors& x) {
      const Tensors changed = {x[0].defined() ? x[0] * 2 : x[0], x[1], x[2]};
      run(changed);
      return changed[0] * 2;
    };
    cases.add({.name = name,
               .inputs = three,
               .run = run_copy,
               .reference = elementwise([f](double a, double b, double c) { return 2 * f(2 * a, b, c); }),
               .tolerance = 16});
  };
  ternary(
      "addcmul_", [](const Tensors& x) { x[0].addcmul_(x[1], x[2], 0.75); },
      [](double a, double b, double c) { return a + 0.75 * b * c; });
  ternary(
      "addcdiv_", [](const Tensors& x) { x[0].addcdiv_(x[1], x[2], 0.75); },
      [](double a, double b, double c) { return a + 0.75 * b / c; });
  cases.op("const Tensor& masked_fill_(const Tensor& mask, Scalar value) const", std::nullopt,
           {{.inputs = {{"self", {3, 7}}, bools("mask", {7})},
             .run = [](const Tensors& x) { return x[0].masked_fill_(x[1], 2.5); },
             .in_place = true}});
  cases.op("const Tensor& fill_(Scalar value) const", std::nullopt,
           {{.inputs = overwritten,
             .run = [](const Tensors& x) { return x[0].fill_(2.5); },
             .has_gradient = false,
             .in_place = true}});
  cases.op("const Tensor& zero_() const", std::nullopt,
           {{.inputs = overwritten,
             .run = [](const Tensors& x) { return x[0].zero_(); },
             .has_gradient = false,
             .in_place = true}});
  cases.op("const Tensor& copy_(const Tensor& src) const", std::nullopt,
           {{.inputs = {constant({"self", {3, 7}}), {"src", {7}}},
             .run = [](const Tensors& x) { return x[0].copy_(x[1]); },
             .in_place = true},
            {.inputs = {constant({"self", {3, 7}}), {"src", {}}},
             .run = [](const Tensors& x) { return x[0].copy_(x[1]); },
             .in_place = true}});

  for (const Shape& other : {Shape{3, 7}, Shape{7}, Shape{3, 1}, Shape{}}) {
    const OpCase list[] = {
        in_place_case(
            "add_", other, [](const Tensor& a, const Tensor& b) -> auto& { return a.add_(b, 0.75); },
            [](double a, double b) { return a + 0.75 * b; }),
        in_place_case(
            "sub_", other, [](const Tensor& a, const Tensor& b) -> auto& { return a.sub_(b, 0.75); },
            [](double a, double b) { return a - 0.75 * b; }),
        in_place_case(
            "mul_", other, [](const Tensor& a, const Tensor& b) -> auto& { return a.mul_(b); },
            [](double a, double b) { return a * b; }),
        in_place_case(
            "div_", other, [](const Tensor& a, const Tensor& b) -> auto& { return a.div_(b); },
            [](double a, double b) { return a / b; }),
    };
    for (const OpCase& op : list) cases.add(op);
    OpCase lerp = in_place_case(
        "lerp_", other, [](const Tensor& a, const Tensor& b) -> auto& { return a.lerp_(b, 0.75); },
        [](double a, double b) { return a + 0.75 * (b - a); });
    cases.add(lerp);
    OpCase fill = in_place_case(
        "masked_fill_", other, [](const Tensor& a, const Tensor& b) -> auto& { return a.masked_fill_(b, 2.5); },
        [](double a, double b) { return b != 0 ? 2.5 : a; });
    fill.inputs[1] = bools("mask", other);
    cases.add(fill);
    OpCase copy = in_place_case(
        "copy_", other, [](const Tensor& a, const Tensor& b) -> auto& { return a.copy_(b); },
        [](double, double b) { return b; });
    copy.inputs[1].name = "src";
    cases.add(copy);
  }

  {
    struct {
      const char* name;
      std::function<void(const Tensor&)> run;
      std::function<double(double)> f;
    } const list[] = {
        {"add_", [](const Tensor& x) { x.add_(0.75); }, [](double x) { return x + 0.75; }},
        {"sub_", [](const Tensor& x) { x.sub_(0.75); }, [](double x) { return x - 0.75; }},
        {"mul_", [](const Tensor& x) { x.mul_(-1.5); }, [](double x) { return x * -1.5; }},
        {"div_", [](const Tensor& x) { x.div_(1.5); }, [](double x) { return x / 1.5; }},
    };
    for (const auto& c : list) {
      OpCase op;
      op.name = c.name;
      op.inputs = {{"self", {3, 33}}};
      op.run = [c](const std::vector<Tensor>& in) {
        const Tensor doubled = in[0].defined() ? in[0] * 2 : in[0];
        c.run(doubled);
        return doubled * doubled;
      };
      op.reference = [c](const std::vector<Dense>& in) {
        return dense_map({3, 33}, in, [&](const Values& v) { return c.f(2 * v[0]) * c.f(2 * v[0]); });
      };
      op.tolerance = 8;
      cases.add(op);
    }
  }
}

}  // namespace tandem::testing
