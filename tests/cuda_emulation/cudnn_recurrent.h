// The computation of cuDNN's recurrent layers, for the emulation: in float64, with h rounded after each step.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <vector>

#include <tandem/tests/cuda_emulation/cudnn_handle.h>

struct cudnnRNNStruct {
  bool is_set = false;
  cudnnRNNMode_t mode;
  bool has_bias;
  int directions;
  cudnnDataType_t type;
  cudnnMathType_t math;
  int input, hidden;

  int gates() const { return mode == CUDNN_LSTM ? 4 : mode == CUDNN_GRU ? 3 : 1; }
};

namespace cuda_emulation { namespace recurrent {

inline size_t size(int64_t count) { return static_cast<size_t>(count); }

constexpr int64_t kGap = 8;  // unused elements after each part of the weights
constexpr size_t kReserveHeader = 16;

/// The columns of part 0 to 3 of a direction's parameters: input matrices, recurrent matrices, and their biases.
inline int64_t columns(const cudnnRNNStruct& rnn, int part) {
  return part == 0 ? rnn.input : part == 1 ? rnn.hidden : 1;
}

/// Elements before a part, the matrices of all directions first; for `part` 4 all elements.
inline int64_t offset(const cudnnRNNStruct& rnn, int direction, int part) {
  int64_t begin = 0;
  for (const int first : {0, 2}) {
    if (first == 2 && !rnn.has_bias) break;
    for (int d = 0; d < rnn.directions; ++d) {
      for (int p = first; p < first + 2; ++p) {
        if (d == direction && p == part) return begin;
        begin += rnn.gates() * rnn.hidden * columns(rnn, p) + kGap;
      }
    }
  }
  return begin;
}
inline size_t weight_bytes_of(const cudnnRNNStruct& rnn) { return size(offset(rnn, 0, 4) * bytes_of(rnn.type)); }

/// What the reserve space has for a unit of a row.
struct Unit {
  double gates[4], kept;            // kept: c before the step (LSTM), the hidden share of the new gate (GRU)
  double gradients[4], hidden_new;  // hidden_new: of that share
};

/// A layer of packed sequences.
struct Layer {
  cudnnRNNStruct rnn;
  std::vector<int> lengths;
  std::vector<int64_t> begins = {0};  ///< the first row of each step; then the number of rows

  Layer(const cudnnRNNStruct& r, const std::vector<int>& l) : rnn(r), lengths(l) {
    for (int t = 0; t < lengths[0]; ++t) {
      begins.push_back(begins.back() +
                       std::count_if(lengths.begin(), lengths.end(), [t](int length) { return length > t; }));
    }
  }
  int64_t rows() const { return begins.back(); }
  int64_t batch() const { return static_cast<int64_t>(lengths.size()); }
  int64_t state_elements() const { return rnn.directions * batch() * rnn.hidden; }
  int64_t output_elements() const { return rows() * rnn.directions * rnn.hidden; }
  size_t reserve_bytes() const { return kReserveHeader + size(output_elements()) * sizeof(Unit); }
  size_t bytes(int64_t elements) const { return size(elements * bytes_of(rnn.type)); }
  std::vector<double> load(const void* data, int64_t elements) const {
    return load_elements(rnn.type, data, size(elements));
  }
  /// Empty for null.
  std::vector<double> load_state(const void* data) const {
    return data == nullptr ? std::vector<double>() : load(data, state_elements());
  }
  /// The row of step s of sequence n, in the order of a direction.
  int64_t row(int direction, int64_t n, int s) const {
    const int t = direction == 0 ? s : lengths[size(n)] - 1 - s;
    return begins[size(t)] + n;
  }
  /// h before step s of sequence n, from the outputs or the initial states.
  const double* h_before(const std::vector<double>& y, const std::vector<double>& hx, int direction, int64_t n,
                         int s) const {
    if (s == 0) return hx.data() + (direction * batch() + n) * rnn.hidden;
    return y.data() + (row(direction, n, s - 1) * rnn.directions + direction) * rnn.hidden;
  }
  Unit* units(void* reserve, int direction, int64_t row) const {
    return reinterpret_cast<Unit*>(static_cast<char*>(reserve) + kReserveHeader) +
           (direction * rows() + row) * rnn.hidden;
  }
};

// The passes. `reserve` is null in inference. backward_weights reads what backward_data has written to it, and
// backward_data what the forward pass has, once: else the process ends.
void forward(const Layer& l, const void* x, void* y, const void* hx, void* hy, const void* cx, void* cy,
             const void* weights, void* reserve);
void backward_data(const Layer& l, const void* y, const void* dy, void* dx, const void* hx, const void* dhy, void* dhx,
                   const void* dcy, void* dcx, const void* weights, void* reserve);
void backward_weights(const Layer& l, const void* x, const void* hx, const void* y, void* weights_grad, void* reserve);

}}  // namespace cuda_emulation::recurrent
