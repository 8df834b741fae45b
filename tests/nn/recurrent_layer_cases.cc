#include <tandem/nn/recurrent.h>
#include <tandem/tensor/factories.h>
#include <tandem/tests/nn/layer_cases.h>

namespace tandem::testing {

void add_recurrent_layers(LayerCases cases) {
  using Tensors = std::vector<Tensor>;
  // Calls with one or two states if there are any.
  const auto lstm = [](const nn::LSTM& layer, const Tensors& in) {
    const LstmResult r = in.size() > 1 ? layer(in[0], in[1], in[2]) : layer(in[0]);
    return Tensors{r.output, r.h_n, r.c_n};
  };
  const auto layer = [](const nn::SingleStateLayer& m, const Tensors& in) {
    const RecurrentResult r = m(in[0], in.size() > 1 ? in[1] : Tensor());
    return Tensors{r.output, r.h_n};
  };
  const auto lstm_cell = [](const nn::LSTMCell& cell, const Tensors& in) {
    const LstmCellResult r = in.size() > 1 ? cell(in[0], in[1], in[2]) : cell(in[0]);
    return Tensors{r.h, r.c};
  };
  const auto cell = [](const auto& m, const Tensors& in) { return m(in[0], in.size() > 1 ? in[1] : Tensor()); };
  cases.add(
      "lstm", [] { return nn::LSTM(4, 3); }, lstm);
  cases.add(
      "lstm_states", [] { return nn::LSTM(4, 3, {.num_layers = 2}); }, lstm);
  cases.add(
      "lstm_bidirectional", [] { return nn::LSTM(4, 3, {.bias = false, .batch_first = true, .bidirectional = true}); },
      lstm);
  cases.add(
      "lstm_unbatched", [] { return nn::LSTM(4, 3, {.num_layers = 2, .bidirectional = true}); }, lstm);
  cases.add(
      "gru", [] { return nn::GRU(4, 3); }, layer);
  cases.add(
      "gru_options", [] { return nn::GRU(4, 3, {.batch_first = true, .bidirectional = true}); }, layer);
  cases.add(
      "gru_no_bias", [] { return nn::GRU(4, 3, {.num_layers = 2, .bias = false}); }, layer);
  cases.add(
      "rnn", [] { return nn::RNN(4, 3); }, layer);
  cases.add(
      "rnn_relu", [] { return nn::RNN(4, 3, {.num_layers = 2, .nonlinearity = nn::RNNNonlinearity::kRelu}); }, layer);
  const auto pack = [](const Tensors& in) {
    return nn::pack_padded_sequence(in[0], from_vector<int64_t>({2, 5, 1, 5, 3}, {5}), {.enforce_sorted = false});
  };
  const auto packed_layer = [pack](const nn::SingleStateLayer& m, const Tensors& in) {
    const nn::PackedRecurrentResult r = m(pack(in));
    return Tensors{r.output.data, r.h_n};
  };
  cases.add(
      "lstm_packed", [] { return nn::LSTM(4, 3, {.num_layers = 2, .bidirectional = true}); },
      [pack](const nn::LSTM& m, const Tensors& in) {
        const nn::PackedLstmResult r = m(pack(in));
        return Tensors{r.output.data, r.h_n, r.c_n};
      });
  cases.add(
      "gru_packed", [] { return nn::GRU(4, 3, {.bidirectional = true}); }, packed_layer);
  cases.add(
      "rnn_packed", [] { return nn::RNN(4, 3, {.bidirectional = true}); }, packed_layer);
  cases.add(
      "lstm_cell", [] { return nn::LSTMCell(4, 3); }, lstm_cell);
  cases.add(
      "lstm_cell_states", [] { return nn::LSTMCell(4, 3, {.bias = false}); }, lstm_cell);
  cases.add(
      "gru_cell", [] { return nn::GRUCell(4, 3); }, cell);
  cases.add(
      "rnn_cell", [] { return nn::RNNCell(4, 3); }, cell);
  cases.add(
      "rnn_cell_relu", [] { return nn::RNNCell(4, 3, {.nonlinearity = nn::RNNNonlinearity::kRelu}); }, cell);
}

}  // namespace tandem::testing
