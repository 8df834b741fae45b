#include <tandem/ops/product_library.h>

#include <tandem/tensor/cuda/runtime.h>

#ifdef TANDEM_CUDA_EMULATED

#include <cuda_emulation/control.h>

#include <vector>

namespace tandem::inline v0::cuda {

int64_t product_workspace_bytes(DType) { return 0; }

/// The CPU's product, for what the own kernel would take long for; all else proves that kernel.
bool library_product(const KernelContext& context, DType dtype, int64_t batches, int64_t m, int64_t n, int64_t k, double alpha,
                     const MatrixOperand& a, const int64_t* a_offsets, const MatrixOperand& b, const int64_t* b_offsets,
                     double beta, ProductEpilogue epilogue, void*, void* out) {
  constexpr int64_t kLong = 6 * 6 * 6;
  if ((dtype != kFloat32 && dtype != kFloat64) || batches * m * n * k < kLong) return false;
  const auto product = [=](int64_t i, int64_t a_offset, int64_t b_offset) {
    const int64_t element = size_of(dtype);
    MatrixOperand left = a, right = b;
    left.data = static_cast<const std::byte*>(a.data) + a_offset * element;
    right.data = static_cast<const std::byte*>(b.data) + b_offset * element;
    const ProductAlgorithm algorithm = product_algorithm(m, n, k, left.transposed, right.transposed);
    std::vector<std::byte> workspace(
        static_cast<size_t>(cpu::product_workspace_bytes(dtype, algorithm, m, n, k, left, right)) + 64);
    cpu::product(Device(), dtype, algorithm, m, n, k, alpha, left, right, beta, epilogue,
                 reinterpret_cast<void*>((reinterpret_cast<uintptr_t>(workspace.data()) + 63) / 64 * 64),
                 static_cast<std::byte*>(out) + i * m * n * element);
  };
  for (int64_t i = 0; i < batches; ++i) {
    const int64_t a_offset = a_offsets == nullptr ? 0 : a_offsets[i], b_offset = b_offsets == nullptr ? 0 : b_offsets[i];
    cuda_emulation::run_on_device(static_cast<cudaStream_t>(context.stream), [=] { product(i, a_offset, b_offset); });
  }
  return true;
}

}  // namespace tandem::inline v0::cuda

#else

#include <cublasLt.h>

#include <array>
#include <cstring>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <tuple>

#include <tandem/base/error.h>
#include <tandem/tensor/cuda.h>

namespace tandem::inline v0::cuda {

namespace {

constexpr int64_t kWorkspaceBytes = int64_t{32} << 20;  // what the library's makers advise for Hopper

void check_library(cublasStatus_t status, const char* call) {
  if (status == CUBLAS_STATUS_SUCCESS) [[likely]]
    return;
  throw BackendError(str(call, ": ", cublasLtGetStatusString(status), ":"), status);
}
#define TANDEM_CUBLAS_CHECK(call) check_library((call), #call)

cublasComputeType_t compute_type_of(DType dtype) {
  if (dtype == kFloat64) return CUBLAS_COMPUTE_64F;
  return dtype == kFloat32 && allow_tf32() ? CUBLAS_COMPUTE_32F_FAST_TF32 : CUBLAS_COMPUTE_32F;
}

cudaDataType_t type_of(DType dtype) {
  switch (dtype) {
    case kFloat64: return CUDA_R_64F;
    case kFloat16: return CUDA_R_16F;
    case kBFloat16: return CUDA_R_16BF;
    default: return CUDA_R_32F;
  }
}

/// A matrix as the library sees it, columns first: a row-major one is its transposed.
struct Layout {
  cublasLtMatrixLayout_t layout = nullptr;

  Layout(DType dtype, int64_t rows, int64_t columns, int64_t leading, int64_t batches, int64_t batch_stride) {
    TANDEM_CUBLAS_CHECK(cublasLtMatrixLayoutCreate(&layout, type_of(dtype), static_cast<uint64_t>(rows),
                                                   static_cast<uint64_t>(columns), leading));
    if (batches == 1) return;
    const int32_t count = static_cast<int32_t>(batches);
    set(CUBLASLT_MATRIX_LAYOUT_BATCH_COUNT, count);
    set(CUBLASLT_MATRIX_LAYOUT_STRIDED_BATCH_OFFSET, batch_stride);
  }
  ~Layout() { cublasLtMatrixLayoutDestroy(layout); }
  Layout(const Layout&) = delete;
  Layout& operator=(const Layout&) = delete;

