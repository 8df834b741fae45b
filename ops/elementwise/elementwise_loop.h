// Helpers of elementwise operator functions: loops over broadcast tensors, numbers as arguments, promotion, checks.
// Private to ops/.
#pragma once

#include <algorithm>
#include <array>
#include <cstring>

#include <tandem/ops/common/call.h>
#include <tandem/ops/common/common.h>
#include <tandem/ops/elementwise/elementwise_kernels.h>

namespace tandem { inline namespace v0 { namespace ops {

/// The loop over `shape` with num_elements elements, for operands that broadcast to it; a null operand is a single
/// number.
template <int N>
StridedLoop<N> make_loop(const Shape& shape, int64_t num_elements, const std::array<const Tensor*, N>& operands) {
  StridedLoop<N> loop;
  loop.num_elements = num_elements;
  const Tensor& out = *operands[0];
  const bool dense = out.is_contiguous() || is_dense(out.shape(), out.strides());
  bool flat = dense;  // each operand is one contiguous range in the same order, or one element
  for (const Tensor* t : operands) {
    flat = flat &&
           (t == nullptr || t->numel() == 1 ||
            (t->numel() == num_elements && (out.is_contiguous() ? t->is_contiguous() : t->strides() == out.strides())));
  }
  if (flat || num_elements <= 1) {
    loop.sizes.push_back(num_elements);
    for (int k = 0; k < N; ++k) {
      const bool steps = operands[k] != nullptr && (k == 0 || operands[k]->numel() != 1);
      loop.strides[k].push_back(steps ? 1 : 0);
    }
    return loop;
  }
  std::array<Shape, N> strides;
  for (int k = 0; k < N; ++k) {
    strides[k] = operands[k] == nullptr ? Shape(shape.size(), 0) : broadcast_strides(*operands[k], shape);
  }
  SmallVector<size_t, 6> order;  // dimensions in the memory order of the output
  for (size_t d = 0; d < shape.size(); ++d) {
    if (shape[d] != 1) order.push_back(d);
  }
  if (!out.is_contiguous()) {
    std::stable_sort(order.begin(), order.end(), [&](size_t a, size_t b) { return strides[0][a] > strides[0][b]; });
  }
  for (const size_t d : order) {
    bool merges = !loop.sizes.empty();
    for (int k = 0; k < N && merges; ++k) merges = loop.strides[k].back() == shape[d] * strides[k][d];
    if (merges) {
      loop.sizes.back() *= shape[d];
      for (int k = 0; k < N; ++k) loop.strides[k].back() = strides[k][d];
    } else {
      loop.sizes.push_back(shape[d]);
      for (int k = 0; k < N; ++k) loop.strides[k].push_back(strides[k][d]);
    }
  }
  return loop;
}

/// A number as an operand of kernels: one element of a dtype.
class Element {
 public:
  Element(Scalar value, DType dtype) {
    visit_dtype(dtype, [&]<class T>() {
      const T converted = value.to<T>();
      std::memcpy(bytes_, &converted, sizeof(T));
    });
  }
  Source source() const { return {bytes_, true}; }

 private:
  alignas(8) std::byte bytes_[8];
};

/// dtype of an operation on `tensor` and `number`.
inline DType dtype_with(const Tensor& tensor, Scalar number) {
  return result_dtype(tensor.dtype(), number.dtype() == kFloat64 ? kFloat32 : number.dtype());
}

/// The compute dtype of division, exp and log.
inline DType floating_or_float32(DType dtype) { return is_floating_point(dtype) ? dtype : kFloat32; }

/// Converts to `dtype` if needed. The common case, no conversion, costs one comparison.
inline void convert(Tensor& tensor, DType dtype) {
  if (tensor.dtype() != dtype) tensor = to(tensor, dtype);
}
inline void promote_operands(Tensor& a, Tensor& b) {
  if (a.dtype() == b.dtype()) return;
  const DType dtype = result_dtype(a, b);
  convert(a, dtype);
  convert(b, dtype);
}

/// f(input), where half types are computed in float32 and rounded once.
template <class F>
Tensor in_float32(const Tensor& input, const F& f) {
  return to(f(to(input, promote(input.dtype(), kFloat32))), input.dtype());
}

/// An uninitialized result of the arguments a and b with these names.
inline Tensor empty_for(const char* op, const char* const (&names)[2], const Tensor& a, const Tensor& b, DType dtype) {
  if (a.shape() == b.shape()) return empty_preserving_layout(a, dtype);
  const Shape shape = broadcast_shape(op, {{names[0], a}, {names[1], b}});
  if (shape == a.shape()) return empty_preserving_layout(a, dtype);
  if (shape == b.shape()) return empty_preserving_layout(b, dtype);
  return empty(shape, {dtype, a.device()});
}

/// `number` as a 0-dim tensor on other's device, of the dtype of an operation on both; an integer wraps around.
Tensor number_with(const Tensor& other, Scalar number);

// Checks of arguments, defined in elementwise.cc:

void check_not_bool(const char* op, const char* name, const Tensor& tensor);
void check_not_bool(const char* op, const char* name, Scalar value);
/// Throws StateError if elements of `self` share memory, DTypeError if `result` is of a higher kind than self.
void check_in_place(const char* op, const Tensor& self, DType result);
/// `other` converted for an in-place operation: self's dtype, and no memory shared with self. Throws ShapeError if it
/// does not broadcast.
Tensor in_place_argument(const char* op, const Tensor& self, const Tensor& other, const char* name = "other");
/// self = src, broadcast and converted: copy_, also for in-place forms that compute a new tensor first.
const Tensor& copy_in_place(const char* op, const Tensor& self, const Tensor& src);
/// autograd::begin_in_place for a result computed from `self` and `others`.
template <class... Tensors>
void begin_in_place(const char* op, const Tensor& self, const Tensors&... others) {
  autograd::begin_in_place(op, self, is_floating_point(self.dtype()) && autograd::should_record(self, others...));
}

}}}  // namespace tandem::v0::ops
