#include <tandem/data/stack.h>

#include <tandem/data/error_context.h>
#include <tandem/tensor/factories.h>
#include <tandem/tensor/primitives.h>

namespace tandem { inline namespace v0 { namespace data {

void stack_into(Tensor& stacked, const Tensor& item, int64_t row, int64_t num_rows, const char* op,
                std::string_view name) {
  TANDEM_CHECK(StateError, item.defined(), op, ": ", name, " is undefined");
  if (!stacked.defined()) {
    Shape shape = item.shape();
    shape.insert(0, num_rows);
    stacked = empty(shape, {item.dtype()});
  }
  const Shape row_shape(stacked.shape().begin() + 1, stacked.shape().end());
  TANDEM_CHECK(ShapeError, item.shape() == row_shape, op, ": ", name, " has shape ", item.shape(), ", expected ",
               row_shape, " as in the items before");
  TANDEM_CHECK(DTypeError, item.dtype() == stacked.dtype(), op, ": ", name, " is ", item.dtype(), ", expected ",
               stacked.dtype(), " as in the items before");
  primitives::copy(item, row_of(stacked, row));
}

Tensor row_of(const Tensor& tensor, int64_t row) {
  const int64_t begin = tensor.numel() == 0 ? 0 : row * tensor.strides()[0];
  return make_view(tensor.storage(), tensor.dtype(), Shape(tensor.shape().begin() + 1, tensor.shape().end()),
                   Shape(tensor.strides().begin() + 1, tensor.strides().end()), tensor.impl().offset + begin);
}

void Stack::add(Tensor& stacked, const Tensor& item, std::string_view name) const {
  if (!stacked.defined() && !item.defined()) return;
  TANDEM_CHECK(StateError, row_ == 0 || stacked.defined(), op_, ": ", name,
               " is defined, expected undefined as in the items before");
  stack_into(stacked, item, row_, batch_.size, op_, name);
}

void Stack::add(const Example& example) {
  bool is_empty = true;
  for_each_tensor(example, [&](std::string_view, const Tensor&) { is_empty = false; });
  TANDEM_CHECK(StateError, !is_empty, op_, ": the example has no tensors");
  add(batch_.input, example.input, "the input");
  add(batch_.target, example.target, "the target");
  for (const auto& [name, tensor] : example.tensors) batch_.tensors.try_emplace(name);
  for (auto& [name, stacked] : batch_.tensors) {
    const auto found = example.tensors.find(name);
    add(stacked, found == example.tensors.end() ? Tensor() : found->second, name);
  }
  ++row_;
}

Batch stack_examples(const char* op, std::span<const int64_t> indices, FunctionRef<Example(int64_t index)> example) {
  TANDEM_CHECK(ValueError, !indices.empty(), op, ": empty batch, expected at least one index");
  Stack stack(op, static_cast<int64_t>(indices.size()));
  for (const int64_t index : indices) {
    try {
      stack.add(example(index));
    } catch (...) {
      rethrow_with_context(str("in item ", index, " of the dataset"));
    }
  }
  return stack.batch();
}

}}}  // namespace tandem::v0::data
