#include <tandem/ops/matmul/cublaslt_matmul.h>

#include <cublasLt.h>

#include <algorithm>
#include <charconv>
#include <chrono>
#include <cstdio>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include <tandem/base/env.h>
#include <tandem/base/error.h>
#include <tandem/base/log.h>
#include <tandem/base/tuning.h>
#include <tandem/ops/common/library_fallback.h>
#include <tandem/tensor/cuda.h>
#include <tandem/tensor/cuda/runtime.h>
#include <tandem/tensor/factories.h>

namespace tandem { inline namespace v0 { namespace cuda {
namespace {

/// Key of the choice of an algorithm.
struct Problem {
  int device;
  bool tf32;
  DType dtype;
  int64_t batches, m, n, k;
  bool a_transposed, b_transposed;
  int64_t a_leading, b_leading, a_step, b_step;
  bool bias, adds, float32_result, gelu, stores_before_gelu;
  int aligned;

  auto operator<=>(const Problem&) const = default;
  std::string text() const {
    return str(dtype, tf32 ? " tf32 " : " ", batches, "x", m, "x", n, "x", k, " a ", a_transposed ? "T " : "N ",
               a_leading, " ", a_step, " b ", b_transposed ? "T " : "N ", b_leading, " ", b_step, bias ? " bias" : "",
               adds ? " adds" : "", float32_result ? " to float32" : "", gelu ? " gelu" : "",
               stores_before_gelu ? " with its argument" : "", " aligned ", aligned);
  }
};

/// The reason why cuBLASLt does not compute a product. Thrown and caught in this file.
struct Refusal {
  std::string reason;
};

/// The algorithm for a problem; nullopt: tandem's own kernel computes the product.
using Choice = std::optional<cublasLtMatmulAlgo_t>;

/// The choices of this process. Thread-safe.
class Choices {
 public:
  /// Returns false if no choice is stored for the problem.
  bool find(const Problem& problem, Choice& choice) const {
    std::lock_guard lock(mutex_);
    const auto found = choices_.find(problem);
    if (found == choices_.end()) return false;
    choice = found->second;
    return true;
  }
  void store(const Problem& problem, const Choice& choice) {
    std::lock_guard lock(mutex_);
    choices_[problem] = choice;
  }

