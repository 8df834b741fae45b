// The tensor: a cheap handle to shape, strides and shared storage.
#pragma once

#include <cstdint>
#include <functional>
#include <initializer_list>
#include <iosfwd>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <tuple>
#include <type_traits>
#include <utility>
#include <vector>

#include <tandem/base/error.h>
#include <tandem/base/hook_handle.h>
#include <tandem/base/macros.h>
#include <tandem/base/ref_counted.h>
#include <tandem/tensor/device.h>
#include <tandem/tensor/dtype.h>
#include <tandem/tensor/scalar.h>
#include <tandem/tensor/shape.h>
#include <tandem/tensor/storage.h>

namespace tandem { inline namespace v0 {

class Generator;
class Tensor;
struct ValuesIndices;
class TensorIndex;               ///< ops/index.h
enum class ScatterReduce : int;  ///< ops/index.h

/// Options of tensor factories.
struct TensorOptions {
  DType dtype = kFloat32;      ///< element type
  Device device = {};          ///< where the memory is
  bool requires_grad = false;  ///< whether the new leaf accumulates a gradient in backward
};

/// The object behind Tensor handles: shape, strides, storage, and position in the autograd graph. Internal; use Tensor.
struct TANDEM_API TensorImpl : RefCounted {
  /// A tensor of shape `sizes` and strides `steps` that begins at element `start` of `memory`.
  TensorImpl(RefPtr<Storage> memory, DType type, const Shape& sizes, const Shape& steps, int64_t start);

  RefPtr<Storage> storage;       ///< the memory
  DType dtype;                   ///< element type
  bool requires_grad = false;    ///< for leaves only; a tensor with a node always requires grad
  bool is_row_major;             ///< whether the elements are contiguous in row-major order
  bool is_view = false;          ///< made by a view operation from another tensor
  bool has_node = false;         ///< `autograd` is the node that made this tensor; else a leaf's state or null
  uint32_t history_version = 0;  ///< storage version when the node was set or the tensor last changed in place
  int64_t offset;                ///< position of the first element in the storage, in elements
  int64_t num_elements;          ///< product of the sizes
  Shape shape;                   ///< sizes
  Shape strides;                 ///< in elements; may be 0 (expanded), never negative
  RefPtr<RefCounted> autograd;   ///< autograd::Node or autograd::Leaf, see has_node
};

/// An n-dimensional array on one device.
///
/// A Tensor is a handle: copies share the data. A const Tensor is a const handle; its data can still be changed. A
/// default-constructed Tensor is undefined: it may be passed only for arguments documented as [optional]; any other use
/// throws StateError. Concurrent reads are thread-safe, writes are not.
class TANDEM_API Tensor {
 public:
  Tensor() = default;
  /// A handle of an existing object. Internal.
  explicit Tensor(RefPtr<TensorImpl> impl) : impl_(std::move(impl)) {}
  Tensor(const Tensor&) = default;
  Tensor(Tensor&&) = default;
  Tensor& operator=(const Tensor&) & = default;
  Tensor& operator=(Tensor&&) & = default;
  /// Assignment to an expression, such as `x[0] = row` or `x.grad() = g`: copy_, in the memory that the expression
  /// shares with other tensors. Assignment to a variable makes it refer to the other tensor instead. Throws StateError
  /// if the expression is undefined, or a new tensor that nothing else refers to, since the values would be lost.
  Tensor operator=(const Tensor& src) &&;
  /// Assignment of a number to an expression, such as `x[0] = 1.5`: fill_.
  Tensor operator=(Scalar value) &&;
  /// A variable does not become a number: use fill_, or assign full({}, value).
  Tensor& operator=(Scalar value) & = delete;

