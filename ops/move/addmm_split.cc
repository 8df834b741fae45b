#include <tandem/ops/addmm_split.h>

#include <deque>
#include <functional>
#include <string>

#include <tandem/base/thread.h>
#include <tandem/ops/cast.h>
#include <tandem/ops/comm.h>
#include <tandem/ops/common/common.h>
#include <tandem/ops/elementwise.h>
#include <tandem/ops/matmul.h>
#include <tandem/ops/move/device_copy.h>
#include <tandem/ops/view.h>

namespace tandem { inline namespace v0 {

namespace {

using autograd::BackwardContext;
using autograd::Node;
using autograd::SavedTensor;
using ops::operand_error;

/// Calls fn(i) for all parts concurrently; sequentially if operations are recorded, because only the rank's own thread
/// may record.
void for_parts(size_t num_parts, const std::function<void(size_t i)>& fn) {
  if (is_grad_enabled()) {
    for (size_t i = 0; i < num_parts; ++i) fn(i);
  } else {
    run_concurrently(static_cast<int>(num_parts), [&](int i) { fn(static_cast<size_t>(i)); });
  }
}

/// The size of part i of the result along the split dimension.
int64_t part_size(SplitDim split, const Tensor& mat1, const Tensor& mat2) {
  return split == SplitDim::kRows ? mat1.size(0) : mat2.size(1);
}

struct AddmmSplitNode : Node {
  SplitDim split = SplitDim::kRows;
  std::deque<SavedTensor> mat1, mat2;
  std::vector<int64_t> sizes;  ///< sizes of the result's parts, for kRows and kColumns
  std::vector<Device> devices;
  Shape input_shape;
  Scalar beta = 1, alpha = 1;

