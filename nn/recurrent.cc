#include <tandem/nn/recurrent.h>

#include <cmath>

#include <tandem/base/math.h>
#include <tandem/nn/init.h>
#include <tandem/ops/index.h>
#include <tandem/ops/view.h>
#include <tandem/tensor/factories.h>

namespace tandem { inline namespace v0 { namespace nn {

namespace {

int64_t checked_width(const char* name, int64_t gates, int64_t input_size, int64_t hidden_size) {
  TANDEM_CHECK(ValueError, input_size >= 1 && hidden_size >= 1, name, ": input_size is ", input_size,
               " and hidden_size ", hidden_size, ", expected at least 1 each");
  return saturating_mul(gates, hidden_size);
}

/// Initial values of all parameters, in their order.
void initialize(const Module& module, int64_t hidden_size) {
  const double bound = 1 / std::sqrt(static_cast<double>(hidden_size));
  for (const Tensor& parameter : module.parameters()) init::uniform_(parameter, -bound, bound);
}

/// An operation with one state, as RecurrentLayer calls it.
template <RecurrentResult (*op)(const Tensor&, const Tensor&, const std::vector<Tensor>&, const RecurrentOptions&)>
LstmResult with_one_state(const Tensor& input, const std::vector<Tensor>& hx, const std::vector<Tensor>& params,
                          const RecurrentOptions& options) {
  auto [output, h_n] = op(input, hx[0], params, options);
  return {std::move(output), std::move(h_n), {}};
}

}  // namespace

RecurrentLayer::RecurrentLayer(const char* name, Operation operation, int64_t gates, int64_t input_size,
                               int64_t hidden_size, const LSTMOptions& options)
    : operation_(operation), input_size_(input_size), hidden_size_(hidden_size), options_(options) {
  const int64_t width = checked_width(name, gates, input_size, hidden_size), directions = options.bidirectional ? 2 : 1;
  TANDEM_CHECK(ValueError, options.num_layers >= 1, name, ": num_layers is ", options.num_layers,
               ", expected at least 1");
  TANDEM_CHECK(ValueError, options.dropout >= 0 && options.dropout <= 1, name, ": dropout is ", options.dropout,
               ", expected 0 <= dropout <= 1");
  for (int64_t i = 0; i < saturating_mul(options.num_layers, directions); ++i) {
    const std::string suffix = str("_l", i / directions, i % directions == 1 ? "_reverse" : "");
    const auto add = [&](const char* parameter, const Shape& shape) {
      params_.push_back(&add_parameter(parameter + suffix, empty(shape)));
    };
    add("weight_ih", {width, i < directions ? input_size : saturating_mul(directions, hidden_size)});
    add("weight_hh", {width, hidden_size});
    if (!options.bias) continue;
    add("bias_ih", {width});
    add("bias_hh", {width});
  }
  initialize(*this, hidden_size);
}

void RecurrentLayer::prepare(std::vector<Tensor>& hx, const Shape& shape, const Tensor& input) const {
  for (size_t i = 0; i < hx.size(); ++i) {
    TANDEM_CHECK(ShapeError, !hx[i].defined() || hx[i].shape() == shape, type_name(), i == 0 ? ": h_0" : ": c_0",
                 " is ", describe(hx[i]), ", expected ", shape);
    if (!hx[i].defined()) hx[i] = zeros(shape, input.options());
  }
}

LstmResult RecurrentLayer::run(const Tensor& input, const std::vector<Tensor>& hx, const Tensor& batch_sizes) const {
  std::vector<Tensor> params;
  for (const Tensor* parameter : params_) params.push_back(*parameter);
  return operation_(input, hx, params,
                    {options_.bias, options_.num_layers, options_.dropout, is_training(), options_.bidirectional,
                     options_.batch_first, batch_sizes});
}

LstmResult RecurrentLayer::call(const Tensor& input, std::vector<Tensor> hx) const {
  const ModuleScope scope(*this);
  TANDEM_CHECK(ShapeError, (input.dim() == 2 || input.dim() == 3) && input.size(-1) == input_size_, type_name(),
               ": input is ", describe(input), ", expected ", options_.batch_first ? "[N, T, " : "[T, N, ", input_size_,
               "], or [T, ", input_size_, "] without a batch");
  const bool is_batched = input.dim() == 3;
  const int64_t batch_dim = options_.batch_first ? 0 : 1,
                layers = options_.num_layers * (options_.bidirectional ? 2 : 1);
  prepare(hx, is_batched ? Shape({layers, input.size(batch_dim), hidden_size_}) : Shape({layers, hidden_size_}), input);
  if (is_batched) return run(input, hx, {});
  for (Tensor& state : hx) state = state.unsqueeze(1);
  LstmResult result = run(input.unsqueeze(batch_dim), hx, {});
  return {result.output.squeeze(batch_dim), result.h_n.squeeze(1),
          result.c_n.defined() ? result.c_n.squeeze(1) : Tensor()};
}

PackedLstmResult RecurrentLayer::call(const PackedSequence& input, std::vector<Tensor> hx) const {
  const ModuleScope scope(*this);
  TANDEM_CHECK(ShapeError, input.data.dim() == 2 && input.data.size(1) == input_size_, type_name(), ": packed data is ",
               describe(input.data), ", expected [rows, ", input_size_, "]");
  const int64_t layers = options_.num_layers * (options_.bidirectional ? 2 : 1);
  prepare(hx, {layers, input.batch_sizes[0].item<int64_t>(), hidden_size_}, input.data);
  const auto permuted = [](const Tensor& state, const Tensor& order) {
    return state.defined() && order.defined() ? index_select(state, 1, order) : state;
  };
  for (Tensor& state : hx) state = permuted(state, input.sorted_indices);
  const LstmResult result = run(input.data, hx, input.batch_sizes);
  return {{result.output, input.batch_sizes, input.sorted_indices, input.unsorted_indices},
          permuted(result.h_n, input.unsorted_indices),
          permuted(result.c_n, input.unsorted_indices)};
}

std::string RecurrentLayer::extra_repr() const {
  std::string text = str(input_size_, ", ", hidden_size_);
  if (options_.num_layers > 1) text += str(", layers ", options_.num_layers);
  if (!options_.bias) text += ", no bias";
  if (options_.batch_first) text += ", batch first";
  if (options_.dropout > 0) text += str(", dropout ", options_.dropout);
  if (options_.bidirectional) text += ", bidirectional";
  return text;
}

LSTM::LSTM(int64_t input_size, int64_t hidden_size, LSTMOptions options)
    : RecurrentLayer("LSTM", &lstm, 4, input_size, hidden_size, options) {}

LstmResult LSTM::operator()(const Tensor& input, const Tensor& h_0, const Tensor& c_0) const {
  return call(input, {h_0, c_0});
}
PackedLstmResult LSTM::operator()(const PackedSequence& input, const Tensor& h_0, const Tensor& c_0) const {
  return call(input, {h_0, c_0});
}

RecurrentResult SingleStateLayer::operator()(const Tensor& input, const Tensor& h_0) const {
  const LstmResult result = call(input, {h_0});
  return {result.output, result.h_n};
}
PackedRecurrentResult SingleStateLayer::operator()(const PackedSequence& input, const Tensor& h_0) const {
  const PackedLstmResult result = call(input, {h_0});
  return {result.output, result.h_n};
}

GRU::GRU(int64_t input_size, int64_t hidden_size, GRUOptions options)
    : SingleStateLayer("GRU", &with_one_state<gru>, 3, input_size, hidden_size, options) {}

RNN::RNN(int64_t input_size, int64_t hidden_size, RNNOptions options)
    : SingleStateLayer(
          "RNN", options.nonlinearity == RNNNonlinearity::kTanh ? &with_one_state<rnn_tanh> : &with_one_state<rnn_relu>,
          1, input_size, hidden_size,
          {options.num_layers, options.bias, options.batch_first, options.dropout, options.bidirectional}) {}

RecurrentCell::RecurrentCell(const char* name, int64_t gates, int64_t input_size, int64_t hidden_size, bool bias)
    : weight_ih(add_parameter("weight_ih", empty({checked_width(name, gates, input_size, hidden_size), input_size}))),
      weight_hh(add_parameter("weight_hh", empty({saturating_mul(gates, hidden_size), hidden_size}))),
      bias_ih(add_parameter("bias_ih", bias ? empty({saturating_mul(gates, hidden_size)}) : Tensor())),
      bias_hh(add_parameter("bias_hh", bias ? empty({saturating_mul(gates, hidden_size)}) : Tensor())) {
  initialize(*this, hidden_size);
}

Tensor RecurrentCell::batched_state(const Tensor& input, const Tensor& state) const {
  TANDEM_CHECK(ShapeError, (input.dim() == 1 || input.dim() == 2) && input.size(-1) == weight_ih.size(1), type_name(),
               ": input is ", describe(input), ", expected [N, ", weight_ih.size(1), "] or [", weight_ih.size(1), "]");
  TANDEM_CHECK(ShapeError, !state.defined() || state.dim() == input.dim(), type_name(), ": a state is ",
               describe(state), ", expected as many dimensions as input has, ", input.dim());
  if (!state.defined()) return zeros({input.dim() == 2 ? input.size(0) : 1, weight_hh.size(1)}, input.options());
  return input.dim() == 2 ? state : state.unsqueeze(0);
}

Tensor RecurrentCell::step(decltype(&gru_cell) operation, const Tensor& input, const Tensor& h) const {
  const ModuleScope scope(*this);
  const Tensor state = batched_state(input, h);
  if (input.dim() == 2) return operation(input, state, weight_ih, weight_hh, bias_ih, bias_hh);
  return operation(input.unsqueeze(0), state, weight_ih, weight_hh, bias_ih, bias_hh).squeeze(0);
}

std::string RecurrentCell::extra_repr() const {
  return str(weight_ih.size(1), ", ", weight_hh.size(1), bias_ih.defined() ? "" : ", no bias");
}

LSTMCell::LSTMCell(int64_t input_size, int64_t hidden_size, LSTMCellOptions options)
    : RecurrentCell("LSTMCell", 4, input_size, hidden_size, options.bias) {}

LstmCellResult LSTMCell::operator()(const Tensor& input, const Tensor& h, const Tensor& c) const {
  const ModuleScope scope(*this);
  const std::vector<Tensor> hx = {batched_state(input, h), batched_state(input, c)};
  if (input.dim() == 2) return lstm_cell(input, hx, weight_ih, weight_hh, bias_ih, bias_hh);
  const auto [next_h, next_c] = lstm_cell(input.unsqueeze(0), hx, weight_ih, weight_hh, bias_ih, bias_hh);
  return {next_h.squeeze(0), next_c.squeeze(0)};
}

GRUCell::GRUCell(int64_t input_size, int64_t hidden_size, GRUCellOptions options)
    : RecurrentCell("GRUCell", 3, input_size, hidden_size, options.bias) {}

RNNCell::RNNCell(int64_t input_size, int64_t hidden_size, RNNCellOptions options)
    : RecurrentCell("RNNCell", 1, input_size, hidden_size, options.bias), nonlinearity_(options.nonlinearity) {}

Tensor GRUCell::operator()(const Tensor& input, const Tensor& h) const { return step(&gru_cell, input, h); }

Tensor RNNCell::operator()(const Tensor& input, const Tensor& h) const {
  return step(nonlinearity_ == RNNNonlinearity::kTanh ? &rnn_tanh_cell : &rnn_relu_cell, input, h);
}

}}}  // namespace tandem::v0::nn