  // --- attributes -------------------------------------------------------------------------------------------------
  bool defined() const { return static_cast<bool>(impl_); }  ///< false for a default-constructed tensor
  const Shape& shape() const& { return impl().shape; }       ///< sizes
  const Shape& sizes() const& { return impl().shape; }       ///< shape()
  Shape shape() && { return impl().shape; }                  ///< a copy, which outlives the temporary tensor
  Shape sizes() && { return impl().shape; }                  ///< a copy, which outlives the temporary tensor
  /// Size of dimension d; a negative d counts from the end. Throws IndexError, also for a tensor without dimensions.
  int64_t size(int64_t d) const;
  const Shape& strides() const& { return impl().strides; }  ///< in elements; 0 along expanded dimensions
  Shape strides() && { return impl().strides; }             ///< a copy, which outlives the temporary tensor
  int64_t dim() const { return impl().shape.dim(); }        ///< number of dimensions
  int64_t numel() const { return impl().num_elements; }     ///< product of the sizes
  /// Size of the elements in bytes.
  int64_t num_bytes() const { return impl().num_elements * size_of(impl().dtype); }
  DType dtype() const { return impl().dtype; }                ///< element type
  Device device() const { return impl().storage->device(); }  ///< where the memory is
  /// The dtype and device, for factories; requires_grad is false.
  TensorOptions options() const { return {dtype(), device()}; }
  /// Whether the elements are contiguous in row-major order.
  bool is_contiguous() const { return impl().is_row_major; }
  /// Whether both handles refer to the same tensor.
  bool is_same(const Tensor& other) const { return impl_ == other.impl_; }

  // --- memory -----------------------------------------------------------------------------------------------------
  /// Pointer to the first element, in the memory of the tensor's device; the CPU may dereference it only for CPU
  /// devices. Throws DTypeError unless T is the tensor's type.
  template <class T>
  T* data() const {
    TANDEM_CHECK(DTypeError, dtype_of<T>() == dtype(), "data: expected a ", dtype_of<T>(), " tensor, got ", dtype());
    return reinterpret_cast<T*>(data_ptr());
  }
  /// Address of the first element, in the memory of the tensor's device.
  std::byte* data_ptr() const { return impl().storage->data() + impl().offset * size_of(impl().dtype); }
  /// data<T>().
  template <class T>
  T* data_ptr() const {
    return data<T>();
  }
  const RefPtr<Storage>& storage() const { return impl().storage; }  ///< the memory, shared with all views
  /// Number of in-place changes of the storage, by this tensor or any view.
  uint32_t version() const { return impl().storage->version(); }

  /// The only element as T (float, double, int64_t, bool). Copies from the device. Throws ShapeError unless the tensor
  /// has exactly one element.
  template <class T = double>
  T item() const;
  /// All elements in row-major order, converted to T. Copies from the device.
  template <class T>
  std::vector<T> to_vector() const;

  // --- autograd (defined in autograd/) ----------------------------------------------------------------------------
  /// Whether backward computes a gradient for this tensor: true for a leaf after requires_grad_(), and for the
  /// result of a recorded operation.
  bool requires_grad() const { return impl().requires_grad || impl().has_node; }
  /// Sets whether backward accumulates gradients for this leaf. Throws StateError for a non-leaf, DTypeError for a
  /// non-floating dtype.
  Tensor& requires_grad_(bool on = true);
  bool is_leaf() const { return !impl().has_node; }  ///< whether no recorded operation made this tensor
  /// The leaf's gradient; undefined if the gradient slot is empty. It is the slot itself, not a copy: after zero_grad()
  /// the next backward overwrites its values. `x.grad() = g` copies into it if it is defined; set_grad always does.
  /// For the result of an operation: the sum of its gradients since retain_grad.
  Tensor grad() const;
  /// Marks the leaf's gradient slot as empty, without writing memory.
  void zero_grad() const;
  /// Copies `grad` into the gradient slot of a leaf, or into the gradient that retain_grad keeps; undefined empties it.
  /// Throws ShapeError, DTypeError or DeviceError if it does not match this tensor, StateError if this tensor has no
  /// gradient.
  void set_grad(const Tensor& grad) const;
  /// Keeps the gradient of this result of an operation in grad(). Does nothing for a leaf. Throws StateError if it does
  /// not require grad.
  void retain_grad() const;
  /// Adds d(sum of gradient * this) / d leaf into the gradient slot of each leaf. `gradient` [optional if this has one
  /// element] has the shape, dtype and device of this tensor. retain_graph keeps saved tensors for another backward;
  /// create_graph records the backward itself, for second derivatives. The gradient of a leaf and its graph then form a
  /// reference cycle: replace the gradient (set_grad) to free them, or use tandem::grad(), which returns gradients
  /// without storing them.
  void backward(const Tensor& gradient = {}, bool retain_graph = false, bool create_graph = false) const;
  /// A tensor outside the graph that shares storage and version counter.
  Tensor detach() const;
  /// Calls f(gradient) in each backward, when the gradient of this tensor is complete, before it is passed on, or added
  /// to a leaf's grad(). If f returns a tensor, which must have the same shape, dtype and device, it replaces the
  /// gradient. Hooks run in the order in which they were added, also in tandem::grad. Throws StateError if this tensor
  /// does not require grad. After an in-place operation, hooks still get the gradient of the old value.
  HookHandle register_hook(std::function<Tensor(const Tensor& grad)> f) const;
  /// As above, for a function that only reads the gradient.
  template <class F>
  requires std::is_void_v<std::invoke_result_t<F&, const Tensor&>> HookHandle register_hook(F f)
  const {
    return register_hook([f = std::move(f)](const Tensor& grad) mutable {
      f(grad);
      return Tensor();
    });
  }
  /// Calls f(grad()) once per backward, as soon as this leaf's gradient is complete.
  HookHandle register_post_accumulate_grad_hook(std::function<void(const Tensor& grad)> f) const;