 private:
  mutable std::mutex mutex_;  // guards choices_
  std::map<Problem, Choice> choices_;
};

/// The file to which measured choices are written; nullopt if measuring is off.
const std::optional<std::string>& measured_choices() {
  static const std::optional<std::string> path = env_string("TANDEM_TUNING_WRITE");
  return path;
}

/// Index of the fastest of `count` candidates; run(i) runs candidate i to completion. Each round measures every
/// candidate once; the best time counts.
template <class F>
int fastest(int count, F run) {
  std::vector<double> best(static_cast<size_t>(count), 1e30);
  for (int round = 0; round < 4; ++round) {  // the first round also warms up
    for (int i = 0; i < count; ++i) {
      const auto begin = std::chrono::steady_clock::now();
      run(i);
      const double seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
      best[static_cast<size_t>(i)] = std::min(best[static_cast<size_t>(i)], seconds);
    }
  }
  return static_cast<int>(std::min_element(best.begin(), best.end()) - best.begin());
}

constexpr int64_t kWorkspaceBytes = int64_t{32} << 20;  // NVIDIA's recommendation for Hopper

void check_cublas(cublasStatus_t status, const char* call) {
  if (status != CUBLAS_STATUS_SUCCESS) throw Refusal{str(call, ": ", cublasLtGetStatusString(status))};
}
#define TANDEM_CUBLAS_CHECK(call) check_cublas((call), #call)

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

/// Without relu, which tandem's own kernel applies.
cublasLtEpilogue_t epilogue_of(const GemmEpilogue& epilogue) {
  const bool has_bias = epilogue.bias != nullptr;
  if (!epilogue.gelu) return has_bias ? CUBLASLT_EPILOGUE_BIAS : CUBLASLT_EPILOGUE_DEFAULT;
  if (epilogue.before_gelu == nullptr) return has_bias ? CUBLASLT_EPILOGUE_GELU_BIAS : CUBLASLT_EPILOGUE_GELU;
  return has_bias ? CUBLASLT_EPILOGUE_GELU_AUX_BIAS : CUBLASLT_EPILOGUE_GELU_AUX;
}

/// A row-major matrix as cuBLASLt describes it: column-major and transposed.
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

/// The cuBLASLt handle of one GPU and the algorithms chosen for it in this process. Thread-safe.
struct CublasLt {
  cublasLtHandle_t handle = nullptr;
  std::once_flag made;  // guards handle
  Choices choices;
  std::once_flag reported;  // guards the warning that the tuning file is from another machine
};

CublasLt& cublaslt_of(Device device) {
  // Never destroyed: the driver may be unloaded first.
  static CublasLt* const handles = new CublasLt[static_cast<size_t>(device_count())];
  return handles[device.index];
}

/// Common alignment of the pointers, up to 16 bytes.
int alignment(std::initializer_list<const void*> pointers) {
  uintptr_t bits = 16;
  for (const void* pointer : pointers) bits |= reinterpret_cast<uintptr_t>(pointer);
  return static_cast<int>(bits & -bits);
}

/// The first `most` algorithms of cuBLASLt's heuristic for the problem, best first. Split-K only with a fixed order of
/// summation.
std::vector<cublasLtMatmulAlgo_t> advice(cublasLtHandle_t handle, cublasLtMatmulDesc_t description, const Layout& a,
                                         const Layout& b, const Layout& out, int aligned, int most) {
  cublasLtMatmulPreference_t preference = nullptr;
  TANDEM_CUBLAS_CHECK(cublasLtMatmulPreferenceCreate(&preference));
  const std::unique_ptr<std::remove_pointer_t<cublasLtMatmulPreference_t>, decltype(&cublasLtMatmulPreferenceDestroy)>
      owner(preference, cublasLtMatmulPreferenceDestroy);
  const auto set = [&](cublasLtMatmulPreferenceAttributes_t attribute, auto value) {
    TANDEM_CUBLAS_CHECK(cublasLtMatmulPreferenceSetAttribute(preference, attribute, &value, sizeof(value)));
  };
  set(CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES, static_cast<uint64_t>(kWorkspaceBytes));
  // Partial sums are added in the compute type: half types in float32.
  set(CUBLASLT_MATMUL_PREF_REDUCTION_SCHEME_MASK, static_cast<uint32_t>(CUBLASLT_REDUCTION_SCHEME_COMPUTE_TYPE));
  for (const auto attribute :
       {CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_B_BYTES,
        CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_C_BYTES, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES}) {
    set(attribute, static_cast<uint32_t>(aligned));
  }
  std::vector<cublasLtMatmulHeuristicResult_t> results(static_cast<size_t>(most));
  int found = 0;
  check_cublas(cublasLtMatmulAlgoGetHeuristic(handle, description, a.layout, b.layout, out.layout, out.layout,
                                              preference, most, results.data(), &found),
               "cublasLtMatmulAlgoGetHeuristic");
  std::vector<cublasLtMatmulAlgo_t> algorithms;
  for (int i = 0; i < found; ++i) {
    const cublasLtMatmulHeuristicResult_t& result = results[static_cast<size_t>(i)];
    if (result.state == CUBLAS_STATUS_SUCCESS) algorithms.push_back(result.algo);
  }
  return algorithms;
}

/// The bytes of an algorithm in hexadecimal. NVIDIA permits storing them for use with the same version of cuBLASLt.
std::string to_text(const cublasLtMatmulAlgo_t& algorithm) {
  std::string text;
  for (const uint64_t word : algorithm.data) {
    char digits[17];
    std::snprintf(digits, sizeof(digits), "%016llx", static_cast<unsigned long long>(word));
    text += digits;
  }
  return text;
}

std::optional<cublasLtMatmulAlgo_t> from_text(const std::string& text) {
  cublasLtMatmulAlgo_t algorithm = {};
  constexpr size_t kDigits = 16;
  if (text.size() != kDigits * std::size(algorithm.data)) return std::nullopt;
  for (size_t i = 0; i < std::size(algorithm.data); ++i) {
    uint64_t word = 0;
    const char* const end = text.data() + (i + 1) * kDigits;
    if (std::from_chars(end - kDigits, end, word, 16).ptr != end) return std::nullopt;
    algorithm.data[i] = word;
  }
  return algorithm;
}

/// Candidates for a new problem, best first: the algorithm of the tuning file; the fastest one if measuring is on; else
/// the proposals of the heuristic, which depend only on the problem. run(algorithm) starts the product with other
/// memory as its output, except for the argument of gelu, which the product itself writes again.
template <class F>
std::vector<cublasLtMatmulAlgo_t> candidates(CublasLt& cublaslt, const Problem& problem,
                                             cublasLtMatmulDesc_t description, const Layout& a, const Layout& b,
                                             const Layout& out, F run) {
  const std::string prefix =
      str("product, ", device_properties(Device::cuda(problem.device)).name, ", cublasLt ", cublasLtGetVersion(), ": ");
  const Tuning& tuning = Tuning::from_environment();
  if (const std::string* text = tuning.find(prefix + problem.text())) {
    const auto algorithm = from_text(*text);
    cublasLtMatmulHeuristicResult_t result = {};
    TANDEM_CHECK(ValueError,
                 algorithm &&
                     cublasLtMatmulAlgoCheck(cublaslt.handle, description, a.layout, b.layout, out.layout, out.layout,
                                             &*algorithm, &result) == CUBLAS_STATUS_SUCCESS &&
                     result.workspaceSize <= static_cast<size_t>(kWorkspaceBytes),
                 "tuning file: '", *text, "' is not an available algorithm for ", prefix, problem.text());
    return {*algorithm};
  }
  if (tuning.hash() != 0 && !tuning.has_prefix(prefix)) {
    std::call_once(cublaslt.reported, [&] {
      log(LogLevel::kWarning, "the tuning file has nothing that begins with '", prefix,
          "': the heuristic of cuBLASLt is used");
    });
  }
  constexpr int kMaxProposals = 8, kMaxMeasured = 16;
  auto proposals = advice(cublaslt.handle, description, a, b, out, problem.aligned,
                          measured_choices() ? kMaxMeasured : kMaxProposals);
  if (!measured_choices()) return proposals;
  std::erase_if(proposals, [&](const auto& algorithm) { return run(algorithm) != CUBLAS_STATUS_SUCCESS; });
  if (proposals.empty()) return {};
  const int best = fastest(static_cast<int>(proposals.size()), [&](int i) {
    for (int repeat = 0; repeat < 5; ++repeat) run(proposals[static_cast<size_t>(i)]);
    synchronize(Device::cuda(problem.device));
  });
  Tuning::append(*measured_choices(), prefix + problem.text(), to_text(proposals[static_cast<size_t>(best)]));
  return {proposals[static_cast<size_t>(best)]};
}

/// The distance between consecutive matrices of a batch; nullopt if it is not constant.
std::optional<int64_t> batch_step(int64_t batches, const int64_t* offsets) {
  if (batches == 1) return 0;
  const int64_t step = offsets[1] - offsets[0];
  for (int64_t i = 2; i < batches; ++i) {
    if (offsets[i] - offsets[i - 1] != step) return std::nullopt;
  }
  return step < 0 ? std::nullopt : std::optional(step);
}

}  // namespace

int64_t cublaslt_workspace_bytes(DType dtype) { return is_floating_point(dtype) ? kWorkspaceBytes : 0; }

bool cublaslt_matmul(const KernelContext& context, DType dtype, int64_t batches, int64_t m, int64_t n, int64_t k,
                     double alpha, const MatrixOperand& a, const int64_t* a_offsets, const MatrixOperand& b,
                     const int64_t* b_offsets, double beta, const GemmEpilogue& epilogue, void* workspace, void* out) {
  if (!is_floating_point(dtype) || k == 0 || workspace == nullptr) return false;
  const void* const bias = epilogue.bias;
  const DType result_dtype = epilogue.float32_result ? kFloat32 : dtype;
  const int64_t element = size_of(dtype), result_element = size_of(result_dtype);
  const std::optional<int64_t> a_step = batch_step(batches, a_offsets), b_step = batch_step(batches, b_offsets);
  if (!a_step || !b_step) {  // one matrix at a time
    for (int64_t i = 0; i < batches; ++i) {
      if (!cublaslt_matmul(context, dtype, 1, m, n, k, alpha, a, a_offsets + i, b, b_offsets + i, beta, epilogue,
                           workspace, static_cast<std::byte*>(out) + i * m * n * result_element)) {
        return false;
      }
    }
    return true;
  }
  const auto first = [&](const MatrixOperand& operand, const int64_t* offsets) {
    return static_cast<const std::byte*>(operand.data) + (offsets == nullptr ? 0 : offsets[0]) * element;
  };
  const std::byte *a_data = first(a, a_offsets), *b_data = first(b, b_offsets);
  const cublasComputeType_t compute = compute_type_of(dtype);
  const Problem problem{context.device.index,
                        compute == CUBLAS_COMPUTE_32F_FAST_TF32,
                        dtype,
                        batches,
                        m,
                        n,
                        k,
                        a.transposed,
                        b.transposed,
                        a.leading,
                        b.leading,
                        *a_step,
                        *b_step,
                        bias != nullptr,
                        beta != 0,
                        epilogue.float32_result,
                        epilogue.gelu,
                        epilogue.before_gelu != nullptr,
                        alignment({a_data, b_data, out, bias, epilogue.before_gelu})};
  const DeviceGuard guard(context.device);
  CublasLt& cublaslt = cublaslt_of(context.device);
  Choice choice;
  const bool is_known = cublaslt.choices.find(problem, choice);
  if (is_known && !choice) return false;
  try {
    std::call_once(cublaslt.made, [&] { TANDEM_CUBLAS_CHECK(cublasLtCreate(&cublaslt.handle)); });
    // out^T = b^T a^T in column-major order, which is the memory order of out, b and a.
    Description description(compute, dtype);
    description.set(CUBLASLT_MATMUL_DESC_TRANSA, b.transposed ? CUBLAS_OP_T : CUBLAS_OP_N);
    description.set(CUBLASLT_MATMUL_DESC_TRANSB, a.transposed ? CUBLAS_OP_T : CUBLAS_OP_N);
    description.set(CUBLASLT_MATMUL_DESC_EPILOGUE, epilogue_of(epilogue));
    if (bias != nullptr) description.set(CUBLASLT_MATMUL_DESC_BIAS_POINTER, bias);
    if (epilogue.before_gelu != nullptr) {
      description.set(CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_POINTER, epilogue.before_gelu);
      description.set(CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_LD, n);
    }
    const Layout left(dtype, b.transposed ? k : n, b.transposed ? n : k, b.leading, batches, *b_step);
    const Layout right(dtype, a.transposed ? m : k, a.transposed ? k : m, a.leading, batches, *a_step);
    const Layout result(result_dtype, n, m, n, batches, m * n);

    const float narrow[2] = {static_cast<float>(alpha), static_cast<float>(beta)};
    const double wide[2] = {alpha, beta};
    const void* const scale = dtype == kFloat64 ? static_cast<const void*>(wide) : narrow;
    const void* const old_scale = dtype == kFloat64 ? static_cast<const void*>(wide + 1) : narrow + 1;
    const auto run = [&](const cublasLtMatmulAlgo_t& algorithm, void* to) {
      return cublasLtMatmul(cublaslt.handle, description.description, scale, b_data, left.layout, a_data, right.layout,
                            old_scale, to, result.layout, to, result.layout, &algorithm, workspace,
                            static_cast<size_t>(kWorkspaceBytes), static_cast<cudaStream_t>(context.stream));
    };
    std::vector<cublasLtMatmulAlgo_t> algorithms;
    if (is_known) {
      algorithms = {*choice};
    } else {
      Tensor elsewhere;  // so that measuring does not change `out`
      algorithms = candidates(cublaslt, problem, description.description, left, right, result,
                              [&](const cublasLtMatmulAlgo_t& candidate) {
                                if (!elsewhere.defined()) {
                                  elsewhere = zeros({batches * m * n * result_element}, {kUInt8, context.device});
                                }
                                return run(candidate, elsewhere.data_ptr());
                              });
    }
    std::string reason = "no algorithm";
    for (const cublasLtMatmulAlgo_t& algorithm : algorithms) {
      const cublasStatus_t status = run(algorithm, out);
      if (status == CUBLAS_STATUS_SUCCESS) {
        if (!is_known) cublaslt.choices.store(problem, algorithm);
        return true;
      }
      reason = str("cublasLtMatmul: ", cublasLtGetStatusString(status));
      // The kernel may have begun, so `out` may no longer have the values to which the product is added.
      if (status == CUBLAS_STATUS_EXECUTION_FAILED) throw BackendError(reason + ":", status);
    }
    throw Refusal{reason};
  } catch (const Refusal& refusal) {
    warn_fallback("cuBLASLt", str("product ", problem.text()), refusal.reason);
    cublaslt.choices.store(problem, std::nullopt);
    return false;
  }
}

}}}  // namespace tandem::v0::cuda
