#include <tandem/benchmarks/gpu/raw.h>

#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <limits>

#include <tandem/base/error.h>
#include <tandem/tensor/cuda.h>
#include <tandem/tensor/cuda/runtime.h>
#include <tandem/tensor/factories.h>

#ifndef TANDEM_CUDA_EMULATED
#include <cublasLt.h>

#include <array>
#endif

namespace tandem::benchmarks {

namespace {

constexpr int kTimes = 5;

/// Milliseconds of the fastest of some calls, each to its end on the stream.
double fastest(const cuda::Stream& stream, const std::function<void()>& f) {
  double best = std::numeric_limits<double>::infinity();
  for (int i = 0; i < kTimes; ++i) {
    const auto begin = std::chrono::steady_clock::now();
    f();
    stream.synchronize();
    best = std::min(best, std::chrono::duration<double, std::milli>(std::chrono::steady_clock::now() - begin).count());
  }
  return best;
}

}  // namespace

double raw_copy(Device gpu, int64_t num_bytes, bool to_gpu, bool is_pinned) {
  const cuda::DeviceGuard guard(gpu);
  const cuda::Stream stream = cuda::current_stream(gpu);
  const Tensor there = zeros({num_bytes}, {kUInt8, gpu});
  const auto size = static_cast<size_t>(num_bytes);
  void* here = nullptr;
  if (is_pinned) {
    TANDEM_CUDA_CHECK(cudaMallocHost(&here, size));
  } else {
    here = std::malloc(size);
  }
  std::memset(here, 1, size);
  const double ms = fastest(stream, [&] {
    TANDEM_CUDA_CHECK(cudaMemcpyAsync(to_gpu ? there.data_ptr() : here, to_gpu ? here : there.data_ptr(), size,
                                      to_gpu ? cudaMemcpyHostToDevice : cudaMemcpyDeviceToHost,
                                      static_cast<cudaStream_t>(stream.handle())));
  });
  if (is_pinned) {
    TANDEM_CUDA_CHECK(cudaFreeHost(here));
  } else {
    std::free(here);
  }
  return static_cast<double>(num_bytes) / ms / 1e6;
}

#ifdef TANDEM_CUDA_EMULATED

double fastest_product(Device, DType, int64_t) { return 0; }

#else

double fastest_product(Device gpu, DType dtype, int64_t n) {
  const auto check = [](cublasStatus_t status) {
    if (status != CUBLAS_STATUS_SUCCESS) throw BackendError(str("cuBLASLt: ", cublasLtGetStatusString(status), ":"), status);
  };
  const cuda::DeviceGuard guard(gpu);
  const cuda::Stream stream = cuda::current_stream(gpu);
  const Tensor a = full({n, n}, 1.5, {dtype, gpu}), b = full({n, n}, -0.25, {dtype, gpu}), out = zeros({n, n}, {dtype, gpu});
  constexpr int64_t kWorkspaceBytes = int64_t{64} << 20;
  const Tensor workspace = zeros({kWorkspaceBytes}, {kUInt8, gpu});
  const cudaDataType_t type = dtype == kBFloat16 ? CUDA_R_16BF : dtype == kFloat16 ? CUDA_R_16F : CUDA_R_32F;
  cublasLtHandle_t handle = nullptr;
  cublasLtMatmulDesc_t description = nullptr;
  cublasLtMatrixLayout_t layout = nullptr;
  cublasLtMatmulPreference_t preference = nullptr;
  check(cublasLtCreate(&handle));
  check(cublasLtMatmulDescCreate(&description, CUBLAS_COMPUTE_32F, CUDA_R_32F));
  check(cublasLtMatrixLayoutCreate(&layout, type, static_cast<uint64_t>(n), static_cast<uint64_t>(n), n));
  check(cublasLtMatmulPreferenceCreate(&preference));
  const auto limit = static_cast<uint64_t>(kWorkspaceBytes);
  check(cublasLtMatmulPreferenceSetAttribute(preference, CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES, &limit, sizeof limit));
  std::array<cublasLtMatmulHeuristicResult_t, 32> found = {};
  int num_found = 0;
  check(cublasLtMatmulAlgoGetHeuristic(handle, description, layout, layout, layout, layout, preference,
                                       static_cast<int>(found.size()), found.data(), &num_found));
  const float one = 1, none = 0;
  double best = std::numeric_limits<double>::infinity();
  for (int i = 0; i < num_found; ++i) {
    const auto product = [&] {
      return cublasLtMatmul(handle, description, &one, a.data_ptr(), layout, b.data_ptr(), layout, &none, out.data_ptr(), layout,
                            out.data_ptr(), layout, &found[static_cast<size_t>(i)].algo, workspace.data_ptr(),
                            static_cast<size_t>(kWorkspaceBytes), static_cast<cudaStream_t>(stream.handle()));
    };
    if (product() != CUBLAS_STATUS_SUCCESS) continue;  // not every proposal runs
    stream.synchronize();
    best = std::min(best, fastest(stream, [&] { check(product()); }));
  }
  cublasLtMatmulPreferenceDestroy(preference);
  cublasLtMatrixLayoutDestroy(layout);
  cublasLtMatmulDescDestroy(description);
  cublasLtDestroy(handle);
  return best;
}

#endif

}  // namespace tandem::benchmarks
