// Recurrent layers: LSTM, GRU and plain recurrent networks, and single steps of them.
//
// Weights have PyTorch's layout. A layer with hidden size H and G gates has weight_ih [G H, input size], weight_hh
// [G H, H], bias_ih and bias_hh [G H] each; the rows of gate k are [k H, (k + 1) H). With s the sigmoid function and h'
// the state before the step:
//
//     LSTM, gates i f g o   i = s(i_x + i_h), f = s(f_x + f_h), g = tanh(g_x + g_h), o = s(o_x + o_h)
//                           c = f c' + i g, h = o tanh(c)
//     GRU, gates r z n      r = s(r_x + r_h), z = s(z_x + z_h), n = tanh(n_x + r n_h), h = (1 - z) n + z h'
//     plain, one gate       h = tanh(a_x + a_h), or relu
//
// where k_x is gate k of x weight_ih^T + bias_ih, and k_h gate k of h' weight_hh^T + bias_hh.
//
// All operands have one floating dtype (DTypeError) and are on one device (DeviceError). Half types are computed in
// float32; results and gradients are rounded once. On GPUs the state h that enters a product is rounded as well, and
// the cell state c is not. Bits do not depend on threads.
//
// Each layer and direction is one node of the graph. One product computes the input's share of all steps, and one each
// the gradients of the input and of both weights; a step is one product with weight_hh and one kernel. Backward saves
// input and weights, and per step and sequence the activations of the gates, h' and one more number per unit (c', for
// GRUs n_h) in float32. Under create_graph backward is composed of other operations.
//
// On GPUs cuDNN computes layers, but not cells, of all dtypes except float64: both directions as one node, whose
// backward saves operands, result and what cuDNN keeps; cuDNN may round c too. float32 operands of products are rounded
// to TF32 only if cuda::allow_tf32(). Where cuDNN fails, the nodes above compute, with a warning.
//
// S. Hochreiter, J. Schmidhuber, "Long short-term memory", 1997; K. Cho et al., "Learning phrase representations using
// RNN encoder-decoder for statistical machine translation", 2014.
#pragma once

#include <cstdint>
#include <vector>

#include <tandem/base/macros.h>
#include <tandem/tensor/tensor.h>

namespace tandem { inline namespace v0 {

/// Options of lstm, gru, rnn_tanh and rnn_relu.
struct RecurrentOptions {
  bool has_biases = true;      ///< params contain biases
  int64_t num_layers = 1;      ///< a further layer's input is the output of the layer before
  double dropout = 0;          ///< probability of dropout on the output of each layer except the last
  bool train = false;          ///< dropout is applied
  bool bidirectional = false;  ///< a second set of weights reads the sequence from its end
  bool batch_first = false;    ///< input and output are [N, T, ...]; not for packed input
  /// [optional] int64 [T] on the CPU, not increasing: the number of sequences that have a step t. The input is then
  /// packed (nn::PackedSequence): [sum of batch_sizes, input size], all sequences of step 0, then those of step 1, ....
  Tensor batch_sizes = {};
};

/// Result of lstm.
struct LstmResult {
  Tensor output;  ///< h of the last layer at each step
  Tensor h_n;     ///< [num_layers * directions, N, H]: h after the last step of each sequence
  Tensor c_n;     ///< as h_n: the cell states
};
/// Result of gru, rnn_tanh and rnn_relu.
struct RecurrentResult {
  Tensor output;  ///< h of the last layer at each step
  Tensor h_n;     ///< [num_layers * directions, N, H]: h after the last step of each sequence
};

/// LSTM layers: input [T, N, input size] -> output [T, N, directions * H], both directions one after the other. hx has
/// h_0 and c_0, [num_layers * directions, N, H] each. `params` has weight_ih, weight_hh, bias_ih, bias_hh of each
/// direction of each layer. Throws ShapeError, DTypeError, DeviceError, and ValueError for a wrong number of tensors or
/// invalid options.
TANDEM_OP LstmResult lstm(const Tensor& input, const std::vector<Tensor>& hx, const std::vector<Tensor>& params,
                          const RecurrentOptions& options = {});
/// GRU layers; hx is h_0. Otherwise as lstm.
TANDEM_OP RecurrentResult gru(const Tensor& input, const Tensor& hx, const std::vector<Tensor>& params,
                              const RecurrentOptions& options = {});
/// Plain recurrent layers with tanh; hx is h_0. Otherwise as lstm.
TANDEM_OP RecurrentResult rnn_tanh(const Tensor& input, const Tensor& hx, const std::vector<Tensor>& params,
                                   const RecurrentOptions& options = {});
/// rnn_tanh with relu.
TANDEM_OP RecurrentResult rnn_relu(const Tensor& input, const Tensor& hx, const std::vector<Tensor>& params,
                                   const RecurrentOptions& options = {});

/// Result of lstm_cell.
struct LstmCellResult {
  Tensor h;  ///< [N, H]
  Tensor c;  ///< [N, H]
};

/// One step of an LSTM: input [N, input size]; hx has h and c, [N, H] each. Both biases or none. Errors as lstm.
TANDEM_OP LstmCellResult lstm_cell(const Tensor& input, const std::vector<Tensor>& hx, const Tensor& w_ih,
                                   const Tensor& w_hh, const Tensor& b_ih = {}, const Tensor& b_hh = {});
/// One step of a GRU: input [N, input size], hx [N, H] -> [N, H]. Otherwise as lstm_cell.
TANDEM_OP Tensor gru_cell(const Tensor& input, const Tensor& hx, const Tensor& w_ih, const Tensor& w_hh,
                          const Tensor& b_ih = {}, const Tensor& b_hh = {});
/// One step of a plain recurrent network with tanh; as gru_cell.
TANDEM_OP Tensor rnn_tanh_cell(const Tensor& input, const Tensor& hx, const Tensor& w_ih, const Tensor& w_hh,
                               const Tensor& b_ih = {}, const Tensor& b_hh = {});
/// rnn_tanh_cell with relu.
TANDEM_OP Tensor rnn_relu_cell(const Tensor& input, const Tensor& hx, const Tensor& w_ih, const Tensor& w_hh,
                               const Tensor& b_ih = {}, const Tensor& b_hh = {});

}}  // namespace tandem::v0
