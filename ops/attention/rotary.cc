#include <cmath>

#include <tandem/ops/attention.h>
#include <tandem/ops/attention/attention_pass.h>
#include <tandem/ops/attention/rotary_kernels.h>
#include <tandem/ops/common/call.h>
#include <tandem/ops/common/common.h>
#include <tandem/ops/elementwise.h>
#include <tandem/ops/math.h>

namespace tandem { inline namespace v0 {

using namespace ops;

RotaryTables rotary_tables(int64_t length, int64_t head_dim, const RotaryTablesOptions& options) {
  TANDEM_CHECK(ValueError, length >= 0, "rotary_tables: length is ", length, ", expected at least 0");
  TANDEM_CHECK(ValueError, head_dim >= 2 && head_dim % 2 == 0, "rotary_tables: head_dim is ", head_dim,
               ", expected an even number of at least 2");
  TANDEM_CHECK(ValueError, options.base > 0, "rotary_tables: base is ", options.base, ", expected a positive number");
  const TensorOptions exact{kFloat64, options.device};
  const Tensor frequencies =
      tandem::exp(mul(arange(0, head_dim, 2, exact), -std::log(options.base) / static_cast<double>(head_dim)));
  const Tensor positions = add(arange(0, length, 1, exact), options.offset).unsqueeze(1);
  const Tensor angles = mul(positions, frequencies);
  return {tandem::cos(angles).to(kFloat32), tandem::sin(angles).to(kFloat32)};
}

namespace {

/// x rotated by the angles of tables in compute_dtype, or by the negative angles; recorded.
Tensor rotated(const Tensor& x, const Tensor& cos, const Tensor& sin, bool interleaved, bool is_inverse) {
  const Tensor input = dense_rows(x, x.dtype()), out = empty_in_order(x, x.shape(), x.dtype());
  const int64_t half = x.size(-1) / 2;
  Shape shape = x.shape(), x_strides = input.strides(), out_strides = out.strides();
  shape.back() = half;
  x_strides.back() = out_strides.back() = interleaved ? 2 : 1;
  TANDEM_KERNEL(kernel_context(x.device()), rotary_embedding,
                {x.dtype(), shape, x_strides, out_strides, interleaved ? 1 : half, input.data_ptr(), cos.data_ptr(),
                 sin.data_ptr(), is_inverse, out.data_ptr()});
  record_gradient("rotary_embedding", out, {&x}, {{"cos", cos}, {"sin", sin}},
                  [interleaved, is_inverse](const Tensor& grad, const Tensor& c, const Tensor& s) {
                    return rotated(grad, c, s, interleaved, !is_inverse);
                  });
  return out;
}

}  // namespace

Tensor rotary_embedding(const Tensor& x, const Tensor& cos, const Tensor& sin, bool interleaved) {
  constexpr const char* kName = "rotary_embedding";
  const Call call(kName, {{"x", x}, {"cos", cos}, {"sin", sin}});
  for (const Operand& operand : call.operands) check_floating(kName, operand);
  call.require(x.dim() >= 2 && x.size(-1) % 2 == 0, "x must have at least 2 dimensions and an even last one");
  const Shape expected = {x.size(-2), x.size(-1) / 2};
  call.require(cos.shape() == expected && sin.shape() == expected, "cos and sin must have the shape ", expected);
  call.require<StateError>(!autograd::should_record(cos, sin), "cos and sin must not require grad; detach them");
  const auto table = [&](const Tensor& tensor) { return row_major(tensor.to(compute_dtype(x.dtype()))); };
  return rotated(x, table(cos), table(sin), interleaved, /*is_inverse=*/false);
}

}}  // namespace tandem::v0
