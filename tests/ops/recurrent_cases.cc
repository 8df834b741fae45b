#include <tandem/tests/ops/op_cases.h>

namespace tandem::testing {

namespace {

using Vector = std::vector<double>;

enum class Kind { kLstm, kGru, kTanh, kRelu };
constexpr const char* kNames[] = {"lstm", "gru", "rnn_tanh", "rnn_relu"};
const char* name_of(Kind kind) { return kNames[static_cast<int>(kind)]; }
size_t gates_of(Kind kind) { return kind == Kind::kLstm ? 4 : kind == Kind::kGru ? 3 : 1; }
size_t states_of(Kind kind) { return kind == Kind::kLstm ? 2 : 1; }

double sigmoid(double x) { return 1 / (1 + std::exp(-x)); }

/// weight [n, k] @ x + bias; the bias may be null.
Vector affine(const Dense& weight, const double* x, const Dense* bias) {
  Vector out(static_cast<size_t>(weight.shape[0]));
  for (int64_t i = 0; i < weight.shape[0]; ++i) {
    double sum = bias == nullptr ? 0 : (*bias)[i];
    for (int64_t j = 0; j < weight.shape[1]; ++j) sum += weight[i * weight.shape[1] + j] * x[j];
    out[static_cast<size_t>(i)] = sum;
  }
  return out;
}

/// One step of one sequence: params are weight_ih, weight_hh and, if there are four, the biases.
void step(Kind kind, const double* x, const Dense* params, bool has_biases, Vector& h, Vector& c) {
  const Vector a = affine(params[0], x, has_biases ? params + 2 : nullptr);
  const Vector b = affine(params[1], h.data(), has_biases ? params + 3 : nullptr);
  const size_t hidden = h.size();
  for (size_t j = 0; j < hidden; ++j) {
    const auto sum = [&](size_t gate) { return a[gate * hidden + j] + b[gate * hidden + j]; };
    if (kind == Kind::kLstm) {
      c[j] = sigmoid(sum(1)) * c[j] + sigmoid(sum(0)) * std::tanh(sum(2));
      h[j] = sigmoid(sum(3)) * std::tanh(c[j]);
    } else if (kind == Kind::kGru) {
      const double z = sigmoid(sum(1)), n = std::tanh(a[2 * hidden + j] + sigmoid(sum(0)) * b[2 * hidden + j]);
      h[j] = (1 - z) * n + z * h[j];
    } else {
      h[j] = kind == Kind::kTanh ? std::tanh(sum(0)) : std::max(sum(0), 0.0);
    }
  }
}

struct Sizes {
  int64_t length, batch, input, hidden;
  int64_t layers = 1;
  bool is_bidirectional = false;
  bool is_batch_first = false;
  bool has_biases = true;
  std::vector<int64_t> batch_sizes = {};  ///< of packed input

