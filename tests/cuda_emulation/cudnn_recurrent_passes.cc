#include <tandem/tests/cuda_emulation/cudnn_recurrent.h>

#include <algorithm>
#include <cmath>
#include <cstring>

namespace cuda_emulation { namespace recurrent {

using cudnn_objects::fault;

namespace {

using Values = std::vector<double>;

enum class State : uint64_t { kForward = 0xF0, kBackward = 0xB0 };

double dot(const double* a, const double* b, int64_t n) {
  double sum = 0;
  for (int64_t i = 0; i < n; ++i) sum += a[i] * b[i];
  return sum;
}
/// to += factor * from.
void add_scaled(double factor, const double* from, int64_t n, double* to) {
  for (int64_t i = 0; i < n; ++i) to[i] += factor * from[i];
}

double sigmoid(double x) { return 1 / (1 + std::exp(-x)); }

/// A unit's step: x and r are the shares of the input and of h in its gates.
void step(cudnnRNNMode_t mode, const double* x, const double* r, double& h, double& c, Unit& u) {
  u.kept = mode == CUDNN_LSTM ? c : r[2];
  switch (mode) {
    case CUDNN_LSTM:
      for (int k = 0; k < 4; ++k) u.gates[k] = k == 2 ? std::tanh(x[k] + r[k]) : sigmoid(x[k] + r[k]);
      c = u.gates[1] * c + u.gates[0] * u.gates[2];
      h = u.gates[3] * std::tanh(c);
      return;
    case CUDNN_GRU:
      for (int k = 0; k < 2; ++k) u.gates[k] = sigmoid(x[k] + r[k]);
      u.gates[2] = std::tanh(x[2] + u.gates[0] * r[2]);
      h = (1 - u.gates[1]) * u.gates[2] + u.gates[1] * h;
      return;
    default: h = u.gates[0] = mode == CUDNN_RNN_TANH ? std::tanh(x[0] + r[0]) : std::max(x[0] + r[0], 0.0);
  }
}

/// The gradients of a unit's gates for those of h and c after the step; they become those before it, without what
/// passes through the recurrent matrix. `h` is the state before the step.
void step_backward(cudnnRNNMode_t mode, double h, double& dh, double& dc, Unit& u) {
  const double* const g = u.gates;
  double* const d = u.gradients;
  switch (mode) {
    case CUDNN_LSTM: {
      const double t = std::tanh(g[1] * u.kept + g[0] * g[2]), cell = dc + dh * g[3] * (1 - t * t);
      d[0] = cell * g[2] * g[0] * (1 - g[0]);
      d[1] = cell * u.kept * g[1] * (1 - g[1]);
      d[2] = cell * g[0] * (1 - g[2] * g[2]);
      d[3] = dh * t * g[3] * (1 - g[3]);
      dc = cell * g[1];
      dh = 0;
      return;
    }
    case CUDNN_GRU:
      d[2] = dh * (1 - g[1]) * (1 - g[2] * g[2]);
      d[1] = dh * (h - g[2]) * g[1] * (1 - g[1]);
      d[0] = d[2] * u.kept * g[0] * (1 - g[0]);
      u.hidden_new = d[2] * g[0];
      dh *= g[1];
      return;
    default: d[0] = mode == CUDNN_RNN_TANH ? dh * (1 - g[0] * g[0]) : g[0] > 0 ? dh : 0; dh = 0;
  }
}

/// The gradient of gate k's recurrent share.
double hidden_gradient(cudnnRNNMode_t mode, const Unit& u, int k) {
  return mode == CUDNN_GRU && k == 2 ? u.hidden_new : u.gradients[k];
}

/// Rounds values to the type in which they are stored.
void round_elements(cudnnDataType_t type, double* values, size_t count) {
  std::vector<char> stored(count * size(bytes_of(type)));
  store_elements(type, Values(values, values + count), stored.data());
  const Values rounded = load_elements(type, stored.data(), count);
  std::copy(rounded.begin(), rounded.end(), values);
}

/// The parts of a direction's parameters in those of the layer.
template <class T>
struct Parts {
  T* matrices[2];
  T* biases[2];
  Parts(const cudnnRNNStruct& rnn, T* all, int direction)
      : matrices{all + offset(rnn, direction, 0), all + offset(rnn, direction, 1)},
        biases{all + offset(rnn, direction, 2), all + offset(rnn, direction, 3)} {}
};

void set_state(void* reserve, State state) { std::memcpy(reserve, &state, sizeof(state)); }
void check_state(void* reserve, State state, const char* problem) {
  if (std::memcmp(reserve, &state, sizeof(state)) != 0) fault(problem);
}

}  // namespace

void forward(const Layer& l, const void* x_data, void* y_data, const void* hx, void* hy, const void* cx, void* cy,
             const void* weights, void* reserve) {
  const int64_t width = l.rnn.input, hidden = l.rnn.hidden;
  const int gates = l.rnn.gates();
  const Values x = l.load(x_data, l.rows() * width), w = l.load(weights, offset(l.rnn, 0, 4));
  Values y(size(l.output_elements())), h_n = l.load_state(hx), c_n = l.load_state(cx), none(size(hidden));
  std::vector<Unit> unused(size(hidden));
  for (int d = 0; d < l.rnn.directions; ++d) {
    const Parts<const double> p(l.rnn, w.data(), d);
    for (int64_t n = 0; n < l.batch(); ++n) {
      double* const h = h_n.data() + (d * l.batch() + n) * hidden;
      double* const c = c_n.empty() ? none.data() : c_n.data() + (d * l.batch() + n) * hidden;
      for (int s = 0; s < l.lengths[size(n)]; ++s) {
        const int64_t row = l.row(d, n, s);
        Unit* const units = reserve == nullptr ? unused.data() : l.units(reserve, d, row);
        const Values h_before(h, h + hidden);
        for (int64_t j = 0; j < hidden; ++j) {
          double input[4] = {}, recurrent[4] = {};
          for (int k = 0; k < gates; ++k) {
            const int64_t i = k * hidden + j;
            input[k] = dot(p.matrices[0] + i * width, x.data() + row * width, width);
            recurrent[k] = dot(p.matrices[1] + i * hidden, h_before.data(), hidden);
            if (!l.rnn.has_bias) continue;
            input[k] += p.biases[0][i];
            recurrent[k] += p.biases[1][i];
          }
          step(l.rnn.mode, input, recurrent, h[j], c[j], units[j]);
        }
        double* const out = y.data() + (row * l.rnn.directions + d) * hidden;
        std::copy(h, h + hidden, out);
        round_elements(l.rnn.type, h, size(hidden));
      }
    }
  }
  store_elements(l.rnn.type, y, y_data);
  store_elements(l.rnn.type, h_n, hy);
  if (!c_n.empty()) store_elements(l.rnn.type, c_n, cy);
  if (reserve != nullptr) set_state(reserve, State::kForward);
}

void backward_data(const Layer& l, const void* y_data, const void* dy_data, void* dx_data, const void* hx,
                   const void* dhy, void* dhx, const void* dcy, void* dcx, const void* weights, void* reserve) {
  check_state(reserve, State::kForward, "the reserve space is not that of a forward pass, or was used by a backward");
  const int64_t width = l.rnn.input, hidden = l.rnn.hidden;
  const Values y = l.load(y_data, l.output_elements()), dy = l.load(dy_data, l.output_elements());
  const Values h_0 = l.load_state(hx), w = l.load(weights, offset(l.rnn, 0, 4));
  Values dx(size(l.rows() * width)), dh_n = l.load_state(dhy), dc_n = l.load_state(dcy), none(size(hidden));
  for (int d = 0; d < l.rnn.directions; ++d) {
    const Parts<const double> p(l.rnn, w.data(), d);
    for (int64_t n = 0; n < l.batch(); ++n) {
      double* const dh = dh_n.data() + (d * l.batch() + n) * hidden;
      double* const dc = dc_n.empty() ? none.data() : dc_n.data() + (d * l.batch() + n) * hidden;
      for (int s = l.lengths[size(n)]; s-- > 0;) {
        const int64_t row = l.row(d, n, s);
        Unit* const units = l.units(reserve, d, row);
        add_scaled(1, dy.data() + (row * l.rnn.directions + d) * hidden, hidden, dh);
        const double* const h = l.h_before(y, h_0, d, n, s);
        for (int64_t j = 0; j < hidden; ++j) step_backward(l.rnn.mode, h[j], dh[j], dc[j], units[j]);
        for (int64_t j = 0; j < hidden; ++j) {
          for (int k = 0; k < l.rnn.gates(); ++k) {
            const int64_t i = k * hidden + j;
            add_scaled(units[j].gradients[k], p.matrices[0] + i * width, width, dx.data() + row * width);
            add_scaled(hidden_gradient(l.rnn.mode, units[j], k), p.matrices[1] + i * hidden, hidden, dh);
          }
        }
      }
    }
  }
  store_elements(l.rnn.type, dx, dx_data);
  store_elements(l.rnn.type, dh_n, dhx);
  if (!dc_n.empty()) store_elements(l.rnn.type, dc_n, dcx);
  set_state(reserve, State::kBackward);
}

void backward_weights(const Layer& l, const void* x_data, const void* hx, const void* y_data, void* weights_grad,
                      void* reserve) {
  check_state(reserve, State::kBackward, "cudnnRNNBackwardData_v8 must write the reserve space first");
  const int64_t width = l.rnn.input, hidden = l.rnn.hidden;
  const Values x = l.load(x_data, l.rows() * width), y = l.load(y_data, l.output_elements()), h_0 = l.load_state(hx);
  Values dw = l.load(weights_grad, offset(l.rnn, 0, 4));
  for (int d = 0; d < l.rnn.directions; ++d) {
    const Parts<double> p(l.rnn, dw.data(), d);
    for (int64_t n = 0; n < l.batch(); ++n) {
      for (int s = 0; s < l.lengths[size(n)]; ++s) {
        const int64_t row = l.row(d, n, s);
        const Unit* const units = l.units(reserve, d, row);
        const double* const h = l.h_before(y, h_0, d, n, s);
        for (int64_t j = 0; j < hidden; ++j) {
          for (int k = 0; k < l.rnn.gates(); ++k) {
            const int64_t i = k * hidden + j;
            const double of_input = units[j].gradients[k], of_hidden = hidden_gradient(l.rnn.mode, units[j], k);
            add_scaled(of_input, x.data() + row * width, width, p.matrices[0] + i * width);
            add_scaled(of_hidden, h, hidden, p.matrices[1] + i * hidden);
            if (!l.rnn.has_bias) continue;
            p.biases[0][i] += of_input;
            p.biases[1][i] += of_hidden;
          }
        }
      }
    }
  }
  store_elements(l.rnn.type, dw, weights_grad);
}

}}  // namespace cuda_emulation::recurrent
