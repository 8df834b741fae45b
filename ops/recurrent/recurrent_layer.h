// A layer of a recurrent network: its operands, its backward composed of operations, and its computation by a library.
// Private to ops/recurrent.
#pragma once

#include <cstdint>
#include <vector>

#include <tandem/ops/recurrent/recurrent_kernels.h>
#include <tandem/tensor/tensor.h>

namespace tandem { inline namespace v0 { namespace ops {

/// The rows [begin, begin + count) of a layer's input that a step reads, one for each sequence that is not over.
struct StepRows {
  int64_t begin;
  int64_t count;
};

/// The operands of a layer in one direction, in the order of its node's inputs. `input` has the rows of all steps. c is
/// undefined unless the layer is an LSTM, the biases if there are none.
struct LayerOperands {
  Tensor input, h, c, weight_ih, weight_hh, bias_ih, bias_hh;
};

/// The gradients of the operands, composed of operations: forward once more, then back through the steps. `grad` has
/// the rows of the output, then of h after the last step, and for an LSTM of c.
TensorList composed_recurrent_backward(RecurrentKind kind, const std::vector<StepRows>& steps, const LayerOperands& in,
                                       const Tensor& grad);

/// Direction d of a layer, whose `operands` are the input [rows, I], h [D, N, H], c, then weight_ih, weight_hh, bias_ih
/// and bias_hh of each of its D directions; undefined ones as in LayerOperands.
LayerOperands operands_of_direction(const TensorList& operands, int64_t d);

/// A layer in all D directions by a library (recurrent_memory); undefined if tandem's own kernels must compute it.
/// `operands` as in operands_of_direction, `steps` are those of the first direction.
///
/// The result [rows + S N, D H], where S is the number of states, has the rows of the output, then h_n and for an LSTM
/// c_n, each with its elements in the order [D, N, H].
Tensor library_layer(const char* op, RecurrentKind kind, const TensorList& operands,
                     const std::vector<StepRows>& steps);

}}}  // namespace tandem::v0::ops
