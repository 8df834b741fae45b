#include <tandem/ops/conv/cudnn_conv.h>

#include <tandem/tensor/cuda/runtime.h>

#ifdef TANDEM_CUDA_EMULATED

namespace tandem { inline namespace v0 { namespace cuda {

int64_t cudnn_workspace_bytes(const KernelContext&, DType, ConvPass, const ConvGeometry&) { return 0; }

bool cudnn_conv_forward(const KernelContext&, DType, const ConvGeometry&, const void*, const void*, void*, void*) {
  return false;
}
bool cudnn_conv_backward_input(const KernelContext&, DType, const ConvGeometry&, const void*, const void*, void*,
                               void*) {
  return false;
}
bool cudnn_conv_backward_weight(const KernelContext&, DType, const ConvGeometry&, const void*, const void*, void*,
                                void*) {
  return false;
}

}}}  // namespace tandem::v0::cuda

#else

#include <cudnn.h>

#include <algorithm>
#include <array>
#include <cstdint>
#include <initializer_list>
#include <limits>
#include <map>
#include <mutex>
#include <optional>
#include <tuple>
#include <utility>

#include <tandem/base/error.h>
#include <tandem/tensor/cuda.h>

namespace tandem { inline namespace v0 { namespace cuda {

namespace {

constexpr int64_t kMaxWorkspaceBytes = int64_t{256} << 20;

void check_cudnn(cudnnStatus_t status, const char* call) {
  if (status == CUDNN_STATUS_SUCCESS) [[likely]]
    return;
  throw BackendError(str(call, ": ", cudnnGetErrorString(status), ":"), status);
}
#define TANDEM_CUDNN_CHECK(call) check_cudnn((call), #call)

cudnnDataType_t type_of(DType dtype) {
  return dtype == kFloat16 ? CUDNN_DATA_HALF : dtype == kBFloat16 ? CUDNN_DATA_BFLOAT16 : CUDNN_DATA_FLOAT;
}

/// Whether operands must not be rounded to TF32.
bool keeps_float32(DType dtype) { return dtype == kFloat32 && !allow_tf32(); }

/// Whether pointers are aligned to 16 bytes: cuDNN's kernels may load 16 bytes at once, and cuDNN chooses them without
/// knowing the addresses.
bool are_aligned(std::initializer_list<const void*> pointers) {
  return std::all_of(pointers.begin(), pointers.end(),
                     [](const void* p) { return reinterpret_cast<uintptr_t>(p) % 16 == 0; });
}

/// Owns a descriptor of cuDNN.
template <class T, cudnnStatus_t (*create)(T*), cudnnStatus_t (*destroy)(T)>
struct Owned {
  T descriptor = nullptr;
  Owned() { TANDEM_CUDNN_CHECK(create(&descriptor)); }
  ~Owned() { destroy(descriptor); }
  Owned(const Owned&) = delete;
  Owned& operator=(const Owned&) = delete;
  operator T() const { return descriptor; }
};
using TensorDescriptor = Owned<cudnnTensorDescriptor_t, cudnnCreateTensorDescriptor, cudnnDestroyTensorDescriptor>;
using FilterDescriptor = Owned<cudnnFilterDescriptor_t, cudnnCreateFilterDescriptor, cudnnDestroyFilterDescriptor>;
using ConvDescriptor =
    Owned<cudnnConvolutionDescriptor_t, cudnnCreateConvolutionDescriptor, cudnnDestroyConvolutionDescriptor>;

struct Descriptors {
  TensorDescriptor input, output;
  FilterDescriptor filters;
  ConvDescriptor conv;