  TensorList backward(BackwardContext& context) override {
    const size_t n = mat1.size();
    const Tensor& grad = context.grad();
    TensorList grads(1 + 2 * n);
    if (context.needs(0)) grads[0] = ops::sum_to_shape(mul(grad, beta), input_shape);
    std::vector<Tensor> parts(n, grad);
    for (size_t i = 0, begin = 0; i < n && split != SplitDim::kInner; ++i) {
      const int64_t first = static_cast<int64_t>(begin);
      parts[i] = grad.slice(split == SplitDim::kRows ? 0 : 1, first, first + sizes[i]);
      begin += static_cast<size_t>(sizes[i]);
    }
    std::vector<Device> targets = devices;
    for (size_t i = 0; i < n; ++i) {
      const bool is_used = context.needs(static_cast<int>(1 + i)) || context.needs(static_cast<int>(1 + n + i));
      if (!is_used) targets[i] = parts[i].device();  // is not copied
    }
    parts = ops::move_each(name(), parts, targets, {});
    std::vector<Tensor> a(n), b(n);
    for (size_t i = 0; i < n; ++i) {
      if (context.needs(static_cast<int>(1 + n + i))) a[i] = mat1[i].get();
      if (context.needs(static_cast<int>(1 + i))) b[i] = mat2[i].get();
    }
    for_parts(n, [&](size_t i) {
      if (b[i].defined()) grads[1 + i] = mul(matmul(parts[i], b[i].t()), alpha);
      if (a[i].defined()) grads[1 + n + i] = mul(matmul(a[i].t(), parts[i]), alpha);
    });
    return grads;
  }
};

/// Checks the operands of each part, and all parts together; returns the result's shape.
Shape check_parts(const Tensor& input, const std::vector<Tensor>& mat1, const std::vector<Tensor>& mat2, SplitDim split,
                  Device device) {
  constexpr const char* kOp = "addmm_split";
  TANDEM_CHECK(ValueError, !mat1.empty() && mat1.size() == mat2.size(), kOp, ": ", mat1.size(), " parts of mat1 and ",
               mat2.size(), " of mat2, must be equal and at least 1");
  TANDEM_CHECK(StateError, input.defined(), operand_error(kOp, "input is undefined", {{"input", input}}));
  TANDEM_CHECK(DeviceError, input.device() == device,
               operand_error(kOp, str("input must be on the result's device, ", device), {{"input", input}}, {},
                             str("move it with input.to(", device, ")")));
  int64_t split_size = 0;
  for (size_t i = 0; i < mat1.size(); ++i) {
    const std::string name1 = str("mat1[", i, "]"), name2 = str("mat2[", i, "]");
    const ops::Operands pair = {{name1.c_str(), mat1[i]}, {name2.c_str(), mat2[i]}};
    static_cast<void>(ops::check_same_device(kOp, pair));
    ops::check_floating(kOp, {"input", input});
    const ops::Operand all[] = {{"input", input}, {name1.c_str(), mat1[i]}, {name2.c_str(), mat2[i]}};
    ops::check_same_dtype(kOp, all);
    TANDEM_CHECK(ShapeError, mat1[i].dim() == 2 && mat2[i].dim() == 2,
                 operand_error(kOp, "mat1 and mat2 must have 2 dimensions", pair));
    TANDEM_CHECK(ShapeError, mat1[i].size(1) == mat2[i].size(0),
                 operand_error(kOp, str("inner sizes ", mat1[i].size(1), " and ", mat2[i].size(0), " differ"), pair));
    const bool alike = (split == SplitDim::kRows || mat1[i].size(0) == mat1[0].size(0)) &&
                       (split == SplitDim::kColumns || mat2[i].size(1) == mat2[0].size(1)) &&
                       (split == SplitDim::kInner || mat1[i].size(1) == mat1[0].size(1));
    TANDEM_CHECK(ShapeError, alike,
                 operand_error(
                     kOp, "parts differ in a dimension that is not split",
                     {{"mat1[0]", mat1[0]}, {"mat2[0]", mat2[0]}, {name1.c_str(), mat1[i]}, {name2.c_str(), mat2[i]}}));
    split_size += part_size(split, mat1[i], mat2[i]);
  }
  Shape shape = {mat1[0].size(0), mat2[0].size(1)};
  if (split != SplitDim::kInner) shape[split == SplitDim::kRows ? 0 : 1] = split_size;
  bool expands = input.dim() <= 2;
  for (int64_t d = 1; d <= input.dim() && expands; ++d) {
    expands = input.size(-d) == 1 || input.size(-d) == shape[static_cast<size_t>(2 - d)];
  }
  TANDEM_CHECK(ShapeError, expands, operand_error(kOp, str("input does not broadcast to ", shape), {{"input", input}}));
  return shape;
}

}  // namespace

Tensor addmm_split(const Tensor& input_argument, const std::vector<Tensor>& mat1_argument,
                   const std::vector<Tensor>& mat2_argument, SplitDim split, Device device, Scalar beta, Scalar alpha) {
  Tensor input = input_argument;
  std::vector<Tensor> mat1 = mat1_argument, mat2 = mat2_argument;
  cast_for(CastPolicy::kLowPrecision, {&input});
  for (Tensor& part : mat1) cast_for(CastPolicy::kLowPrecision, {&part});
  for (Tensor& part : mat2) cast_for(CastPolicy::kLowPrecision, {&part});
  const Shape shape = check_parts(input, mat1, mat2, split, device);
  const size_t n = mat1.size();
  const int64_t element = size_of(input.dtype());
  ops::DeviceCopy needed("addmm_split", {});
  needed.expect_result(device, num_elements(shape) * element);
  for (size_t i = 0; i < n; ++i) {
    needed.expect_result(mat1[i].device(), mat1[i].size(0) * mat2[i].size(1) * element);
  }
  needed.check_memory();

  Tensor out;
  {
    const NoGradGuard no_grad;
    std::vector<Tensor> products(n);
    for_parts(n, [&](size_t i) {
      products[i] = matmul(mat1[i], mat2[i]);
      if (alpha.to_double() != 1) products[i].mul_(alpha);
    });
    out = split == SplitDim::kInner ? comm::sum_to(device, products)
                                    : comm::gather(products, split == SplitDim::kRows ? 0 : 1, device);
    products.clear();
    if (beta.to_double() != 0) out.add_(input, beta);
  }
  std::vector<Tensor> inputs = {input};
  inputs.insert(inputs.end(), mat1.begin(), mat1.end());
  inputs.insert(inputs.end(), mat2.begin(), mat2.end());
  if (auto* node = autograd::record_list<AddmmSplitNode>("addmm_split", out, inputs)) {
    node->split = split;
    for (size_t i = 0; i < n; ++i) {
      node->mat1.emplace_back(*node, "mat1").save(mat1[i]);
      node->mat2.emplace_back(*node, "mat2").save(mat2[i]);
      node->sizes.push_back(part_size(split, mat1[i], mat2[i]));
      node->devices.push_back(mat1[i].device());
    }
    node->input_shape = input.shape();
    node->beta = beta;
    node->alpha = alpha;
  }
  return out;
}

}}  // namespace tandem::v0
