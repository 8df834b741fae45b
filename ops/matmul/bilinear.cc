#include <utility>

#include <tandem/base/rank_context.h>
#include <tandem/ops/common/call.h>
#include <tandem/ops/common/common.h>
#include <tandem/ops/elementwise.h>
#include <tandem/ops/matmul.h>
#include <tandem/ops/view.h>

namespace tandem { inline namespace v0 {

using namespace ops;

namespace {

/// Autocast would round the operands of products in float32 again.
struct WithoutAutocast {
  int8_t previous = std::exchange(RankContext::current().autocast, int8_t{-1});
  ~WithoutAutocast() { RankContext::current().autocast = previous; }
};

}  // namespace

Tensor bilinear(Tensor input1, Tensor input2, Tensor weight, Tensor bias) {
  const Call call("bilinear", CastPolicy::kLowPrecision,
                  {{"input1", &input1}, {"input2", &input2}, {"weight", &weight}, {"bias", &bias, kOptional}},
                  DTypes::kSameFloating);
  call.require(weight.dim() == 3, "weight must have 3 dimensions, [out, in1, in2]");
  const Shape &first = input1.shape(), &second = input2.shape();
  call.require(!first.empty() && first.back() == weight.size(1), "the last dimension of input1 must have size ",
               weight.size(1));
  call.require(!second.empty() && second.back() == weight.size(2), "the last dimension of input2 must have size ",
               weight.size(2));
  call.require(Shape(first.begin(), first.end() - 1) == Shape(second.begin(), second.end() - 1),
               "input1 and input2 must have equal sizes but for the last");
  call.require(!bias.defined() || bias.shape() == Shape{weight.size(0)}, "bias must have shape [", weight.size(0), "]");
  const WithoutAutocast without_autocast;
  const DType dtype = input1.dtype(), wide = promote(dtype, kFloat32);
  const int64_t out = weight.size(0), in1 = weight.size(1), in2 = weight.size(2);
  Shape shape = input1.shape();
  shape.back() = out;
  const int64_t rows = num_elements(Shape(shape.begin(), shape.end() - 1));
  // [rows, in1] @ [in1, out in2], then for each row [out, in2] @ [in2, 1].
  const Tensor weights = to(weight, wide).permute({1, 0, 2}).reshape({in1, out * in2});
  const Tensor products = matmul(to(input1, wide).reshape({rows, in1}), weights).view({rows, out, in2});
  Tensor result = bmm(products, to(input2, wide).reshape({rows, in2, 1})).reshape(shape);
  if (bias.defined()) result = add(result, to(bias, wide));
  return to(result, dtype);
}

}}  // namespace tandem::v0