  Descriptors(DType dtype, const ConvGeometry& g) {
    const cudnnDataType_t type = type_of(dtype);
    const auto n = [](int64_t size) { return static_cast<int>(size); };
    TANDEM_CUDNN_CHECK(cudnnSetTensor4dDescriptor(input, CUDNN_TENSOR_NHWC, type, n(g.batch), n(g.channels),
                                                  n(g.size.height), n(g.size.width)));
    TANDEM_CUDNN_CHECK(cudnnSetTensor4dDescriptor(output, CUDNN_TENSOR_NHWC, type, n(g.batch), n(g.out_channels),
                                                  n(g.out.height), n(g.out.width)));
    TANDEM_CUDNN_CHECK(cudnnSetFilter4dDescriptor(filters, type, CUDNN_TENSOR_NHWC, n(g.out_channels),
                                                  n(g.group_channels()), n(g.kernel.height), n(g.kernel.width)));
    TANDEM_CUDNN_CHECK(cudnnSetConvolution2dDescriptor(conv, n(g.padding.height), n(g.padding.width),
                                                       n(g.stride.height), n(g.stride.width), n(g.dilation.height),
                                                       n(g.dilation.width), CUDNN_CROSS_CORRELATION, CUDNN_DATA_FLOAT));
    TANDEM_CUDNN_CHECK(cudnnSetConvolutionGroupCount(conv, n(g.groups)));
    TANDEM_CUDNN_CHECK(cudnnSetConvolutionMathType(conv, keeps_float32(dtype) ? CUDNN_FMA_MATH
                                                         : dtype == kFloat16  ? CUDNN_TENSOR_OP_MATH
                                                                              : CUDNN_DEFAULT_MATH));
  }
};

/// An algorithm of cuDNN for a pass, its math type, and its workspace size.
struct Choice {
  int algorithm;
  cudnnMathType_t math;
  int64_t workspace_bytes;
};

/// Key of the cached choices.
using Problem = std::tuple<int, ConvPass, DType, bool, std::array<int64_t, 16> >;

/// The handle of one GPU. The mutex is held while it is in use, because a handle has one stream at a time.
struct Handle {
  std::mutex mutex;
  cudnnHandle_t handle = nullptr;
  std::map<Problem, std::optional<Choice> > choices;
};

Handle& handle_of(Device device) {
  static Handle* const handles =
      new Handle[static_cast<size_t>(device_count())];  // never destroyed: the driver may be unloaded first
  return handles[device.index];
}

Problem problem_of(Device device, ConvPass pass, DType dtype, const ConvGeometry& g) {
  return {device.index,
          pass,
          dtype,
          allow_tf32(),
          {g.batch, g.channels, g.size.height, g.size.width, g.out_channels, g.out.height, g.out.width, g.kernel.height,
           g.kernel.width, g.stride.height, g.stride.width, g.padding.height, g.padding.width, g.dilation.height,
           g.dilation.width, g.groups}};
}

/// cuDNN has several status codes for unsupported operations.
bool is_unsupported(cudnnStatus_t status) { return CUDNN_STATUS_CATEGORY(status) == CUDNN_STATUS_NOT_SUPPORTED; }

// Algorithms by transforms are less precise than sums of products.
bool is_exact(cudnnConvolutionFwdAlgo_t a) {
  return a != CUDNN_CONVOLUTION_FWD_ALGO_FFT && a != CUDNN_CONVOLUTION_FWD_ALGO_FFT_TILING &&
         a != CUDNN_CONVOLUTION_FWD_ALGO_WINOGRAD && a != CUDNN_CONVOLUTION_FWD_ALGO_WINOGRAD_NONFUSED;
}
bool is_exact(cudnnConvolutionBwdDataAlgo_t a) {
  return a != CUDNN_CONVOLUTION_BWD_DATA_ALGO_FFT && a != CUDNN_CONVOLUTION_BWD_DATA_ALGO_FFT_TILING &&
         a != CUDNN_CONVOLUTION_BWD_DATA_ALGO_WINOGRAD && a != CUDNN_CONVOLUTION_BWD_DATA_ALGO_WINOGRAD_NONFUSED;
}
bool is_exact(cudnnConvolutionBwdFilterAlgo_t a) {
  return a != CUDNN_CONVOLUTION_BWD_FILTER_ALGO_FFT && a != CUDNN_CONVOLUTION_BWD_FILTER_ALGO_FFT_TILING &&
         a != CUDNN_CONVOLUTION_BWD_FILTER_ALGO_WINOGRAD && a != CUDNN_CONVOLUTION_BWD_FILTER_ALGO_WINOGRAD_NONFUSED;
}

/// The first algorithm of cuDNN's heuristic (depends only on sizes) that is deterministic, exact and has a small enough
/// workspace.
template <class Result>
std::optional<Choice> first_fitting(cudnnStatus_t status, const std::array<Result, 8>& results, int count) {
  if (is_unsupported(status)) return std::nullopt;
  check_cudnn(status, "cudnnGetConvolutionAlgorithm_v7");
  for (int i = 0; i < count; ++i) {
    const Result& r = results[static_cast<size_t>(i)];
    if (r.status == CUDNN_STATUS_SUCCESS && r.determinism == CUDNN_DETERMINISTIC && is_exact(r.algo) &&
        static_cast<int64_t>(r.memory) <= kMaxWorkspaceBytes) {
      return Choice{static_cast<int>(r.algo), r.mathType, std::max<int64_t>(1, static_cast<int64_t>(r.memory))};
    }
  }
  return std::nullopt;
}

std::optional<Choice> choose(cudnnHandle_t handle, ConvPass pass, const Descriptors& d) {
  int count = 0;
  switch (pass) {
    case ConvPass::kForward: {
      std::array<cudnnConvolutionFwdAlgoPerf_t, 8> results;
      const cudnnStatus_t status = cudnnGetConvolutionForwardAlgorithm_v7(handle, d.input, d.filters, d.conv, d.output,
                                                                          8, &count, results.data());
      return first_fitting(status, results, count);
    }
    case ConvPass::kBackwardInput: {
      std::array<cudnnConvolutionBwdDataAlgoPerf_t, 8> results;
      const cudnnStatus_t status = cudnnGetConvolutionBackwardDataAlgorithm_v7(handle, d.filters, d.output, d.conv,
                                                                               d.input, 8, &count, results.data());
      return first_fitting(status, results, count);
    }
    default: {
      std::array<cudnnConvolutionBwdFilterAlgoPerf_t, 8> results;
      const cudnnStatus_t status = cudnnGetConvolutionBackwardFilterAlgorithm_v7(handle, d.input, d.output, d.conv,
                                                                                 d.filters, 8, &count, results.data());
      return first_fitting(status, results, count);
    }
  }
}

/// Whether all sizes and counts fit the integer types of cuDNN.
bool is_in_range(const ConvGeometry& g) {
  const auto fits = [](int64_t count) { return count <= std::numeric_limits<int>::max(); };
  return fits(g.batch * g.size.height * g.size.width * g.channels) && fits(g.out_pixels() * g.out_channels) &&
         fits(g.weight_elements()) && fits(g.stride.height) && fits(g.stride.width) && fits(g.padding.height) &&
         fits(g.padding.width) && fits(g.dilation.height) && fits(g.dilation.width);
}

/// Calls f(handle, descriptors, choice) with the algorithm of the pass. Returns false if there is none, or f returns an
/// unsupported status.
template <class F>
bool with_algorithm(const KernelContext& context, ConvPass pass, DType dtype, const ConvGeometry& g, const F& f) {
  if (dtype == kFloat64 || g.work() == 0 || !is_in_range(g)) return false;
  const Problem problem = problem_of(context.device, pass, dtype, g);
  const DeviceGuard guard(context.device);
  const Descriptors descriptors(dtype, g);
  Handle& own = handle_of(context.device);
  std::lock_guard lock(own.mutex);
  if (own.handle == nullptr) TANDEM_CUDNN_CHECK(cudnnCreate(&own.handle));
  TANDEM_CUDNN_CHECK(cudnnSetStream(own.handle, static_cast<cudaStream_t>(context.stream)));
  const auto found = own.choices.find(problem);
  const std::optional<Choice> choice =
      found != own.choices.end() ? found->second : own.choices[problem] = choose(own.handle, pass, descriptors);
  if (!choice) return false;
  if (!keeps_float32(dtype)) TANDEM_CUDNN_CHECK(cudnnSetConvolutionMathType(descriptors.conv, choice->math));
  const cudnnStatus_t status = f(own.handle, descriptors, *choice);
  if (is_unsupported(status)) {  // although the heuristic proposed it: do not use it again
    own.choices[problem] = std::nullopt;
    return false;
  }
  check_cudnn(status, "cudnnConvolution");
  return true;
}

constexpr float kOne = 1, kZero = 0;

}  // namespace

int64_t cudnn_workspace_bytes(const KernelContext& context, DType dtype, ConvPass pass, const ConvGeometry& geometry) {
  int64_t num_bytes = 0;
  with_algorithm(context, pass, dtype, geometry, [&](cudnnHandle_t, const Descriptors&, const Choice& choice) {
    num_bytes = choice.workspace_bytes;
    return CUDNN_STATUS_SUCCESS;
  });
  return num_bytes;
}

bool cudnn_conv_forward(const KernelContext& context, DType dtype, const ConvGeometry& geometry, const void* input,
                        const void* filters, void* workspace, void* out) {
  if (!are_aligned({input, filters, out})) return false;
  return with_algorithm(context, ConvPass::kForward, dtype, geometry,
                        [&](cudnnHandle_t handle, const Descriptors& d, const Choice& choice) {
                          return cudnnConvolutionForward(handle, &kOne, d.input, input, d.filters, filters, d.conv,
                                                         static_cast<cudnnConvolutionFwdAlgo_t>(choice.algorithm),
                                                         workspace, static_cast<size_t>(choice.workspace_bytes), &kZero,
                                                         d.output, out);
                        });
}

bool cudnn_conv_backward_input(const KernelContext& context, DType dtype, const ConvGeometry& geometry,
                               const void* grad, const void* filters, void* workspace, void* input_grad) {
  if (!are_aligned({grad, filters, input_grad})) return false;
  return with_algorithm(context, ConvPass::kBackwardInput, dtype, geometry,
                        [&](cudnnHandle_t handle, const Descriptors& d, const Choice& choice) {
                          return cudnnConvolutionBackwardData(
                              handle, &kOne, d.filters, filters, d.output, grad, d.conv,
                              static_cast<cudnnConvolutionBwdDataAlgo_t>(choice.algorithm), workspace,
                              static_cast<size_t>(choice.workspace_bytes), &kZero, d.input, input_grad);
                        });
}

bool cudnn_conv_backward_weight(const KernelContext& context, DType dtype, const ConvGeometry& geometry,
                                const void* input, const void* grad, void* workspace, void* filters_grad) {
  if (!are_aligned({input, grad, filters_grad})) return false;
  return with_algorithm(context, ConvPass::kBackwardWeight, dtype, geometry,
                        [&](cudnnHandle_t handle, const Descriptors& d, const Choice& choice) {
                          return cudnnConvolutionBackwardFilter(
                              handle, &kOne, d.input, input, d.output, grad, d.conv,
                              static_cast<cudnnConvolutionBwdFilterAlgo_t>(choice.algorithm), workspace,
                              static_cast<size_t>(choice.workspace_bytes), &kZero, d.filters, filters_grad);
                        });
}

}}}  // namespace tandem::v0::cuda

#endif