  // --- operations, as methods (defined in ops/) --------------------------------------------------------------------
  Tensor view(const Shape& shape) const;  ///< the same memory in another shape: tandem::view
  Tensor view(IntegerType auto size, IntegerType auto... rest) const { return view(Shape::list(size, rest...)); }
  Tensor reshape(const Shape& shape) const;  ///< a view if possible, else a copy: tandem::reshape
  Tensor reshape(IntegerType auto size, IntegerType auto... rest) const { return reshape(Shape::list(size, rest...)); }
  Tensor flatten(int64_t start_dim = 0, int64_t end_dim = -1) const;  ///< joins dimensions: tandem::flatten
  Tensor transpose(int64_t dim0, int64_t dim1) const;                 ///< exchanges two dimensions: tandem::transpose
  Tensor t() const;                                                   ///< transpose of a matrix
  Tensor permute(const Shape& dims) const;                            ///< reorders the dimensions: tandem::permute
  Tensor permute(IntegerType auto dim, IntegerType auto... rest) const { return permute(Shape::list(dim, rest...)); }
  /// A range of one dimension: tandem::slice.
  Tensor slice(int64_t dim, int64_t begin, int64_t end, int64_t step = 1) const;
  Tensor select(int64_t dim, int64_t index) const;  ///< one index of a dimension, which is removed: tandem::select
  Tensor operator[](int64_t index) const& { return select(0, index); }   ///< select(0, index)
  Tensor operator[](int64_t index) &&;                                   ///< select(0, index), which alone is kept
  std::vector<Tensor> split(int64_t split_size, int64_t dim = 0) const;  ///< slices of equal size: tandem::split
  std::vector<Tensor> split(std::initializer_list<int64_t> split_sizes, int64_t dim = 0) const {
    return split_with_sizes(split_sizes, dim);
  }
  std::vector<Tensor> split_with_sizes(const Shape& split_sizes, int64_t dim = 0) const;  ///< slices of these sizes
  std::vector<Tensor> chunk(int64_t chunks, int64_t dim = 0) const;  ///< a number of slices: tandem::chunk
  Tensor expand(const Shape& shape) const;  ///< repeats dimensions of size 1 without a copy: tandem::expand
  Tensor expand(IntegerType auto size, IntegerType auto... rest) const { return expand(Shape::list(size, rest...)); }
  Tensor squeeze() const;               ///< without all dimensions of size 1: tandem::squeeze
  Tensor squeeze(int64_t dim) const;    ///< without dimension dim if its size is 1
  Tensor unsqueeze(int64_t dim) const;  ///< with a new dimension of size 1: tandem::unsqueeze
  Tensor view_as(const Tensor& other) const { return view(other.shape()); }      ///< view in the shape of `other`
  Tensor expand_as(const Tensor& other) const { return expand(other.shape()); }  ///< expand to the shape of `other`
  std::vector<Tensor> unbind(int64_t dim = 0) const;  ///< all slices along `dim`: tandem::unbind
  /// `length` indices of a dimension from `start` on: tandem::narrow.
  Tensor narrow(int64_t dim, int64_t start, int64_t length) const;
  Tensor unflatten(int64_t dim, const Shape& sizes) const;              ///< splits a dimension: tandem::unflatten
  Tensor movedim(const Shape& source, const Shape& destination) const;  ///< moves dimensions: tandem::movedim
  Tensor repeat(const Shape& repeats) const;                            ///< copies along each dimension: tandem::repeat
  Tensor repeat(IntegerType auto n, IntegerType auto... rest) const { return repeat(Shape::list(n, rest...)); }
  Tensor flip(const Shape& dims) const;                                ///< reversed dimensions: tandem::flip
  Tensor roll(const Shape& shifts, const Shape& dims = {}) const;      ///< elements shifted cyclically: tandem::roll
  Tensor unfold(int64_t dimension, int64_t size, int64_t step) const;  ///< sliding windows: tandem::unfold
  /// Each index repeated: tandem::repeat_interleave.
  Tensor repeat_interleave(int64_t repeats, std::optional<int64_t> dim = {}) const;
  /// The diagonal of matrices, a view: tandem::diagonal.
  Tensor diagonal(int64_t offset = 0, int64_t dim1 = 0, int64_t dim2 = 1) const;
  /// The diagonal of a matrix, or a matrix with this diagonal: tandem::diag.
  Tensor diag(int64_t diagonal = 0) const;
  /// this[indices] as in NumPy: x.index({Slice(1, None), None, Ellipsis, mask}): tandem::index.
  Tensor index(const std::vector<TensorIndex>& indices) const;
  Tensor index_select(int64_t dim, const Tensor& index) const;  ///< slices of a dimension: tandem::index_select
  Tensor gather(int64_t dim, const Tensor& index) const;        ///< elements along a dimension: tandem::gather
  Tensor masked_select(const Tensor& mask) const;               ///< elements where mask: tandem::masked_select
  Tensor nonzero() const;                                       ///< coordinates of nonzeros: tandem::nonzero
  Tensor tril(int64_t diagonal = 0) const;                      ///< lower triangle: tandem::tril
  Tensor triu(int64_t diagonal = 0) const;                      ///< upper triangle: tandem::triu
  Tensor contiguous() const;                                    ///< this tensor if row-major, else a row-major copy
  Tensor clone() const;  ///< a row-major copy with memory of its own: tandem::clone

