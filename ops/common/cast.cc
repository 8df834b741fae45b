
#include <tandem/autograd/leaf.h>
#include <tandem/ops/common/call.h>
#include <tandem/ops/common/common.h>

namespace tandem { inline namespace v0 {

namespace {

/// Casts to a half type do not change float64 tensors: a program that uses float64 needs its precision.
DType cast_dtype(DType from, DType to) { return is_floating_point(from) && from != kFloat64 ? to : from; }

/// `output`, which is `input` in another dtype, with its history.
Tensor recorded_cast(const Tensor& input, const Tensor& output) {
  if (is_floating_point(output.dtype())) {
    ops::record_gradient("to", output, {&input}, [dtype = input.dtype()](const Tensor& g) { return to(g, dtype); });
  }
  return output;
}

/// As to(), by the copy of a parameter if there is one.
Tensor cast_to(const Tensor& input, DType dtype) {
  if ((dtype == kFloat16 || dtype == kBFloat16) && autograd::is_copied_by_autocast(input)) {
    const Tensor copy = autograd::leaf(input).rounded.get(input, dtype);
    if (copy.defined()) return recorded_cast(input, copy);
  }
  return to(input, dtype);
}

}  // namespace

void ops::autocast(CastPolicy policy, std::span<Tensor* const> tensors) {
  if (policy != CastPolicy::kWidest) {
    for (Tensor* tensor : tensors) {
      if (tensor->defined()) *tensor = cast_to(*tensor, dtype_for(policy, tensor->dtype()));
    }
    return;
  }
  DType widest = kFloat16;
  bool first = true;
  for (const Tensor* tensor : tensors) {
    if (!tensor->defined() || !is_floating_point(tensor->dtype())) continue;
    widest = first ? tensor->dtype() : promote(widest, tensor->dtype());
    first = false;
  }
  for (Tensor* tensor : tensors) {
    if (tensor->defined() && is_floating_point(tensor->dtype())) *tensor = to(*tensor, widest);
  }
}

void cast_for(CastPolicy policy, std::initializer_list<Tensor*> tensors) {
  if (RankContext::current().autocast >= 0) [[unlikely]]
    ops::autocast(policy, {tensors.begin(), tensors.size()});
}

DType dtype_for(CastPolicy policy, DType dtype) {
  const int8_t low_precision = RankContext::current().autocast;
  if (low_precision < 0) return dtype;
  return cast_dtype(dtype, policy == CastPolicy::kFloat32 ? kFloat32 : static_cast<DType>(low_precision));
}

Autocast::Autocast(DType dtype) : previous_(RankContext::current().autocast) {
  TANDEM_CHECK(DTypeError, dtype == kFloat16 || dtype == kBFloat16, "Autocast: dtype must be float16 or bfloat16, not ",
               dtype);
  RankContext::current().autocast = static_cast<int8_t>(dtype);
}

Autocast::~Autocast() { RankContext::current().autocast = previous_; }

Tensor to(const Tensor& input, DType dtype) {
  ops::check_input<StateError>("to", input, input.defined(), "input is undefined");
  return input.dtype() == dtype ? input : recorded_cast(input, ops::converted(input, dtype));
}

Tensor Tensor::to(DType dtype) const { return tandem::to(*this, dtype); }

}}  // namespace tandem::v0
