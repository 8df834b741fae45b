#include <tandem/benchmarks/gpu/baseline.h>

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

constexpr int kCalls = 5;

/// Milliseconds of the fastest of kCalls calls, each followed by a synchronization of the stream.
double min_ms(const cuda::Stream& stream, const std::function<void()>& f) {
  double best = std::numeric_limits<double>::infinity();
  for (int i = 0; i < kCalls; ++i) {
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
  const ncclResult_t status = ncclGetVersion(&nccl);
  if (status != ncclSuccess) throw BackendError("ncclGetVersion failed:", status);
  result["cublaslt"] = cublasLtGetVersion();
  result["cudnn"] = cudnnGetVersion();
  result["nccl"] = nccl;
#endif
  return result;
}

double memcpy_gb_per_s(Device gpu, int64_t num_bytes, bool to_gpu, bool is_pinned) {
  const cuda::DeviceGuard guard(gpu);
  const cuda::Stream stream = cuda::current_stream(gpu);
  const Tensor device_buffer = zeros({num_bytes}, {kUInt8, gpu});
  const auto size = static_cast<size_t>(num_bytes);
  void* host_buffer = nullptr;
  if (is_pinned) {
    TANDEM_CUDA_CHECK(cudaMallocHost(&host_buffer, size));
  } else {
    host_buffer = std::malloc(size);
  }
  std::memset(host_buffer, 1, size);
  const double ms = min_ms(stream, [&] {
    TANDEM_CUDA_CHECK(cudaMemcpyAsync(
        to_gpu ? device_buffer.data_ptr() : host_buffer, to_gpu ? host_buffer : device_buffer.data_ptr(), size,
        to_gpu ? cudaMemcpyHostToDevice : cudaMemcpyDeviceToHost, static_cast<cudaStream_t>(stream.handle())));
  });
  if (is_pinned) {
    TANDEM_CUDA_CHECK(cudaFreeHost(host_buffer));
  } else {
    std::free(host_buffer);
  }
  return static_cast<double>(num_bytes) / ms / 1e6;
}

#ifdef TANDEM_CUDA_EMULATED

double fastest_cublaslt_ms(const std::vector<Tensor>&, const std::vector<Tensor>&, const TimeCalls&) { return 0; }

#else

double fastest_cublaslt_ms(const std::vector<Tensor>& a, const std::vector<Tensor>& b, const TimeCalls& time) {
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
  // cuBLASLt's matrices are column-major, so it computes out^T = b a^T; b's memory is b^T in column-major order.
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
  const float alpha = 1, beta = 0;
  const auto matmul = [&](const cublasLtMatmulAlgo_t& algorithm, size_t operands) {
    return cublasLtMatmul(handle, description, &alpha, b[operands].data_ptr(), layout, a[operands].data_ptr(), layout,
                          &beta, out.data_ptr(), layout, out.data_ptr(), layout, &algorithm, workspace.data_ptr(),
                          static_cast<size_t>(kWorkspaceBytes), static_cast<cudaStream_t>(stream.handle()));
  };
  const cublasLtMatmulAlgo_t* best = nullptr;
  double best_ms = std::numeric_limits<double>::infinity();
  for (int i = 0; i < num_found; ++i) {
    const cublasLtMatmulAlgo_t& algorithm = found[static_cast<size_t>(i)].algo;
    if (matmul(algorithm, 0) != CUBLAS_STATUS_SUCCESS) continue;  // a proposed algorithm may be unsupported
    stream.synchronize();
    const double ms = min_ms(stream, [&] { check(matmul(algorithm, 0)); });
    if (ms >= best_ms) continue;
    best = &algorithm;
    best_ms = ms;
  }
  if (best != nullptr) best_ms = time([&](int call) { check(matmul(*best, static_cast<size_t>(call) % a.size())); });
  cublasLtMatmulPreferenceDestroy(preference);
  cublasLtMatrixLayoutDestroy(layout);
  cublasLtMatmulDescDestroy(description);
  cublasLtDestroy(handle);
  return best_ms;
}

#endif

}  // namespace tandem::benchmarks
