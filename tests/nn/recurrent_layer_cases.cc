#include <tandem/tests/nn/layer_cases.h>
#include <tandem/tests/nn/nn.h>

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
  cases.add("lstm", lstm, [] { return nn::LSTM(4, 3); });
  cases.add("lstm_states", lstm, [] { return nn::LSTM(4, 3, {.num_layers = 2}); });
  cases.add("lstm_bidirectional", lstm,
            [] { return nn::LSTM(4, 3, {.bias = false, .batch_first = true, .bidirectional = true}); });
  cases.add("lstm_unbatched", lstm, [] { return nn::LSTM(4, 3, {.num_layers = 2, .bidirectional = true}); });
  cases.add("gru", layer, [] { return nn::GRU(4, 3); });
  cases.add("gru_options", layer, [] { return nn::GRU(4, 3, {.batch_first = true, .bidirectional = true}); });
  cases.add("gru_no_bias", layer, [] { return nn::GRU(4, 3, {.num_layers = 2, .bias = false}); });
  cases.add("rnn", layer, [] { return nn::RNN(4, 3); });
  cases.add("rnn_relu", layer,
            [] { return nn::RNN(4, 3, {.num_layers = 2, .nonlinearity = nn::RNNNonlinearity::kRelu}); });
  const auto pack = [](const Tensors& in) {
    return nn::pack_padded_sequence(in[0], from_vector<int64_t>({2, 5, 1, 5, 3}, {5}), {.enforce_sorted = false});
  };
  const auto packed_layer = [pack](const nn::SingleStateLayer& m, const Tensors& in) {
    const nn::PackedRecurrentResult r = m(pack(in));
    return Tensors{r.output.data, r.h_n};
  };
  cases.add(
      "lstm_packed",
      [pack](const nn::LSTM& m, const Tensors& in) {
        const nn::PackedLstmResult r = m(pack(in));
        return Tensors{r.output.data, r.h_n, r.c_n};
      },
      [] { return nn::LSTM(4, 3, {.num_layers = 2, .bidirectional = true}); });
  cases.add("gru_packed", packed_layer, [] { return nn::GRU(4, 3, {.bidirectional = true}); });
  cases.add("rnn_packed", packed_layer, [] { return nn::RNN(4, 3, {.bidirectional = true}); });
  cases.add("lstm_cell", lstm_cell, [] { return nn::LSTMCell(4, 3); });
  cases.add("lstm_cell_states", lstm_cell, [] { return nn::LSTMCell(4, 3, {.bias = false}); });
  cases.add("gru_cell", cell, [] { return nn::GRUCell(4, 3); });
  cases.add("rnn_cell", cell, [] { return nn::RNNCell(4, 3); });
  cases.add("rnn_cell_relu", cell, [] { return nn::RNNCell(4, 3, {.nonlinearity = nn::RNNNonlinearity::kRelu}); });
}

}  // namespace tandem::testing