 private:
  template <class T>
  void set(cublasLtMatrixLayoutAttribute_t attribute, const T& value) {
    TANDEM_CUBLAS_CHECK(cublasLtMatrixLayoutSetAttribute(layout, attribute, &value, sizeof(value)));
  }
};

struct Description {
  cublasLtMatmulDesc_t description = nullptr;

  Description(cublasComputeType_t compute, DType dtype) {
    TANDEM_CUBLAS_CHECK(cublasLtMatmulDescCreate(&description, compute, dtype == kFloat64 ? CUDA_R_64F : CUDA_R_32F));
  }
  ~Description() { cublasLtMatmulDescDestroy(description); }
  Description(const Description&) = delete;
  Description& operator=(const Description&) = delete;

  template <class T>
  void set(cublasLtMatmulDescAttributes_t attribute, const T& value) {
    TANDEM_CUBLAS_CHECK(cublasLtMatmulDescSetAttribute(description, attribute, &value, sizeof(value)));
  }
};

/// All that an algorithm is chosen by.
using Problem = std::tuple<int, cublasComputeType_t, DType, int64_t, int64_t, int64_t, int64_t, bool, bool, int64_t, int64_t, int64_t,
                           int64_t, int, bool, int>;

/// The library's handle and what it advised, in this process.  Safe from many threads.
struct Library {
  cublasLtHandle_t handle = nullptr;
  std::mutex mutex;  // guards `algorithms`
  std::map<Problem, std::optional<cublasLtMatmulAlgo_t>> algorithms;

