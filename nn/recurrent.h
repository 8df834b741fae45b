// Recurrent layers and cells. ops/recurrent.h has the formulas.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include <tandem/base/macros.h>
#include <tandem/nn/module.h>
#include <tandem/nn/packed_sequence.h>
#include <tandem/ops/recurrent.h>

namespace tandem { inline namespace v0 { namespace nn {

/// Options of LSTM.
struct LSTMOptions {
  int64_t num_layers = 1;      ///< the input of each further layer is the output of the previous layer
  bool bias = true;            ///< with bias_ih and bias_hh
  bool batch_first = false;    ///< input and output are [N, T, ...]
  double dropout = 0;          ///< in training mode: probability of dropout between layers
  bool bidirectional = false;  ///< each layer also reads the sequence from its end
};
using GRUOptions = LSTMOptions;  ///< options of GRU

/// The nonlinearity of RNN and RNNCell.
enum class RNNNonlinearity {
  kTanh,  ///< tanh
  kRelu,  ///< max(x, 0)
};

/// Options of RNN.
struct RNNOptions {
  int64_t num_layers = 1;                                 ///< as in LSTMOptions
  RNNNonlinearity nonlinearity = RNNNonlinearity::kTanh;  ///< applied at each step
  bool bias = true;                                       ///< with bias_ih and bias_hh
  bool batch_first = false;                               ///< input and output are [N, T, ...]
  double dropout = 0;                                     ///< as in LSTMOptions
  bool bidirectional = false;                             ///< as in LSTMOptions
};

/// Result of LSTM for a packed sequence.
struct PackedLstmResult {
  PackedSequence output;  ///< h of the last layer, packed as the input
  Tensor h_n;             ///< [num_layers * directions, N, H]
  Tensor c_n;             ///< [num_layers * directions, N, H]
};
/// Result of GRU and RNN for a packed sequence.
struct PackedRecurrentResult {
  PackedSequence output;  ///< h of the last layer, packed as the input
  Tensor h_n;             ///< [num_layers * directions, N, H]
};

/// Common part of LSTM, GRU and RNN.
///
/// Input [T, N, input_size] ([N, T, input_size] with batch_first), unbatched [T, input_size], or a PackedSequence.
/// Output [T, N, directions * hidden_size]; initial and final states [num_layers * directions, N, hidden_size];
/// unbatched without N. Initial states are zeros by default; for a packed sequence they are in the original order of
/// the sequences.
///
/// Parameters, with PyTorch's names: `weight_ih_l0` [gates * hidden_size, input size of the layer], `weight_hh_l0`
/// [gates * hidden_size, hidden_size], `bias_ih_l0` and `bias_hh_l0` [gates * hidden_size]; `l1` for the second layer;
/// `weight_ih_l0_reverse` for the reverse direction. Initial values are uniform in [-b, b], b = 1 / sqrt(hidden_size),
/// drawn in the order of the parameters. Projections (PyTorch's proj_size) are not supported.
class TANDEM_API RecurrentLayer : public Module {
 public:
  std::string extra_repr() const override;

 protected:
  /// lstm, or another operation with an undefined c_n.
  using Operation = LstmResult (*)(const Tensor& input, const std::vector<Tensor>& hx,
                                   const std::vector<Tensor>& params, const RecurrentOptions& options);

  /// Throws ValueError unless sizes and num_layers are at least 1 and 0 <= dropout <= 1.
  RecurrentLayer(const char* name, Operation operation, int64_t gates, int64_t input_size, int64_t hidden_size,
                 const LSTMOptions& options);
  /// Calls the operation; undefined states are zeros.
  LstmResult call(const Tensor& input, std::vector<Tensor> hx) const;
  PackedLstmResult call(const PackedSequence& input, std::vector<Tensor> hx) const;

 private:
  /// Checks the shapes of the given states and creates zeros for undefined ones.
  void prepare(std::vector<Tensor>& hx, const Shape& shape, const Tensor& input) const;
  LstmResult run(const Tensor& input, const std::vector<Tensor>& hx, const Tensor& batch_sizes) const;