  Tensor to(DType dtype) const;                ///< converted to dtype; this tensor if the dtype is equal
  Tensor to(Device device) const;              ///< copied to device; this tensor if it is already on that device
  Tensor cpu() const { return to(Device()); }  ///< to(cpu:0)

  Tensor sum() const;                                          ///< of all elements, 0-dim: tandem::sum
  Tensor sum(const Shape& dims, bool keepdim = false) const;   ///< over `dims`, which keep size 1 with keepdim
  Tensor mean() const;                                         ///< of all elements, 0-dim: tandem::mean
  Tensor mean(const Shape& dims, bool keepdim = false) const;  ///< over `dims`, which keep size 1 with keepdim
  /// Variance over `dims` (none: all), divided by count - correction: tandem::var.
  Tensor var(const Shape& dims = {}, double correction = 1, bool keepdim = false) const;
  /// Square root of var: tandem::std.
  Tensor std(const Shape& dims = {}, double correction = 1, bool keepdim = false) const;
  /// The p-norm over `dims` (none: all): tandem::norm.
  Tensor norm(double p = 2, const Shape& dims = {}, bool keepdim = false) const;
  Tensor prod() const;                                   ///< product of all elements, 0-dim: tandem::prod
  Tensor prod(int64_t dim, bool keepdim = false) const;  ///< product along `dim`
  /// log(sum(e^this)) over `dims`: tandem::logsumexp.
  Tensor logsumexp(const Shape& dims, bool keepdim = false) const;
  Tensor nansum(const Shape& dims = {}, bool keepdim = false) const;   ///< sum without NaNs: tandem::nansum
  Tensor nanmean(const Shape& dims = {}, bool keepdim = false) const;  ///< mean without NaNs: tandem::nanmean
  Tensor count_nonzero(const Shape& dims = {}) const;  ///< number of elements that are not 0: tandem::count_nonzero
  Tensor any(const Shape& dims = {}, bool keepdim = false) const;   ///< whether an element is not 0: tandem::any
  Tensor all(const Shape& dims = {}, bool keepdim = false) const;   ///< whether no element is 0: tandem::all
  Tensor max() const;                                               ///< the largest element, 0-dim: tandem::max
  Tensor min() const;                                               ///< the smallest element, 0-dim: tandem::min
  Tensor max(const Tensor& other) const;                            ///< tandem::maximum
  Tensor min(const Tensor& other) const;                            ///< tandem::minimum
  ValuesIndices max(int64_t dim, bool keepdim = false) const;       ///< the largest elements along `dim`
  ValuesIndices min(int64_t dim, bool keepdim = false) const;       ///< the smallest elements along `dim`
  Tensor amax(const Shape& dims = {}, bool keepdim = false) const;  ///< the largest elements over `dims`: tandem::amax
  Tensor amin(const Shape& dims = {}, bool keepdim = false) const;  ///< the smallest elements over `dims`
  Tensor argmax() const;  ///< position of the largest element in row-major order, int64: tandem::argmax
  Tensor argmin() const;  ///< position of the smallest element in row-major order, int64: tandem::argmin
  Tensor argmax(int64_t dim, bool keepdim = false) const;  ///< positions of the largest elements along `dim`
  Tensor argmin(int64_t dim, bool keepdim = false) const;  ///< positions of the smallest elements along `dim`
  Tensor cumsum(int64_t dim) const;                        ///< sums of the elements up to each one: tandem::cumsum
  Tensor cumprod(int64_t dim) const;                       ///< products of the elements up to each one: tandem::cumprod
  Tensor logcumsumexp(int64_t dim) const;   ///< logs of sums of exponentials up to each: tandem::logcumsumexp
  ValuesIndices cummax(int64_t dim) const;  ///< the largest element up to each one: tandem::cummax
  ValuesIndices cummin(int64_t dim) const;  ///< the smallest element up to each one: tandem::cummin
  ValuesIndices sort(int64_t dim = -1, bool descending = false) const;  ///< elements in order: tandem::sort
  Tensor argsort(int64_t dim = -1, bool descending = false) const;      ///< the sorting permutation: tandem::argsort
  /// The k-th smallest elements along `dim`: tandem::kthvalue.
  ValuesIndices kthvalue(int64_t k, int64_t dim = -1, bool keepdim = false) const;
  Tensor median() const;                                          ///< of all elements, 0-dim: tandem::median
  ValuesIndices median(int64_t dim, bool keepdim = false) const;  ///< along `dim`: tandem::median
  Tensor nanmedian() const;  ///< of all elements that are not NaN: tandem::nanmedian
  ValuesIndices nanmedian(int64_t dim, bool keepdim = false) const;  ///< along `dim`: tandem::nanmedian
  /// The k largest (or smallest) elements along `dim`: tandem::topk.
  ValuesIndices topk(int64_t k, int64_t dim = -1, bool largest = true, bool sorted = true) const;
  Tensor matmul(const Tensor& other) const;  ///< matrix product: tandem::matmul
  Tensor mm(const Tensor& mat2) const;       ///< product of two matrices: tandem::mm
  Tensor inverse() const;                    ///< of square matrices: tandem::linalg::inv
  /// Indices drawn in proportion to this: tandem::multinomial.
  Tensor multinomial(int64_t num_samples, bool replacement = false, Generator* generator = nullptr) const;
  // Comparisons: tandem::eq and so on.
  Tensor eq(const Tensor& other) const;                        ///< this == other
  Tensor ne(const Tensor& other) const;                        ///< this != other
  Tensor lt(const Tensor& other) const;                        ///< this < other
  Tensor le(const Tensor& other) const;                        ///< this <= other
  Tensor gt(const Tensor& other) const;                        ///< this > other
  Tensor ge(const Tensor& other) const;                        ///< this >= other
  Tensor eq(Scalar other) const;                               ///< this == other
  Tensor ne(Scalar other) const;                               ///< this != other
  Tensor lt(Scalar other) const;                               ///< this < other
  Tensor le(Scalar other) const;                               ///< this <= other
  Tensor gt(Scalar other) const;                               ///< this > other
  Tensor ge(Scalar other) const;                               ///< this >= other
  Tensor exp() const;                                          ///< e^this: tandem::exp
  Tensor log() const;                                          ///< natural logarithm: tandem::log
  Tensor relu() const;                                         ///< max(this, 0): tandem::relu
  Tensor tanh() const;                                         ///< hyperbolic tangent: tandem::tanh
  Tensor sigmoid() const;                                      ///< 1 / (1 + e^-this): tandem::sigmoid
  Tensor sqrt() const;                                         ///< square root: tandem::sqrt
  Tensor pow(Scalar exponent) const;                           ///< this^exponent: tandem::pow
  Tensor pow(const Tensor& exponent) const;                    ///< this^exponent: tandem::pow
  Tensor masked_fill(const Tensor& mask, Scalar value) const;  ///< `value` where mask, else this: tandem::masked_fill

