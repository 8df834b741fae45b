// References of operations that select elements: which element of the input each element of the result is.
#pragma once

#include <tandem/tests/support/op_case.h>
#include <tandem/tests/support/ops.h>

namespace tandem::testing {

/// The index of element i of a row-major tensor of `shape`.
inline Shape unravel(const Shape& shape, int64_t i) {
  Shape position = shape;
  for (size_t d = shape.size(); d-- > 0;) {
    position[d] = i % shape[d];
    i /= shape[d];
  }
  return position;
}

/// The inverse of unravel.
inline int64_t ravel(const Shape& shape, const Shape& position) {
  const Shape strides = row_major_strides(shape);
  return std::inner_product(position.begin(), position.end(), strides.begin(), int64_t{0});
}

/// f maps an index of the result and the values of the inputs to the index of the first input.
inline OpCase selection_case(const char* name, std::vector<Input> inputs, const Shape& result,
                             std::function<Tensor(const Tensors&)> run,
                             std::function<Shape(const Shape&, const std::vector<Dense>&)> f) {
  OpCase op;
  op.name = name;
  op.inputs = std::move(inputs);
  op.run = [run = std::move(run)](const Tensors& in) { return run(in); };
  op.reference = [result, f = std::move(f)](const std::vector<Dense>& in) {
    Dense out = dense_zeros(result);
    for (int64_t i = 0; i < out.numel(); ++i) out[i] = in[0][ravel(in[0].shape, f(unravel(result, i), in))];
    return out;
  };
  op.terms = static_cast<double>(std::max<int64_t>(num_elements(result), 1));  // if all select the same element
  return op;
}

/// f maps an index of the result to the index of the input.
inline OpCase view_case(const char* name, const Shape& shape, const Shape& result,
                        std::function<Tensor(const Tensor&)> run, std::function<Shape(const Shape&)> f) {
  OpCase op = selection_case(
      name, {{"input", shape}}, result, [run = std::move(run)](const Tensors& in) { return run(in[0]); },
      [f = std::move(f)](const Shape& i, const std::vector<Dense>&) { return f(i); });
  op.terms = 1;
  return op;
}

/// A case whose values fixtures_test compares with PyTorch's.
inline OpCase recorded_case(OpCase op) {
  op.reference = in_float64(op);
  return op;
}

/// Such a case of one tensor.
inline OpCase recorded_case(const char* name, const Shape& shape, std::function<Tensor(const Tensor&)> run) {
  return recorded_case({.name = name, .inputs = {{"input", shape}}, .run = [run = std::move(run)](const Tensors& x) {
                          return run(x[0]);
                        }});
}

}  // namespace tandem::testing
