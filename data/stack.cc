#include <tandem/data/stack.h>

#include <tandem/tensor/factories.h>
#include <tandem/tensor/primitives.h>

namespace tandem { inline namespace v0 { namespace data {

void stack_into(Tensor& stacked, const Tensor& item, int64_t row, int64_t num_rows, const char* what) {
  TANDEM_CHECK(StateError, item.defined(), what, " is undefined");
  if (!stacked.defined()) {
    Shape shape = item.shape();
    shape.insert(0, num_rows);
    stacked = empty(shape, {item.dtype()});
  }
  const Shape row_shape(stacked.shape().begin() + 1, stacked.shape().end());
  TANDEM_CHECK(ShapeError, item.shape() == row_shape, what, " has shape ", item.shape(), ", expected ", row_shape,
               " as in the items before");
  TANDEM_CHECK(DTypeError, item.dtype() == stacked.dtype(), what, " is ", item.dtype(), ", expected ", stacked.dtype(),
               " as in the items before");
  primitives::copy(item, make_view(stacked.storage(), stacked.dtype(), row_shape, row_major_strides(row_shape),
                                   row * item.num_elements()));
}

}}}  // namespace tandem::v0::data