  // Functions of each element: tandem::abs and so on.
  Tensor abs() const;         ///< magnitude: tandem::abs
  Tensor sign() const;        ///< -1, 0 or 1: tandem::sign
  Tensor square() const;      ///< this * this: tandem::square
  Tensor reciprocal() const;  ///< 1 / this: tandem::reciprocal
  Tensor rsqrt() const;       ///< 1 / square root: tandem::rsqrt
  Tensor floor() const;       ///< rounded down: tandem::floor
  Tensor ceil() const;        ///< rounded up: tandem::ceil
  Tensor trunc() const;       ///< rounded toward 0: tandem::trunc
  Tensor round() const;       ///< rounded to the nearest integer: tandem::round
  Tensor frac() const;        ///< fractional part: tandem::frac
  Tensor exp2() const;        ///< 2^this: tandem::exp2
  Tensor expm1() const;       ///< e^this - 1: tandem::expm1
  Tensor log2() const;        ///< logarithm to base 2: tandem::log2
  Tensor log10() const;       ///< logarithm to base 10: tandem::log10
  Tensor log1p() const;       ///< log(1 + this): tandem::log1p
  Tensor sin() const;         ///< sine: tandem::sin
  Tensor cos() const;         ///< cosine: tandem::cos
  Tensor tan() const;         ///< tangent: tandem::tan
  Tensor asin() const;        ///< arc sine: tandem::asin
  Tensor acos() const;        ///< arc cosine: tandem::acos
  Tensor atan() const;        ///< arc tangent: tandem::atan
  Tensor sinh() const;        ///< hyperbolic sine: tandem::sinh
  Tensor cosh() const;        ///< hyperbolic cosine: tandem::cosh
  Tensor erf() const;         ///< error function: tandem::erf
  Tensor erfc() const;        ///< 1 - erf: tandem::erfc
  Tensor erfinv() const;      ///< inverse of erf: tandem::erfinv
  Tensor clamp(std::optional<Scalar> min,
               std::optional<Scalar> max = {}) const;            ///< limited to [min, max]: tandem::clamp
  Tensor clamp_min(Scalar min) const { return clamp(min); }      ///< at least min: tandem::clamp_min
  Tensor clamp_max(Scalar max) const { return clamp({}, max); }  ///< at most max: tandem::clamp_max