  int64_t directions() const { return is_bidirectional ? 2 : 1; }
  size_t num_params() const { return static_cast<size_t>(layers * directions()) * (has_biases ? 4 : 2); }
  int64_t batch_at(int64_t t) const { return batch_sizes.empty() ? batch : batch_sizes[static_cast<size_t>(t)]; }
  /// The row of sequence n in step t.
  int64_t row(int64_t t, int64_t n) const {
    if (is_batch_first) return n * length + t;
    int64_t begin = 0;
    for (int64_t s = 0; s < t; ++s) begin += batch_at(s);
    return begin + n;
  }
};

/// The elements of output, h_n and, for an LSTM, c_n, computed sequence by sequence.
Dense reference(Kind kind, const Sizes& sizes, const std::vector<Dense>& in) {
  const int64_t hidden = sizes.hidden, directions = sizes.directions();
  const size_t first = 1 + states_of(kind), per_direction = sizes.has_biases ? 4 : 2;
  Vector rows = in[0].values,
         states[2] = {in[1].values, kind == Kind::kLstm ? in[2].values : Vector(in[1].values.size())};
  int64_t width = sizes.input;
  for (int64_t layer = 0; layer < sizes.layers; ++layer) {
    Vector output(rows.size() / static_cast<size_t>(width) * static_cast<size_t>(directions * hidden));
    for (int64_t d = 0; d < directions; ++d) {
      const int64_t index = layer * directions + d;
      const Dense* params = in.data() + first + static_cast<size_t>(index) * per_direction;
      for (int64_t n = 0; n < sizes.batch; ++n) {
        const auto begin = (index * sizes.batch + n) * hidden;
        const auto state = [&](int i) { return states[i].begin() + begin; };
        Vector h(state(0), state(0) + hidden), c(state(1), state(1) + hidden);
        for (int64_t s = 0; s < sizes.length; ++s) {
          const int64_t t = d == 0 ? s : sizes.length - 1 - s;
          if (n >= sizes.batch_at(t)) continue;
          const int64_t row = sizes.row(t, n);
          step(kind, rows.data() + row * width, params, sizes.has_biases, h, c);
          std::copy(h.begin(), h.end(), output.begin() + (row * directions + d) * hidden);
        }
        std::copy(h.begin(), h.end(), state(0));
        std::copy(c.begin(), c.end(), state(1));
      }
    }
    rows = output;
    width = directions * hidden;
  }
  for (size_t i = 0; i < states_of(kind); ++i) rows.insert(rows.end(), states[i].begin(), states[i].end());
  return {{static_cast<int64_t>(rows.size())}, rows};
}

/// The elements of several tensors.
Tensor joined(const Tensors& tensors) {
  Tensors flat;
  for (const Tensor& tensor : tensors) flat.push_back(tensor.flatten());
  return cat(flat);
}

Tensor run_layers(Kind kind, const Tensors& x, const RecurrentOptions& options) {
  const size_t first = 1 + states_of(kind);
  const Tensors params(x.begin() + static_cast<ptrdiff_t>(first), x.end());
  if (kind == Kind::kLstm) {
    const auto [output, h_n, c_n] = lstm(x[0], {x[1], x[2]}, params, options);
    return joined({output, h_n, c_n});
  }
  const auto op = kind == Kind::kGru ? &gru : kind == Kind::kTanh ? &rnn_tanh : &rnn_relu;
  const auto [output, h_n] = op(x[0], x[1], params, options);
  return joined({output, h_n});
}

constexpr const char* kStates[] = {"hx[0]", "hx[1]"};
constexpr const char* kParams[] = {"params[0]",  "params[1]",  "params[2]",  "params[3]", "params[4]",  "params[5]",
                                   "params[6]",  "params[7]",  "params[8]",  "params[9]", "params[10]", "params[11]",
                                   "params[12]", "params[13]", "params[14]", "params[15]"};

/// The states, then the parameters of layer after layer.
void add_inputs(Kind kind, const Sizes& sizes, const Shape& state, const char* const* names,
                std::vector<Input>& inputs) {
  const auto width = static_cast<int64_t>(gates_of(kind)) * sizes.hidden;
  for (size_t i = 0; i < states_of(kind); ++i)
    inputs.push_back({kind == Kind::kLstm ? kStates[i] : "hx", state, -1, 1});
  for (size_t i = 0; i < sizes.num_params(); ++i) {
    const size_t per_direction = sizes.has_biases ? 4 : 2, part = i % per_direction;
    const bool is_first = i / per_direction < static_cast<size_t>(sizes.directions());
    const int64_t columns = part == 1 ? sizes.hidden : is_first ? sizes.input : sizes.directions() * sizes.hidden;
    const double bound = std::min(0.5, 1 / std::sqrt(static_cast<double>(sizes.hidden)));
    inputs.push_back({names[i], part < 2 ? Shape({width, columns}) : Shape({width}), -bound, bound});
  }
}

OpCase layers_case(Kind kind, const Sizes& sizes) {
  OpCase op;
  op.name = name_of(kind);
  int64_t num_rows = 0;
  for (int64_t t = 0; t < sizes.length; ++t) num_rows += sizes.batch_at(t);
  const Shape padded = sizes.is_batch_first ? Shape({sizes.batch, sizes.length, sizes.input})
                                            : Shape({sizes.length, sizes.batch, sizes.input});
  op.inputs = {{"input", sizes.batch_sizes.empty() ? padded : Shape({num_rows, sizes.input})}};
  add_inputs(kind, sizes, {sizes.layers * sizes.directions(), sizes.batch, sizes.hidden}, kParams, op.inputs);
  op.run = [=](const Tensors& x) {
    RecurrentOptions options{.has_biases = sizes.has_biases,
                             .num_layers = sizes.layers,
                             .bidirectional = sizes.is_bidirectional,
                             .batch_first = sizes.is_batch_first};
    if (!sizes.batch_sizes.empty()) options.batch_sizes = from_vector<int64_t>(sizes.batch_sizes, {sizes.length});
    return run_layers(kind, x, options);
  };
  op.reference = [=](const std::vector<Dense>& in) { return reference(kind, sizes, in); };
  op.terms = static_cast<double>(sizes.length * (sizes.input + sizes.hidden));
  op.has_second_gradient = test_device().is_cpu();  // composed of operations, which an emulated GPU runs for minutes
  return op;
}

Tensor run_cell(Kind kind, const Tensors& x) {
  if (kind == Kind::kLstm) {
    const auto [h, c] = lstm_cell(x[0], {x[1], x[2]}, x[3], x[4], x[5], x[6]);
    return joined({h, c});
  }
  const auto op = kind == Kind::kGru ? &gru_cell : kind == Kind::kTanh ? &rnn_tanh_cell : &rnn_relu_cell;
  return op(x[0], x[1], x[2], x[3], x[4], x[5]);
}

OpCase cell_case(Kind kind, int64_t batch, int64_t input, int64_t hidden) {
  constexpr const char* kWeights[] = {"w_ih", "w_hh", "b_ih", "b_hh"};
  const Sizes sizes{.length = 1, .batch = batch, .input = input, .hidden = hidden};
  OpCase op;
  op.name = std::string(name_of(kind)) + "_cell";
  op.inputs = {{"input", {batch, input}}};
  add_inputs(kind, sizes, {batch, hidden}, kWeights, op.inputs);
  for (Input& in : op.inputs) in.optional = in.name[0] == 'b';
  op.run = [=](const Tensors& x) { return run_cell(kind, x); };
  op.reference = [=](const std::vector<Dense>& in) {
    const Dense all = reference(kind, sizes, in);
    const auto begin = all.values.begin() + batch * hidden;  // after the output of the only step
    const Vector states(begin, all.values.end());
    return Dense{kind == Kind::kLstm ? Shape({2 * batch * hidden}) : Shape({batch, hidden}), states};
  };
  op.terms = static_cast<double>(input + hidden);
  return op;
}

struct Model {
  const char* word;
  Kind kind;
  int64_t length, batch, hidden;
  int64_t layers = 1;
};

double flops(const Model& m) {
  return 2.0 * static_cast<double>(m.layers * m.length * m.batch * m.hidden) *
         static_cast<double>(2 * m.hidden * static_cast<int64_t>(gates_of(m.kind)));
}

TensorList model_inputs(const Model& m, bool is_cell) {
  const auto width = static_cast<int64_t>(gates_of(m.kind)) * m.hidden;
  const auto weights = [&](const Shape& shape) { return mul(sub(rand(shape), 0.5), 0.08); };
  TensorList inputs = {is_cell ? randn({m.batch, m.hidden}) : randn({m.length, m.batch, m.hidden})};
  for (size_t i = 0; i < states_of(m.kind); ++i) {
    inputs.push_back(is_cell ? zeros({m.batch, m.hidden}) : zeros({m.layers, m.batch, m.hidden}));
  }
  for (int64_t layer = 0; layer < m.layers; ++layer) {
    for (const Shape& shape : {Shape({width, m.hidden}), Shape({width, m.hidden}), Shape({width}), Shape({width})}) {
      inputs.push_back(weights(shape));
    }
  }
  return inputs;
}

void add_benchmarks(OpCases& cases) {
  const Model models[] = {
      {"lstm 2 x 512", Kind::kLstm, 64, 32, 512, 2},
      {"lstm 2 x 512, one sequence", Kind::kLstm, 64, 1, 512, 2},
      {"gru", Kind::kGru, 64, 32, 512},
      {"rnn_tanh", Kind::kTanh, 64, 32, 512},
      {"rnn_relu", Kind::kRelu, 64, 32, 512},
  };
  for (const Model& m : models) {
    const std::string inputs = "abcdefghijklmnop";
    size_t next = 1;
    std::string torch = std::string("torch.") + name_of(m.kind) + "(a, ";
    torch += m.kind == Kind::kLstm ? "(b, c), [" : "b, [";
    next += states_of(m.kind);
    for (int64_t i = 0; i < 4 * m.layers; ++i) torch += {inputs[next++], ','};
    torch += str("], True, ", m.layers, ", 0.0, True, False, False)[0]");
    cases.benchmark(
        m.word, [m] { return model_inputs(m, false); },
        [m](const TensorList& in) {
          const Tensors x(in.begin(), in.end());
          const Tensors params(x.begin() + 1 + static_cast<ptrdiff_t>(states_of(m.kind)), x.end());
          const RecurrentOptions options{.num_layers = m.layers, .train = true};
          if (m.kind == Kind::kLstm) return lstm(x[0], {x[1], x[2]}, params, options).output;
          return (m.kind == Kind::kGru    ? &gru
                  : m.kind == Kind::kTanh ? &rnn_tanh
                                          : &rnn_relu)(x[0], x[1], params, options)
              .output;
        },
        {.flops = flops(m)}, torch);
  }
  for (const Kind kind : {Kind::kLstm, Kind::kGru, Kind::kTanh, Kind::kRelu}) {
    const Model m{"", kind, 1, 64, 512};
    cases.benchmark(
        std::string(name_of(kind)) + "_cell", [m] { return model_inputs(m, true); },
        [m](const TensorList& in) { return run_cell(m.kind, Tensors(in.begin(), in.end())); }, {.flops = flops(m)});
  }
}

}  // namespace

TANDEM_OP_CASES(recurrent) {
  const std::string arguments = "const std::vector<Tensor>& params, const RecurrentOptions& options = {})";
  const std::string one_state = "(const Tensor& input, const Tensor& hx, ";
  const std::string two_states = "(const Tensor& input, const std::vector<Tensor>& hx, ";
  const std::string weights =
      "const Tensor& w_ih, const Tensor& w_hh, const Tensor& b_ih = {}, const Tensor& b_hh = {})";
  for (const Kind kind : {Kind::kLstm, Kind::kGru, Kind::kTanh, Kind::kRelu}) {
    const std::string name = name_of(kind), states = kind == Kind::kLstm ? two_states : one_state;
    cases.op((kind == Kind::kLstm ? "LstmResult " : "RecurrentResult ") + name + states + arguments,
             CastPolicy::kLowPrecision, {layers_case(kind, {.length = 3, .batch = 2, .input = 5, .hidden = 4})});
    cases.op((kind == Kind::kLstm ? "LstmCellResult " : "Tensor ") + name + "_cell" + states + weights,
             CastPolicy::kLowPrecision, {cell_case(kind, 3, 5, 4)});

    cases.add(
        layers_case(kind, {.length = 2, .batch = 1, .input = 3, .hidden = 2, .layers = 2, .is_bidirectional = true}));
    cases.add(layers_case(
        kind, {.length = 2, .batch = 3, .input = 1, .hidden = 2, .is_batch_first = true, .has_biases = false}));
    cases.add(layers_case(
        kind, {.length = 3, .batch = 3, .input = 2, .hidden = 2, .is_bidirectional = true, .batch_sizes = {3, 2, 1}}));
    cases.add(
        layers_case(kind, {.length = 4, .batch = 33, .input = 31, .hidden = 65, .layers = 2, .is_bidirectional = true}),
        kValues | kThreads);
    cases.add(layers_case(kind, {.length = 3, .batch = 70, .input = 7, .hidden = 96, .batch_sizes = {70, 33, 1}}),
              kValues | kThreads);
    cases.add(layers_case(kind, {.length = 5, .batch = 1, .input = 64, .hidden = 128}), kValues | kThreads);
    cases.add(cell_case(kind, 33, 40, 65), kValues | kThreads);
  }
  add_benchmarks(cases);
}

}  // namespace tandem::testing
