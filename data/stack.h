// Stacks examples to a batch. Private to data/.
#pragma once

#include <cstdint>
#include <span>
#include <string_view>

#include <tandem/base/function_ref.h>
#include <tandem/data/dataset.h>

namespace tandem { inline namespace v0 { namespace data {

/// Writes `item` into row `row` of `stacked` [num_rows, ...], which row 0 allocates. Error texts begin with "<op>:
/// <name>". Throws StateError for an undefined item, ShapeError or DTypeError for an item that differs from row 0.
void stack_into(Tensor& stacked, const Tensor& item, int64_t row, int64_t num_rows, const char* op,
                std::string_view name);

/// Row `row` of a tensor [n, ...], a view that autograd does not record.
Tensor row_of(const Tensor& tensor, int64_t row);

/// Calls f(name, tensor) for each defined tensor of an example; the first names are "the input" and "the target".
template <class E, class F>
void for_each_tensor(E& example, const F& f) {
  if (example.input.defined()) f("the input", example.input);
  if (example.target.defined()) f("the target", example.target);
  for (auto& [name, tensor] : example.tensors) {
    if (tensor.defined()) f(name, tensor);
  }
}

/// Replaces each defined tensor of a batch by f(tensor).
template <class F>
void replace_tensors(Batch& batch, const F& f) {
  if (batch.input.defined()) batch.input = f(batch.input);
  if (batch.target.defined()) batch.target = f(batch.target);
  for (auto& [name, tensor] : batch.tensors) {
    if (tensor.defined()) tensor = f(tensor);
  }
}

/// Stacks examples one after the other. Error texts begin with `op`.
class Stack {
 public:
  Stack(const char* op, int64_t size) : op_(op) { batch_.size = size; }
  /// Throws StateError if the example has no tensors or not the tensors of the first example, and the errors of
  /// stack_into.
  void add(const Example& example);
  /// The batch of `size` examples.
  Batch batch() { return batch_; }

 private:
  void add(Tensor& stacked, const Tensor& item, std::string_view name) const;

  const char* op_;
  Batch batch_;
  int64_t row_ = 0;
};

/// Stacks example(index) of all indices to a batch. Error texts begin with `op` and name the item. Throws ValueError
/// if there are no indices.
Batch stack_examples(const char* op, std::span<const int64_t> indices, FunctionRef<Example(int64_t index)> example);

}}}  // namespace tandem::v0::data
