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
#include <cudnn.h>
#include <nccl.h>

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

Json gpu_properties(Device gpu) {
  const auto attribute = [gpu](cudaDeviceAttr name) {
    int value = 0;
    TANDEM_CUDA_CHECK(cudaDeviceGetAttribute(&value, name, gpu.index));
    return value;
  };
  const cuda::DeviceProperties& properties = cuda::device_properties(gpu);
  const cuda::Versions versions = cuda::versions();
  Json result = {{"name", properties.name},
                 {"compute_capability", str(properties.compute_major, ".", properties.compute_minor)},
                 {"multiprocessors", properties.num_multiprocessors},
                 {"clock_khz", attribute(cudaDevAttrClockRate)},
                 {"memory_clock_khz", attribute(cudaDevAttrMemoryClockRate)},
                 {"memory_bus_bits", attribute(cudaDevAttrGlobalMemoryBusWidth)},
                 {"memory_bytes", properties.memory_bytes},
                 {"has_ecc", attribute(cudaDevAttrEccEnabled) != 0},
                 {"l2_bytes", properties.l2_bytes},
                 {"shared_bytes_per_block", attribute(cudaDevAttrMaxSharedMemoryPerBlock)},
                 {"shared_bytes_per_block_optin", properties.shared_bytes},
                 {"shared_bytes_per_multiprocessor", attribute(cudaDevAttrMaxSharedMemoryPerMultiprocessor)},
                 {"reserved_shared_bytes_per_block", attribute(cudaDevAttrReservedSharedMemoryPerBlock)},
                 {"registers_per_block", attribute(cudaDevAttrMaxRegistersPerBlock)},
                 {"registers_per_multiprocessor", attribute(cudaDevAttrMaxRegistersPerMultiprocessor)},
                 {"threads_per_block", attribute(cudaDevAttrMaxThreadsPerBlock)},
                 {"threads_per_multiprocessor", attribute(cudaDevAttrMaxThreadsPerMultiProcessor)},
                 {"blocks_per_multiprocessor", attribute(cudaDevAttrMaxBlocksPerMultiprocessor)},
                 {"copy_engines", attribute(cudaDevAttrAsyncEngineCount)},
                 {"runtime", versions.runtime},
                 {"driver", versions.driver}};
#ifndef TANDEM_CUDA_EMULATED
  int nccl = 0;
  if (ncclGetVersion(&nccl) != ncclSuccess) throw BackendError("ncclGetVersion failed:", 0);
  result["cublaslt"] = cublasLtGetVersion();
  result["cudnn"] = cudnnGetVersion();
  result["nccl"] = nccl;
#endif
  return result;
}

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

double fastest_product(const std::vector<Tensor>&, const std::vector<Tensor>&, const TimeCalls&) { return 0; }

#else

double fastest_product(const std::vector<Tensor>& a, const std::vector<Tensor>& b, const TimeCalls& time) {
  const auto check = [](cublasStatus_t status) {
    if (status != CUBLAS_STATUS_SUCCESS)
      throw BackendError(str("cuBLASLt: ", cublasLtGetStatusString(status), ":"), status);
  };
  const Device gpu = a.front().device();
  const DType dtype = a.front().dtype();
  const int64_t n = a.front().size(0);
  const cuda::DeviceGuard guard(gpu);
  const cuda::Stream stream = cuda::current_stream(gpu);
  const Tensor out = zeros({n, n}, {dtype, gpu});
  constexpr int64_t kWorkspaceBytes = int64_t{64} << 20;
  const Tensor workspace = zeros({kWorkspaceBytes}, {kUInt8, gpu});
  const cudaDataType_t type = dtype == kBFloat16 ? CUDA_R_16BF : dtype == kFloat16 ? CUDA_R_16F : CUDA_R_32F;
  cublasLtHandle_t handle = nullptr;
  cublasLtMatmulDesc_t description = nullptr;
  cublasLtMatrixLayout_t layout = nullptr;
  cublasLtMatmulPreference_t preference = nullptr;
  check(cublasLtCreate(&handle));
  check(cublasLtMatmulDescCreate(&description, CUBLAS_COMPUTE_32F, CUDA_R_32F));
  // Matrices are stored by columns there: out^T = b a^T, where b's memory holds b^T.
  const int32_t transposed = CUBLAS_OP_T;
  check(cublasLtMatmulDescSetAttribute(description, CUBLASLT_MATMUL_DESC_TRANSA, &transposed, sizeof transposed));
  check(cublasLtMatrixLayoutCreate(&layout, type, static_cast<uint64_t>(n), static_cast<uint64_t>(n), n));
  check(cublasLtMatmulPreferenceCreate(&preference));
  const auto limit = static_cast<uint64_t>(kWorkspaceBytes);
  check(
      cublasLtMatmulPreferenceSetAttribute(preference, CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES, &limit, sizeof limit));
  std::array<cublasLtMatmulHeuristicResult_t, 32> found = {};
  int num_found = 0;
  check(cublasLtMatmulAlgoGetHeuristic(handle, description, layout, layout, layout, layout, preference,
                                       static_cast<int>(found.size()), found.data(), &num_found));
  const float one = 1, none = 0;
  const auto product = [&](const cublasLtMatmulAlgo_t& algorithm, size_t operands) {
    return cublasLtMatmul(handle, description, &one, b[operands].data_ptr(), layout, a[operands].data_ptr(), layout,
                          &none, out.data_ptr(), layout, out.data_ptr(), layout, &algorithm, workspace.data_ptr(),
                          static_cast<size_t>(kWorkspaceBytes), static_cast<cudaStream_t>(stream.handle()));
  };
  const cublasLtMatmulAlgo_t* best = nullptr;
  double best_ms = std::numeric_limits<double>::infinity();
  for (int i = 0; i < num_found; ++i) {
    const cublasLtMatmulAlgo_t& algorithm = found[static_cast<size_t>(i)].algo;
    if (product(algorithm, 0) != CUBLAS_STATUS_SUCCESS) continue;  // not every proposal runs
    stream.synchronize();
    const double ms = fastest(stream, [&] { check(product(algorithm, 0)); });
    if (ms >= best_ms) continue;
    best = &algorithm;
    best_ms = ms;
  }
  if (best != nullptr) best_ms = time([&](int call) { check(product(*best, static_cast<size_t>(call) % a.size())); });
  cublasLtMatmulPreferenceDestroy(preference);
  cublasLtMatrixLayoutDestroy(layout);
  cublasLtMatmulDescDestroy(description);
  cublasLtDestroy(handle);
  return best_ms;
}

#endif

}  // namespace tandem::benchmarks