  Operation operation_;
  int64_t input_size_, hidden_size_;
  LSTMOptions options_;
  std::vector<const Tensor*> params_;
};

/// Long short-term memory: `auto [output, h_n, c_n] = lstm(x)`, see RecurrentLayer.
class TANDEM_API LSTM : public RecurrentLayer {
 public:
  using Options = LSTMOptions;  ///< of the constructor
  /// Throws ValueError unless sizes and num_layers are at least 1 and 0 <= dropout <= 1.
  LSTM(int64_t input_size, int64_t hidden_size, LSTMOptions options = {});
  /// A state that is undefined is zero.
  LstmResult operator()(const Tensor& input, const Tensor& h_0 = {}, const Tensor& c_0 = {}) const;
  PackedLstmResult operator()(const PackedSequence& input, const Tensor& h_0 = {}, const Tensor& c_0 = {}) const;
};

/// Recurrent layers with one state: `auto [output, h_n] = gru(x)`, see RecurrentLayer.
class TANDEM_API SingleStateLayer : public RecurrentLayer {
 public:
  /// A state that is undefined is zero.
  RecurrentResult operator()(const Tensor& input, const Tensor& h_0 = {}) const;
  PackedRecurrentResult operator()(const PackedSequence& input, const Tensor& h_0 = {}) const;

 protected:
  using RecurrentLayer::RecurrentLayer;
};

/// Gated recurrent units.
class TANDEM_API GRU : public SingleStateLayer {
 public:
  using Options = GRUOptions;  ///< of the constructor
  /// Throws as LSTM.
  GRU(int64_t input_size, int64_t hidden_size, GRUOptions options = {});
};

/// Plain recurrent network.
class TANDEM_API RNN : public SingleStateLayer {
 public:
  using Options = RNNOptions;  ///< of the constructor
  /// Throws as LSTM.
  RNN(int64_t input_size, int64_t hidden_size, RNNOptions options = {});
};

/// Options of LSTMCell.
struct LSTMCellOptions {
  bool bias = true;  ///< with bias_ih and bias_hh
};
using GRUCellOptions = LSTMCellOptions;  ///< options of GRUCell

/// Options of RNNCell.
struct RNNCellOptions {
  bool bias = true;                                       ///< with bias_ih and bias_hh
  RNNNonlinearity nonlinearity = RNNNonlinearity::kTanh;  ///< applied to the sum
};

/// Common part of LSTMCell, GRUCell and RNNCell, single steps of recurrent networks.
///
/// Input [N, input_size] and states [N, hidden_size], or unbatched [input_size] and [hidden_size]; states are zeros by
/// default. Parameters are `weight_ih`, `weight_hh`, `bias_ih` and `bias_hh`, with the shapes and initial values of a
/// layer's parameters.
class TANDEM_API RecurrentCell : public Module {
 public:
  std::string extra_repr() const override;

  Tensor& weight_ih;  ///< [gates * hidden_size, input_size]
  Tensor& weight_hh;  ///< [gates * hidden_size, hidden_size]
  Tensor& bias_ih;    ///< [gates * hidden_size]; undefined without bias
  Tensor& bias_hh;    ///< [gates * hidden_size]; undefined without bias

 protected:
  /// Throws ValueError unless both sizes are at least 1.
  RecurrentCell(const char* name, int64_t gates, int64_t input_size, int64_t hidden_size, bool bias);
  /// The state with a dimension N; zeros if it is undefined.
  Tensor batched_state(const Tensor& input, const Tensor& state) const;
  /// Calls gru_cell, rnn_tanh_cell or rnn_relu_cell.
  Tensor step(decltype(&gru_cell) operation, const Tensor& input, const Tensor& h) const;
};

/// One step of an LSTM: `auto [h, c] = cell(x, h, c)`, see RecurrentCell.
class TANDEM_API LSTMCell : public RecurrentCell {
 public:
  using Options = LSTMCellOptions;  ///< of the constructor
  /// Throws ValueError unless both sizes are at least 1.
  LSTMCell(int64_t input_size, int64_t hidden_size, LSTMCellOptions options = {});
  /// A state that is undefined is zero.
  LstmCellResult operator()(const Tensor& input, const Tensor& h = {}, const Tensor& c = {}) const;
};

/// One step of a GRU: `h = cell(x, h)`, see RecurrentCell.
class TANDEM_API GRUCell : public RecurrentCell {
 public:
  using Options = GRUCellOptions;  ///< of the constructor
  /// Throws ValueError unless both sizes are at least 1.
  GRUCell(int64_t input_size, int64_t hidden_size, GRUCellOptions options = {});
  /// A state that is undefined is zero.
  Tensor operator()(const Tensor& input, const Tensor& h = {}) const;
};

/// One step of a plain recurrent network: `h = cell(x, h)`, see RecurrentCell.
class TANDEM_API RNNCell : public RecurrentCell {
 public:
  using Options = RNNCellOptions;  ///< of the constructor
  /// Throws ValueError unless both sizes are at least 1.
  RNNCell(int64_t input_size, int64_t hidden_size, RNNCellOptions options = {});
  /// A state that is undefined is zero.
  Tensor operator()(const Tensor& input, const Tensor& h = {}) const;

 private:
  RNNNonlinearity nonlinearity_;
};

}}}  // namespace tandem::v0::nn