  /// this = this + alpha * other, in place; returns this tensor. The other in-place operations follow the same rules:
  /// `other` is broadcast to this tensor's shape and converted to its dtype. Throws StateError for an expanded tensor,
  /// and for a leaf that requires grad while recording; DTypeError or ValueError if the dtype cannot represent the
  /// result.
  const Tensor& add_(const Tensor& other, Scalar alpha = 1) const;
  const Tensor& sub_(const Tensor& other, Scalar alpha = 1) const;  ///< this = this - alpha * other
  const Tensor& mul_(const Tensor& other) const;                    ///< this = this * other
  const Tensor& div_(const Tensor& other) const;                    ///< this = this / other
  const Tensor& add_(Scalar other) const;                           ///< this = this + other
  const Tensor& sub_(Scalar other) const;                           ///< this = this - other
  const Tensor& mul_(Scalar other) const;                           ///< this = this * other
  const Tensor& div_(Scalar other) const;                           ///< this = this / other
  const Tensor& fill_(Scalar value) const;                          ///< sets all elements to `value`
  const Tensor& zero_() const { return fill_(0); }                  ///< sets all elements to 0
  /// Overwrites with src, converted and broadcast. Devices must be equal.
  const Tensor& copy_(const Tensor& src) const;

  // Writes to indexed elements; arguments and errors as in the functions of ops/index.h.
  /// this[indices] = value, or += with accumulate.
  const Tensor& index_put_(const std::vector<TensorIndex>& indices, const Tensor& value, bool accumulate = false) const;
  const Tensor& index_put_(const std::vector<TensorIndex>& indices, Scalar value, bool accumulate = false) const;
  const Tensor& scatter_(int64_t dim, const Tensor& index, const Tensor& src) const;      ///< overwrites elements
  const Tensor& scatter_(int64_t dim, const Tensor& index, Scalar value) const;           ///< overwrites elements
  const Tensor& scatter_add_(int64_t dim, const Tensor& index, const Tensor& src) const;  ///< adds to elements
  /// Reduces elements with values of src.
  const Tensor& scatter_reduce_(int64_t dim, const Tensor& index, const Tensor& src, ScatterReduce reduce,
                                bool include_self = true) const;
  /// Adds alpha * source to slices.
  const Tensor& index_add_(int64_t dim, const Tensor& index, const Tensor& source, Scalar alpha = 1) const;
  const Tensor& index_copy_(int64_t dim, const Tensor& index, const Tensor& source) const;  ///< overwrites slices
  const Tensor& index_fill_(int64_t dim, const Tensor& index, Scalar value) const;          ///< fills slices
  /// Overwrites with random numbers (ops/random.h); the gradient of the old values is 0.
  const Tensor& normal_(double mean = 0, double std = 1, Generator* generator = nullptr) const;
  const Tensor& uniform_(double from = 0, double to = 1, Generator* generator = nullptr) const;  ///< in [from, to)
  const Tensor& bernoulli_(double p = 0.5, Generator* generator = nullptr) const;      ///< 1 with probability p, else 0
  const Tensor& exponential_(double lambd = 1, Generator* generator = nullptr) const;  ///< of rate lambd
  // Further in-place forms; each computes the function of the same name. Operators on an expression throw StateError as
  // operator= does.
  const Tensor& operator+=(const Tensor& other) const& { return add_(other); }  ///< add_(other)
  Tensor operator+=(const Tensor& other) && { return left_side("operator+=").add_(other); }
  const Tensor& operator-=(const Tensor& other) const& { return sub_(other); }  ///< sub_(other)
  Tensor operator-=(const Tensor& other) && { return left_side("operator-=").sub_(other); }
  const Tensor& operator*=(const Tensor& other) const& { return mul_(other); }  ///< mul_(other)
  Tensor operator*=(const Tensor& other) && { return left_side("operator*=").mul_(other); }
  const Tensor& operator/=(const Tensor& other) const& { return div_(other); }  ///< div_(other)
  Tensor operator/=(const Tensor& other) && { return left_side("operator/=").div_(other); }
  const Tensor& operator+=(Scalar other) const& { return add_(other); }  ///< add_(other)
  Tensor operator+=(Scalar other) && { return left_side("operator+=").add_(other); }
  const Tensor& operator-=(Scalar other) const& { return sub_(other); }  ///< sub_(other)
  Tensor operator-=(Scalar other) && { return left_side("operator-=").sub_(other); }
  const Tensor& operator*=(Scalar other) const& { return mul_(other); }  ///< mul_(other)
  Tensor operator*=(Scalar other) && { return left_side("operator*=").mul_(other); }
  const Tensor& operator/=(Scalar other) const& { return div_(other); }  ///< div_(other)
  Tensor operator/=(Scalar other) && { return left_side("operator/=").div_(other); }
  const Tensor& lerp_(const Tensor& end, Scalar weight) const;  ///< in place: tandem::lerp
  /// In place: tandem::addcmul.
  const Tensor& addcmul_(const Tensor& tensor1, const Tensor& tensor2, Scalar value = 1) const;
  /// In place: tandem::addcdiv.
  const Tensor& addcdiv_(const Tensor& tensor1, const Tensor& tensor2, Scalar value = 1) const;
  const Tensor& masked_fill_(const Tensor& mask, Scalar value) const;  ///< in place: tandem::masked_fill
  const Tensor& clamp_(std::optional<Scalar> min, std::optional<Scalar> max = {}) const;  ///< in place: tandem::clamp
  const Tensor& clamp_min_(Scalar min) const;  ///< in place: tandem::clamp_min
  const Tensor& clamp_max_(Scalar max) const;  ///< in place: tandem::clamp_max
  const Tensor& pow_(Scalar exponent) const;   ///< in place: tandem::pow
  const Tensor& abs_() const;                  ///< in place: tandem::abs
  const Tensor& neg_() const;                  ///< in place: tandem::neg
  const Tensor& sign_() const;                 ///< in place: tandem::sign
  const Tensor& floor_() const;                ///< in place: tandem::floor
  const Tensor& ceil_() const;                 ///< in place: tandem::ceil
  const Tensor& trunc_() const;                ///< in place: tandem::trunc
  const Tensor& round_() const;                ///< in place: tandem::round
  const Tensor& exp_() const;                  ///< in place: tandem::exp
  const Tensor& log_() const;                  ///< in place: tandem::log
  const Tensor& sqrt_() const;                 ///< in place: tandem::sqrt
  const Tensor& rsqrt_() const;                ///< in place: tandem::rsqrt
  const Tensor& reciprocal_() const;           ///< in place: tandem::reciprocal
  const Tensor& sin_() const;                  ///< in place: tandem::sin
  const Tensor& cos_() const;                  ///< in place: tandem::cos
  const Tensor& relu_() const;                 ///< in place: tandem::relu
  const Tensor& tanh_() const;                 ///< in place: tandem::tanh
  const Tensor& sigmoid_() const;              ///< in place: tandem::sigmoid