  Library() { TANDEM_CUBLAS_CHECK(cublasLtCreate(&handle)); }
};

Library& library() {
  static Library* const instance = new Library;  // never destroyed: the driver may be gone first
  return *instance;
}

/// What pointers are aligned to, up to 16 bytes.
int alignment(std::initializer_list<const void*> pointers) {
  uintptr_t bits = 16;
  for (const void* pointer : pointers) bits |= reinterpret_cast<uintptr_t>(pointer);
  return static_cast<int>(bits & -bits);
}

/// The library's first choice for the shape: a rule, so that bits do not depend on a clock.  Sums of parts only where their order
/// is fixed.
std::optional<cublasLtMatmulAlgo_t> choose(cublasLtMatmulDesc_t description, const Layout& a, const Layout& b,
                                           const Layout& out, int aligned) {
  cublasLtMatmulPreference_t preference = nullptr;
  TANDEM_CUBLAS_CHECK(cublasLtMatmulPreferenceCreate(&preference));
  const std::unique_ptr<std::remove_pointer_t<cublasLtMatmulPreference_t>, decltype(&cublasLtMatmulPreferenceDestroy)> owner(
      preference, cublasLtMatmulPreferenceDestroy);
  const auto set = [&](cublasLtMatmulPreferenceAttributes_t attribute, auto value) {
    TANDEM_CUBLAS_CHECK(cublasLtMatmulPreferenceSetAttribute(preference, attribute, &value, sizeof(value)));
  };
  set(CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES, static_cast<uint64_t>(kWorkspaceBytes));
  set(CUBLASLT_MATMUL_PREF_REDUCTION_SCHEME_MASK,
      static_cast<uint32_t>(CUBLASLT_REDUCTION_SCHEME_COMPUTE_TYPE | CUBLASLT_REDUCTION_SCHEME_OUTPUT_TYPE));
  for (const auto attribute : {CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_B_BYTES,
                               CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_C_BYTES, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES}) {
    set(attribute, static_cast<uint32_t>(aligned));
  }
  cublasLtMatmulHeuristicResult_t result = {};
  int found = 0;
  const cublasStatus_t status = cublasLtMatmulAlgoGetHeuristic(library().handle, description, a.layout, b.layout, out.layout,
                                                               out.layout, preference, 1, &result, &found);
  if (status == CUBLAS_STATUS_NOT_SUPPORTED || found == 0) return std::nullopt;
  check_library(status, "cublasLtMatmulAlgoGetHeuristic");
  return result.algo;
}

/// The step between batches that lie evenly; nothing where they do not.
std::optional<int64_t> batch_step(int64_t batches, const int64_t* offsets) {
  if (batches == 1) return 0;
  const int64_t step = offsets[1] - offsets[0];
  for (int64_t i = 2; i < batches; ++i) {
    if (offsets[i] - offsets[i - 1] != step) return std::nullopt;
  }
  return step < 0 ? std::nullopt : std::optional(step);
}

}  // namespace

int64_t product_workspace_bytes(DType dtype) { return is_floating_point(dtype) ? kWorkspaceBytes : 0; }

bool library_product(const KernelContext& context, DType dtype, int64_t batches, int64_t m, int64_t n, int64_t k, double alpha,
                     const MatrixOperand& a, const int64_t* a_offsets, const MatrixOperand& b, const int64_t* b_offsets,
                     double beta, ProductEpilogue epilogue, void* workspace, void* out) {
  if (!is_floating_point(dtype) || k == 0 || workspace == nullptr) return false;
  const int64_t element = size_of(dtype);
  const std::optional<int64_t> a_step = batch_step(batches, a_offsets), b_step = batch_step(batches, b_offsets);
  if (!a_step || !b_step) {  // one by one
    for (int64_t i = 0; i < batches; ++i) {
      if (!library_product(context, dtype, 1, m, n, k, alpha, a, a_offsets + i, b, b_offsets + i, beta, epilogue, workspace,
                           static_cast<std::byte*>(out) + i * m * n * element)) {
        return false;
      }
    }
    return true;
  }
  const DeviceGuard guard(context.device);
  const auto first = [&](const MatrixOperand& operand, const int64_t* offsets) {
    return static_cast<const std::byte*>(operand.data) + (offsets == nullptr ? 0 : offsets[0]) * element;
  };
  const std::byte *a_data = first(a, a_offsets), *b_data = first(b, b_offsets);

  // out^T = b^T a^T, columns first: the memory of out, b and a as they are.
  const cublasComputeType_t compute = compute_type_of(dtype);
  Description description(compute, dtype);
  description.set(CUBLASLT_MATMUL_DESC_TRANSA, b.transposed ? CUBLAS_OP_T : CUBLAS_OP_N);
  description.set(CUBLASLT_MATMUL_DESC_TRANSB, a.transposed ? CUBLAS_OP_T : CUBLAS_OP_N);
  const cublasLtEpilogue_t end = epilogue.bias == nullptr ? (epilogue.relu ? CUBLASLT_EPILOGUE_RELU : CUBLASLT_EPILOGUE_DEFAULT)
                                 : epilogue.relu          ? CUBLASLT_EPILOGUE_RELU_BIAS
                                                          : CUBLASLT_EPILOGUE_BIAS;
  description.set(CUBLASLT_MATMUL_DESC_EPILOGUE, end);
  if (epilogue.bias != nullptr) description.set(CUBLASLT_MATMUL_DESC_BIAS_POINTER, epilogue.bias);
  const Layout left(dtype, b.transposed ? k : n, b.transposed ? n : k, b.leading, batches, *b_step);
  const Layout right(dtype, a.transposed ? m : k, a.transposed ? k : m, a.leading, batches, *a_step);
  const Layout result(dtype, n, m, n, batches, m * n);

  const int aligned = alignment({a_data, b_data, out, epilogue.bias});
  const Problem problem(context.device.index, compute, dtype, batches, m, n, k, a.transposed, b.transposed, a.leading, b.leading,
                        *a_step, *b_step, end, beta == 0, aligned);
  std::optional<cublasLtMatmulAlgo_t> algorithm;
  {
    std::lock_guard lock(library().mutex);
    const auto found = library().algorithms.find(problem);
    algorithm = found != library().algorithms.end()
                    ? found->second
                    : library().algorithms[problem] = choose(description.description, left, right, result, aligned);
  }
  if (!algorithm) return false;
  const float narrow[2] = {static_cast<float>(alpha), static_cast<float>(beta)};
  const double wide[2] = {alpha, beta};
  const void* const scale = dtype == kFloat64 ? static_cast<const void*>(wide) : narrow;
  const void* const old_scale = dtype == kFloat64 ? static_cast<const void*>(wide + 1) : narrow + 1;
  TANDEM_CUBLAS_CHECK(cublasLtMatmul(library().handle, description.description, scale, b_data, left.layout, a_data, right.layout,
                                     old_scale, out, result.layout, out, result.layout, &*algorithm, workspace,
                                     static_cast<size_t>(kWorkspaceBytes), static_cast<cudaStream_t>(context.stream)));
  return true;
}

}  // namespace tandem::inline v0::cuda

#endif
