// The rules that the emulated recurrent layers of cuDNN check: each test violates some.
#include <cstddef>
#include <vector>

#include <cudnn.h>

#include <tandem/tests/cuda_emulation/test_support.h>

namespace cuda_emulation::testing { namespace {

/// relu(x W + h R) for two sequences of two steps and one, with one value per step; W = R = x = 1, h = 0.
struct Recurrent {
  cudnnHandle_t handle = nullptr;
  cudnnDropoutDescriptor_t dropout = nullptr;
  cudnnRNNDescriptor_t rnn = nullptr;
  cudnnRNNDataDescriptor_t x = nullptr, y = nullptr;
  cudnnTensorDescriptor_t state = nullptr, matrix = nullptr, vector = nullptr;
  size_t weight_bytes = 0, workspace_bytes = 0, reserve_bytes = 0;
  Stream stream;
  std::vector<float> ones = std::vector<float>(3, 1);
  Buffer<float> input{ones}, output{8}, h{std::vector<float>(2, 0)}, h_n{2}, grad{ones},
      grad_h_n{std::vector<float>(2, 0)}, input_grad{3}, grad_h{2}, weights{64},
      weights_grad{std::vector<float>(64, 10)};
  Buffer<char> workspace{1024}, reserve{1024};

  Recurrent() {
    EXPECT_EQ(cudnnCreate(&handle), CUDNN_STATUS_SUCCESS);
    EXPECT_EQ(cudnnSetStream(handle, stream), CUDNN_STATUS_SUCCESS);
    cudnnCreateDropoutDescriptor(&dropout);
    cudnnSetDropoutDescriptor(dropout, handle, 0, nullptr, 0, 0);
    cudnnCreateRNNDescriptor(&rnn);
    for (cudnnRNNDataDescriptor_t* data : {&x, &y}) cudnnCreateRNNDataDescriptor(data);
    for (cudnnTensorDescriptor_t* tensor : {&state, &matrix, &vector}) cudnnCreateTensorDescriptor(tensor);
    set_layer();
    for (const cudnnRNNDataDescriptor_t data : {x, y}) set_sequences(data, {2, 1});
    set_state(2);
    EXPECT_EQ(cudnnGetRNNWeightSpaceSize(handle, rnn, &weight_bytes), CUDNN_STATUS_SUCCESS);
    EXPECT_EQ(cudnnGetRNNTempSpaceSizes(handle, rnn, CUDNN_FWD_MODE_TRAINING, x, &workspace_bytes, &reserve_bytes),
              CUDNN_STATUS_SUCCESS);
    for (const int i : {0, 1}) EXPECT_CUDA(cudaMemcpy(weight(weights, i), ones.data(), 4, cudaMemcpyHostToDevice));
  }
  void set_layer(cudnnRNNAlgo_t algorithm = CUDNN_RNN_ALGO_STANDARD, int32_t projection = 1) {
    EXPECT_EQ(cudnnSetRNNDescriptor_v8(rnn, algorithm, CUDNN_RNN_RELU, CUDNN_RNN_NO_BIAS, CUDNN_UNIDIRECTIONAL,
                                       CUDNN_LINEAR_INPUT, CUDNN_DATA_FLOAT, CUDNN_DATA_FLOAT, CUDNN_FMA_MATH, 1, 1,
                                       projection, 1, dropout, CUDNN_RNN_PADDED_IO_DISABLED),
              CUDNN_STATUS_SUCCESS);
  }
  void set_sequences(cudnnRNNDataDescriptor_t data, const std::vector<int>& lengths, int width = 1) {
    cudnnSetRNNDataDescriptor(data, CUDNN_DATA_FLOAT, CUDNN_RNN_DATA_LAYOUT_SEQ_MAJOR_PACKED, 2,
                              static_cast<int>(lengths.size()), width, lengths.data(), nullptr);
  }
  void set_state(int batch, int last_stride = 1) {
    const int sizes[] = {1, batch, 1}, strides[] = {batch, 1, last_stride};
    cudnnSetTensorNdDescriptor(state, CUDNN_DATA_FLOAT, 3, sizes, strides);
  }
  /// The address of W (0) or R (1).
  float* weight(const Buffer<float>& in, int i) {
    void *address = nullptr, *bias = &address;
    EXPECT_EQ(cudnnGetRNNWeightParams(handle, rnn, 0, weight_bytes, in.data(), i, matrix, &address, vector, &bias),
              CUDNN_STATUS_SUCCESS);
    EXPECT_EQ(bias, nullptr);
    return static_cast<float*>(address);
  }
  void forward(const int32_t* device_lengths = nullptr, float* result = nullptr) {
    cudnnRNNForward(handle, rnn, CUDNN_FWD_MODE_TRAINING, device_lengths, x, input.data(), y,
                    result == nullptr ? output.data() : result, state, h.data(), h_n.data(), nullptr, nullptr, nullptr,
                    weight_bytes, weights.data(), workspace_bytes, workspace.data(), reserve_bytes, reserve.data());
  }
  void backward_data() {
    cudnnRNNBackwardData_v8(handle, rnn, nullptr, y, output.data(), grad.data(), x, input_grad.data(), state, h.data(),
                            grad_h_n.data(), grad_h.data(), nullptr, nullptr, nullptr, nullptr, weight_bytes,
                            weights.data(), workspace_bytes, workspace.data(), reserve_bytes, reserve.data());
  }
  void backward_weights(cudnnWgradMode_t mode = CUDNN_WGRAD_MODE_ADD) {
    cudnnRNNBackwardWeights_v8(handle, rnn, mode, nullptr, x, input.data(), state, h.data(), y, output.data(),
                               weight_bytes, weights_grad.data(), workspace_bytes, workspace.data(), reserve_bytes,
                               reserve.data());
  }
  void wait() { EXPECT_CUDA(cudaStreamSynchronize(stream)); }
  float value(const float* p) {
    float result = 0;
    EXPECT_CUDA(cudaMemcpy(&result, p, 4, cudaMemcpyDeviceToHost));
    return result;
  }
};

TEST(CudnnRecurrent, SequencesEndAtTheirLengthsAndWeightGradientsAreAdded) {
  Recurrent r;
  r.forward();
  r.backward_data();
  r.backward_weights();
  r.wait();
  const std::vector<float> y = r.output.values();
  EXPECT_EQ(std::vector<float>(y.begin(), y.begin() + 3), (std::vector<float>{1, 1, 2}));
  EXPECT_EQ(r.h_n.values(), (std::vector<float>{2, 1}));
  EXPECT_EQ(r.input_grad.values(), (std::vector<float>{2, 1, 1}));
  EXPECT_EQ(r.grad_h.values(), (std::vector<float>{2, 1}));
  EXPECT_EQ(r.value(r.weight(r.weights_grad, 0)), 14);
  EXPECT_EQ(r.value(r.weight(r.weights_grad, 1)), 11);
}

TEST(CudnnRecurrent, WrongOrderOfPassesEndsTheProcess) {
  Recurrent r;
  r.forward();
  r.wait();
  EXPECT_DEATH(
      {
        r.backward_weights();
        r.wait();
      },
      "cudnnRNNBackwardData_v8 must write the reserve space first");
  r.backward_data();
  r.wait();
  EXPECT_DEATH(
      {
        r.backward_data();
        r.wait();
      },
      "not that of a forward pass, or was used by a backward");
}

TEST(CudnnRecurrent, WrongDescriptorsEndTheProcess) {
  Recurrent r;
  EXPECT_DEATH(r.set_layer(CUDNN_RNN_ALGO_PERSIST_STATIC), "only one layer of packed sequences by the standard");
  EXPECT_DEATH(r.set_layer(CUDNN_RNN_ALGO_STANDARD, 2), "a projection is not emulated");
  EXPECT_DEATH(r.set_sequences(r.x, {1, 2}), "lengths that are not sorted, or do not begin with the maximum");
  EXPECT_DEATH(r.set_sequences(r.x, {1, 1}), "lengths that are not sorted, or do not begin with the maximum");
  EXPECT_DEATH(r.set_state(2, 3), "a state with gaps");
  EXPECT_DEATH(r.backward_weights(CUDNN_WGRAD_MODE_SET), "gradients of weights can only be added");
  r.set_sequences(r.x, {2, 1}, 3);
  EXPECT_DEATH(r.forward(), "the type or the width of a sequence does not match the layer");
  r.set_sequences(r.x, {2, 2});
  EXPECT_DEATH(r.forward(), "input and output have sequences of different lengths");
  r.set_sequences(r.x, {2, 1});
  r.set_state(1);
  EXPECT_DEATH(r.forward(), "the type or the sizes of a state do not match");
  cudnnDestroyTensorDescriptor(r.state);
  EXPECT_DEATH(r.forward(), "a state: an argument does not exist");
}

TEST(CudnnRecurrent, WrongMemoryEndsTheProcess) {
  Recurrent r;
  const int32_t length = 2;
  EXPECT_DEATH(r.forward(&length), "lengths in device memory, which since cuDNN 8.9.1 must be null");
  EXPECT_DEATH(r.forward(nullptr, r.input.data() + 2), "the output: 12 bytes are not inside a live block");
  EXPECT_DEATH(r.forward(nullptr, r.input.data()), "the output overlaps the input");
  for (size_t* const bytes : {&r.weight_bytes, &r.workspace_bytes, &r.reserve_bytes}) {
    *bytes -= 1;
    EXPECT_DEATH(r.forward(), "space is too small");
    *bytes += 1;
  }
  r.workspace_bytes = r.workspace.num_bytes() + 1;
  EXPECT_DEATH(r.forward(), "the workspace: 1025 bytes are not inside a live block");
}

}}  // namespace cuda_emulation::testing