  /// The object behind the handle. Internal. Throws StateError for an undefined tensor.
  TensorImpl& impl() const {
    if (!impl_) [[unlikely]]
      throw_undefined();  // a call, so that impl() is inlined
    return *impl_;
  }
  /// The object behind the handle, null if undefined; internal.
  const RefPtr<TensorImpl>& impl_ptr() const { return impl_; }

 private:
  [[noreturn]] static void throw_undefined();
  const Tensor& left_side(const char* op) const;

  RefPtr<TensorImpl> impl_;
};

/// Elements selected along a dimension, and their positions in it.
struct ValuesIndices {
  Tensor values;   ///< its gradient is added to the selected elements
  Tensor indices;  ///< int64, no gradient

  /// For std::tie(values, indices) = x.max(1), in which either may be std::ignore.
  template <class First, class Second>
  operator std::tuple<First&, Second&>() {
    return {std::get<First&>(std::tie(values, std::ignore)), std::get<Second&>(std::tie(indices, std::ignore))};
  }
};

/// A list of tensors; up to four are stored inside the object.
using TensorList = SmallVector<Tensor, 4>;

/// A tensor on part of a storage; `strides` and `offset` in elements. Throws IndexError if it exceeds the storage.
TANDEM_API Tensor make_view(const RefPtr<Storage>& storage, DType dtype, const Shape& shape, const Shape& strides,
                            int64_t offset);
/// Makes `tensor`, and so all its handles, refer to the memory of the row-major `value`, which no other tensor uses.
TANDEM_API void take_memory(const Tensor& tensor, const Tensor& value);

/// "float32 [64, 256] on cpu", or "undefined".
TANDEM_API std::string describe(const Tensor& tensor);
/// The values, abbreviated beyond 1000 elements, then shape, dtype and device. Copies from the device.
TANDEM_API std::string to_string(const Tensor& tensor);
TANDEM_API std::ostream& operator<<(std::ostream& out, const Tensor& tensor);

}}  // namespace tandem::v0
