// Checks of every operation, for each case of the registry.
#include <cctype>
#include <cfenv>
#include <ostream>

#include <tandem/base/parallel_for.h>
#include <tandem/tests/ops/op_cases.h>
#include <tandem/tests/support/num_failures.h>

namespace tandem::testing { namespace {

/// A check of a case.
struct Check {
  const CheckedCase* checked;
  const char* name;
  void (*run)(const OpCase&);
};
void PrintTo(const Check& check, std::ostream* out) { *out << check.checked->op.name; }

std::vector<Check> checks() {
  std::vector<Check> all;
  for (const CheckedCase& checked : op_cases().checked) {
    if (checked.checks & kValues) all.push_back({&checked, "values", check_values});
    if (checked.checks & kGradients && checked.op.has_gradient) all.push_back({&checked, "gradients", check_gradients});
    if (checked.checks & kThreads) all.push_back({&checked, "threads", check_threads});
    if (checked.checks & kErrors) all.push_back({&checked, "errors", check_errors});
  }
  return all;
}

class OpCaseTest : public ::testing::TestWithParam<Check> {};
INSTANTIATE_TEST_SUITE_P(All, OpCaseTest, ::testing::ValuesIn(checks()), [](const auto& parameter) {
  return parameter.param.checked->id + "_" + parameter.param.name;
});

TEST_P(OpCaseTest, Passes) { GetParam().run(GetParam().checked->op); }

TEST(OpCaseTests, IncludeEveryCheck) {
  std::map<std::string, int> counts;
  for (const Check& check : checks()) ++counts[check.name];
  EXPECT_EQ(counts.size(), 4u);
  for (const auto& [name, count] : counts) EXPECT_GE(count, 500) << name;
}

/// An operation whose operands must be on one device.
class OpTest : public ::testing::TestWithParam<const Operation*> {};

std::vector<const Operation*> operations() {
  std::vector<const Operation*> result;
  for (const Operation& operation : op_cases().operations) {
    if (!operation.cases.empty()) result.push_back(&operation);
  }
  return result;
}
INSTANTIATE_TEST_SUITE_P(All, OpTest, ::testing::ValuesIn(operations()), [](const auto& parameter) {
  std::string name = parameter.param->name();
  for (char& c : name) c = std::isalnum(static_cast<unsigned char>(c)) ? c : '_';
  return str(name, '_', parameter.index);
});

constexpr DType kHalfTypes[] = {kBFloat16, kFloat16};

bool is_cast(const Input& input) { return !input.dtype && input.autocast; }

/// The tensors with the inputs that autocast casts, or with all floating inputs, converted to another dtype.
Tensors converted(const OpCase& op, Tensors tensors, DType dtype, bool all = false) {
  for (size_t i = 0; i < tensors.size(); ++i) {
    if (is_cast(op.inputs[i]) || (all && !op.inputs[i].dtype)) tensors[i] = tensors[i].detach().to(dtype);
  }
  return tensors;
}

/// The result on copies of the inputs, which an operation may change, and with the same random numbers each time.
Tensor run(const OpCase& op, const Tensors& inputs, std::optional<DType> autocast_dtype = {}) {
  Tensors copies;
  for (const Tensor& input : inputs) copies.push_back(input.clone());
  manual_seed(1);
  std::optional<Autocast> autocast;
  if (autocast_dtype) autocast.emplace(*autocast_dtype);
  return op.run(copies);
}

/// The dtype to which operands of `dtype` are cast under autocast to `half`.
DType dtype_under(std::optional<CastPolicy> policy, DType dtype, DType half) {
  if (policy == CastPolicy::kLowPrecision) return half;
  if (policy == CastPolicy::kFloat32) return kFloat32;
  return dtype;
}

void check_autocast(const Operation& operation) {
  for (const OpCase& op : operation.cases) {
    for (const DType half : kHalfTypes) {
      for (const DType dtype : {kFloat32, half}) {
        SCOPED_TRACE(str(operation.declaration, " ", dtype, " autocast to ", half));
        const Tensors inputs = make_inputs(op, dtype);
        const DType expected = dtype_under(operation.autocast, dtype, half);
        const Tensor out = run(op, inputs, half), by_hand = run(op, converted(op, inputs, expected));
        EXPECT_TRUE(same_bits(out, by_hand)) << describe(out) << ", by hand " << describe(by_hand);
      }
    }
  }
}

TEST_P(OpTest, AutocastCastsOperandsByThePolicy) { check_autocast(*GetParam()); }

TEST(OpTests, FindAWrongAutocastPolicy) {
  using Policies = std::vector<std::optional<CastPolicy>>;
  const Policies all = {std::nullopt, CastPolicy::kLowPrecision, CastPolicy::kFloat32, CastPolicy::kWidest};
  for (const Operation* operation : operations()) {
    if (operation->name() != "exp" && operation->name() != "matmul") continue;
    for (const std::optional<CastPolicy>& policy : all) {
      Operation changed = *operation;
      changed.autocast = policy;
      EXPECT_EQ(num_failures([&] { check_autocast(changed); }) == 0, policy == operation->autocast)
          << operation->declaration;
    }
  }
}

/// Fills blocks of all sizes with signaling NaNs, which uninitialized elements of float32 and float64 then are.
void poison_free_memory() {
  Tensors blocks;
  for (int64_t bytes = 64; bytes <= 1 << 20; bytes += std::max<int64_t>(64, bytes / 8)) {
    for (int copy = 0; copy < 3; ++copy) blocks.push_back(full({bytes / 8}, 0x7ff400007fa00000, {kInt64}));
  }
}

/// FE_INVALID and FE_DIVBYZERO as far as forward and backward of the case raise them in this thread.
int raised_exceptions(const OpCase& op, DType dtype) {
  Tensors inputs = make_inputs(op, dtype);
  for (size_t i = 0; i < inputs.size() && op.has_gradient && !op.in_place; ++i) {
    if (inputs[i].defined() && is_floating_point(inputs[i].dtype()) && op.inputs[i].differentiable)
      inputs[i].requires_grad_();
  }
  poison_free_memory();
  std::feclearexcept(FE_ALL_EXCEPT);
  const Tensor out = op.run(inputs);
  if (out.requires_grad()) out.backward(ones_like(out.detach()));
  return std::fetestexcept(FE_INVALID | FE_DIVBYZERO);
}

// Programs that trap floating-point exceptions end otherwise.
TEST_P(OpTest, FiniteDataRaiseNoException) {
  if (!test_device().is_cpu()) return;  // only CPUs have traps
  const int before = num_threads();
  set_num_threads(1);
  for (const OpCase& op : GetParam()->cases) {
    for (const DType dtype : op.dtypes) {
      EXPECT_EQ(raised_exceptions(op, dtype), 0) << op.name << " of " << dtype;
    }
  }
  set_num_threads(before);
}

TEST(OpTests, FindARaisedException) {
  if (!test_device().is_cpu()) return;
  const auto divide = [](const Tensors& x) { return div(x[0], sub(x[0], x[0])); };
  EXPECT_EQ(raised_exceptions({.name = "div", .inputs = {{"x", {3}}}, .run = divide, .has_gradient = false}, kFloat32),
            FE_DIVBYZERO);
}

TEST_P(OpTest, AutocastUnifiesMixedOperands) {
  if (!GetParam()->autocast) return;
  for (const OpCase& op : GetParam()->cases) {
    if (std::count_if(op.inputs.begin(), op.inputs.end(), is_cast) < 2) continue;
    for (const DType half : kHalfTypes) {
      for (size_t odd = 0; odd < op.inputs.size(); ++odd) {
        if (!is_cast(op.inputs[odd])) continue;
        SCOPED_TRACE(str(GetParam()->declaration, " ", half, ", float32 ", op.inputs[odd].name));
        Tensors inputs = make_inputs(op, half);
        inputs[odd] = inputs[odd].to(kFloat32);
        const DType expected = GetParam()->autocast == CastPolicy::kLowPrecision ? half : kFloat32;
        EXPECT_TRUE(same_bits(run(op, inputs, half), run(op, converted(op, inputs, expected))));
      }
    }
  }
}

TEST_P(OpTest, AutocastKeepsFloat64) {
  for (const OpCase& op : GetParam()->cases) {
    SCOPED_TRACE(GetParam()->declaration);
    const Tensors inputs = make_inputs(op, kFloat64);
    EXPECT_TRUE(same_bits(run(op, inputs, kBFloat16), run(op, inputs)));
  }
}

/// Makes the differentiable operands leaves: all of them, or only those that autocast casts.
Tensors require_grad(const OpCase& op, Tensors tensors, bool all = true) {
  Tensors leaves;
  for (size_t i = 0; i < tensors.size(); ++i) {
    const Input& input = op.inputs[i];
    if (!tensors[i].defined() || input.dtype || !input.differentiable || !(all || input.autocast)) continue;
    leaves.push_back(tensors[i].requires_grad_());
  }
  return leaves;
}

TEST_P(OpTest, GradientsUnderAutocastHaveTheDTypeOfTheLeaf) {
  if (!GetParam()->autocast) return;
  for (const OpCase& op : GetParam()->cases) {
    if (!op.has_gradient) continue;
    for (const DType half : kHalfTypes) {
      SCOPED_TRACE(str(GetParam()->declaration, " ", half));
      const Tensors inputs = make_inputs(op, kFloat32), exact = make_inputs(op, kFloat64);
      const Tensors leaves = require_grad(op, inputs), exact_leaves = require_grad(op, exact);
      Tensor out;
      {
        const Autocast autocast(half);
        out = op.run(inputs);
      }
      const Tensor expected = op.run(exact);
      const Dense cotangent = random_dense(out.shape(), 7, -1, 1);
      out.backward(make_tensor(cotangent, out.dtype(), Layout::kContiguous, out.device()));
      expected.backward(make_tensor(cotangent, kFloat64, Layout::kContiguous, out.device()));
      const bool is_low = GetParam()->autocast == CastPolicy::kLowPrecision;
      const double tolerance = 8 * epsilon(is_low ? half : kFloat32) * std::sqrt(8 * op.terms);
      for (size_t i = 0; i < leaves.size(); ++i) {
        ASSERT_TRUE(leaves[i].grad().defined()) << i;
        EXPECT_EQ(leaves[i].grad().dtype(), kFloat32) << i;
        EXPECT_TRUE(close(leaves[i].grad(), dense(exact_leaves[i].grad()), tolerance)) << i;
      }
    }
  }
}

TEST_P(OpTest, AutocastDoesNotChangeBackward) {
  if (!GetParam()->autocast) return;
  for (const OpCase& op : GetParam()->cases) {
    if (!op.has_gradient) continue;
    for (const DType dtype : {kFloat32, kBFloat16, kFloat16}) {
      SCOPED_TRACE(str(GetParam()->declaration, " ", dtype));
      std::vector<Tensors> gradients;
      for (const bool inside : {false, true}) {
        const Tensors inputs = make_inputs(op, dtype), leaves = require_grad(op, inputs);
        Tensor out;
        {
          const Autocast autocast(kBFloat16);
          out = op.run(inputs);
          if (inside) out.backward(ones_like(out));
        }
        if (!inside) out.backward(ones_like(out));
        Tensors& own = gradients.emplace_back();
        for (const Tensor& leaf : leaves) own.push_back(leaf.grad());
      }
      for (size_t i = 0; i < gradients[0].size(); ++i) EXPECT_TRUE(same_bits(gradients[0][i], gradients[1][i])) << i;
    }
  }
}

TEST_P(OpTest, LowPrecisionOperationsRoundAsDeclared) {
  if (GetParam()->autocast != CastPolicy::kLowPrecision) return;
  for (const OpCase& op : GetParam()->cases) {
    for (const DType half : kHalfTypes) {
      SCOPED_TRACE(str(GetParam()->declaration, " ", half));
      const Tensors inputs = make_inputs(op, half), exact = converted(op, inputs, kFloat64, true);
      // The gradient of an attention mask is composed of several operations, each of which rounds.
      const Tensors leaves = require_grad(op, inputs, false), exact_leaves = require_grad(op, exact, false);
      const Tensor out = op.run(inputs), expected = op.run(exact);
      EXPECT_EQ(out.dtype(), half);
      // A rounding of a float32 result: half a unit in the last place, plus the error of float32.
      EXPECT_TRUE(close(out, dense(expected), 0.51 * op.roundings * epsilon(half)));
      const Dense cotangent = dense(make_tensor(random_dense(out.shape(), 7, -1, 1), half));
      out.backward(make_tensor(cotangent, half, Layout::kContiguous, out.device()));
      expected.backward(make_tensor(cotangent, kFloat64, Layout::kContiguous, out.device()));
      for (size_t i = 0; i < leaves.size(); ++i) {
        EXPECT_EQ(leaves[i].grad().dtype(), half) << i;
        EXPECT_TRUE(close(leaves[i].grad(), dense(exact_leaves[i].grad()), 2 * epsilon(half) * std::sqrt(op.terms)))
            << i;
      }
    }
  }
}

/// The inputs with all sizes in `emptied` replaced by 0.
OpCase emptied(OpCase op, const std::set<int64_t>& emptied) {
  for (Input& input : op.inputs) {
    for (int64_t& size : input.shape) size = emptied.contains(size) ? 0 : size;
    input.low = std::max(input.low, 0.0);
  }
  return op;
}

Tensors make_operands(const OpCase& op, bool with_optional) {
  Tensors tensors = make_inputs(op, kFloat64);
  for (size_t i = 0; i < tensors.size(); ++i) {
    if (op.inputs[i].optional && !with_optional) tensors[i] = Tensor();
  }
  return tensors;
}

Tensors that_require_grad(const Tensors& tensors) {
  Tensors result;
  for (const Tensor& t : tensors) {
    if (t.defined() && t.requires_grad()) result.push_back(t);
  }
  return result;
}

void expect_finite(const Tensors& gradients, const Tensors& of, const char* what) {
  for (size_t i = 0; i < of.size(); ++i) {
    if (!gradients[i].defined()) continue;
    EXPECT_EQ(gradients[i].shape(), of[i].shape()) << what << " " << i;
    for (const double value : gradients[i].to_vector<double>()) ASSERT_TRUE(std::isfinite(value)) << what << " " << i;
  }
}

void expect_derivatives(const OpCase& op, Tensors operands) {
  const Tensors leaves = require_grad(op, operands);
  if (op.in_place && operands[0].requires_grad()) operands[0] = operands[0] * 1;
  const Tensors roots = that_require_grad(op.run(operands).tensors);
  if (roots.empty()) return;
  Tensors cotangents;
  for (const Tensor& root : roots) cotangents.push_back(ones_like(root).requires_grad_());
  expect_finite(grad(roots, leaves, cotangents, {.retain_graph = true}), leaves, "gradient");
  if (!op.has_second_gradient) return;
  const Tensors first = grad(roots, leaves, cotangents, {.create_graph = true});
  expect_finite(first, leaves, "recorded gradient");
  const Tensors differentiable = that_require_grad(first);
  if (differentiable.empty()) return;
  Tensors ones, inputs = leaves;
  for (const Tensor& gradient : differentiable) ones.push_back(ones_like(gradient));
  inputs.insert(inputs.end(), cotangents.begin(), cotangents.end());
  expect_finite(grad(differentiable, inputs, ones), inputs, "second gradient");
}

/// Whether forward accepts the operands, or an argument check rejects them.
bool is_accepted(const OpCase& op, const Tensors& operands) {
  const NoGradGuard no_grad;
  try {
    // The copy to the CPU synchronizes the device, which then reports invalid data.
    for (const Tensor& result : op.run(operands).tensors) static_cast<void>(result.cpu());
    return true;
  } catch (const Error&) {
    return false;
  }
}

TEST_P(OpTest, EmptyOperandsHaveFiniteDerivatives) {
  int64_t num_accepted = 0;
  for (const OpCase& op : GetParam()->cases) {
    std::set<int64_t> sizes;
    for (const Input& input : op.inputs) sizes.insert(input.shape.begin(), input.shape.end());
    std::vector<std::set<int64_t>> choices = {{}};  // no size, each size, and each pair of sizes
    for (const int64_t a : sizes) {
      for (const int64_t b : sizes) {
        if (a <= b) choices.push_back({a, b});
      }
    }
    for (const std::set<int64_t>& choice : choices) {
      const OpCase empty_op = emptied(op, choice);
      std::string shapes;
      for (const Input& input : empty_op.inputs) shapes += str(" ", input.shape);
      for (const bool with_optional : {true, false}) {
        SCOPED_TRACE(str(GetParam()->declaration, shapes, with_optional ? "" : " without optional operands"));
        if (!is_accepted(empty_op, make_operands(empty_op, with_optional))) continue;
        ++num_accepted;
        EXPECT_NO_THROW(expect_derivatives(empty_op, make_operands(empty_op, with_optional)));
      }
    }
  }
  EXPECT_GT(num_accepted, 0);
}

}}  // namespace tandem::testing
