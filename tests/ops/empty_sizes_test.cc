// Every public operation, by the table of device_rows.h, on operands without elements: what forward accepts has finite first and
// second derivatives.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <set>
#include <string>
#include <vector>

#include <tandem/autograd/engine.h>
#include <tandem/autograd/grad_mode.h>
#include <tandem/ops/elementwise.h>
#include <tandem/tensor/factories.h>
#include <tandem/tests/ops/device_rows.h>

namespace tandem::testing { namespace {

/// The row's operands with zero in place of every size that `emptied` holds.
std::vector<Tensor> make_operands(const OpRow& row, const std::set<int64_t>& emptied, bool with_optional) {
  std::vector<Tensor> tensors;
  for (const Input& input : row.inputs) {
    Tensor& tensor = tensors.emplace_back();
    if (input.optional && !with_optional) continue;
    Shape shape = input.shape;
    for (int64_t& size : shape) size = emptied.contains(size) ? 0 : size;
    const DType dtype = input.dtype.value_or(kFloat64);
    Dense values = random_dense(shape, 100 + tensors.size(), std::max(input.low, 0.0), input.high);
    if (!is_floating_point(dtype))
      std::transform(values.values.begin(), values.values.end(), values.values.begin(), floor);
    tensor = make_tensor(values, dtype, Layout::kContiguous, test_device());
    if (!input.dtype && input.differentiable) tensor.set_requires_grad();
  }
  return tensors;
}

std::vector<Tensor> that_require_grad(const std::vector<Tensor>& tensors) {
  std::vector<Tensor> result;
  std::copy_if(tensors.begin(), tensors.end(), std::back_inserter(result),
               [](const Tensor& t) { return t.defined() && t.requires_grad(); });
  return result;
}

void expect_finite(const std::vector<Tensor>& gradients, const std::vector<Tensor>& of, const char* what) {
  for (size_t i = 0; i < of.size(); ++i) {
    if (!gradients[i].defined()) continue;
    EXPECT_EQ(gradients[i].shape(), of[i].shape()) << what << " " << i;
    for (const double value : gradients[i].to_vector<double>()) ASSERT_TRUE(std::isfinite(value)) << what << " " << i;
  }
}

void expect_derivatives(const OpRow& row, std::vector<Tensor> operands) {
  const std::vector<Tensor> leaves = that_require_grad(operands);
  if (row.signature.find("_(") != std::string::npos && operands[0].requires_grad()) operands[0] = operands[0] * 1;
  const std::vector<Tensor> roots = that_require_grad(row.run(operands).tensors);
  if (roots.empty()) return;
  std::vector<Tensor> cotangents;
  for (const Tensor& root : roots) cotangents.push_back(ones_like(root).set_requires_grad());
  expect_finite(grad(roots, leaves, cotangents, {.retain_graph = true}), leaves, "gradient");
  if (row.traits & kNoSecondGradient) return;
  const std::vector<Tensor> first = grad(roots, leaves, cotangents, {.create_graph = true});
  expect_finite(first, leaves, "recorded gradient");
  const std::vector<Tensor> differentiable = that_require_grad(first);
  if (differentiable.empty()) return;
  std::vector<Tensor> ones, inputs = leaves;
  for (const Tensor& gradient : differentiable) ones.push_back(ones_like(gradient));
  inputs.insert(inputs.end(), cotangents.begin(), cotangents.end());
  expect_finite(grad(differentiable, inputs, ones), inputs, "second gradient");
}

TEST(EmptySizes, AcceptedEmptyOperandsHaveFiniteDerivatives) {
  int64_t num_accepted = 0;
  for (const OpRow& row : op_rows()) {
    std::set<int64_t> sizes;
    for (const Input& input : row.inputs) sizes.insert(input.shape.begin(), input.shape.end());
    std::vector<std::set<int64_t>> choices;  // each size alone, and each pair of them
    for (const int64_t a : sizes) {
      for (const int64_t b : sizes) {
        if (a <= b) choices.push_back({a, b});
      }
    }
    for (const std::set<int64_t>& emptied : choices) {
      for (const bool with_optional : {true, false}) {
        std::string shapes;
        for (const Tensor& tensor : make_operands(row, emptied, with_optional)) {
          shapes += tensor.defined() ? str(" ", tensor.shape()) : " none";
        }
        SCOPED_TRACE(row.signature + shapes);
        try {
          const NoGradGuard no_grad;
          row.run(make_operands(row, emptied, with_optional));
        } catch (const Error&) {
          continue;  // an argument check
        }
        ++num_accepted;
        EXPECT_NO_THROW(expect_derivatives(row, make_operands(row, emptied, with_optional)));
      }
    }
  }
  EXPECT_GE(num_accepted, 300);
}

}}  // namespace tandem::testing
