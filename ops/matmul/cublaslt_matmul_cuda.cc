#include <tandem/ops/matmul/cublaslt_matmul.h>

#include <algorithm>
#include <chrono>
#include <map>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include <tandem/base/env.h>
#include <tandem/base/error.h>
#include <tandem/base/tuning.h>
#include <tandem/tensor/cuda/runtime.h>

namespace tandem { inline namespace v0 { namespace cuda { namespace {

/// Key of the choice of an algorithm.
struct Problem {
  int device;
  bool tf32;
  DType dtype;
  int64_t batches, m, n, k;
  bool a_transposed, b_transposed;
  int64_t a_leading, b_leading, a_step, b_step;
  bool bias, relu, adds;
  int aligned;

  auto operator<=>(const Problem&) const = default;
  std::string text() const {
    return str(dtype, tf32 ? " tf32 " : " ", batches, "x", m, "x", n, "x", k, " a ", a_transposed ? "T " : "N ",
               a_leading, " ", a_step, " b ", b_transposed ? "T " : "N ", b_leading, " ", b_step, bias ? " bias" : "",
               relu ? " relu" : "", adds ? " adds" : "", " aligned ", aligned);
  }
};

/// The algorithms chosen in this process; nullopt if cuBLASLt has none. Thread-safe.
template <class Algorithm>
class Choices {
 public:
  /// Returns the stored choice, or stores the result of choose() for a new problem.
  template <class F>
  std::optional<Algorithm> get(const Problem& problem, F choose) {
    std::lock_guard lock(mutex_);
    const auto found = choices_.find(problem);
    return found != choices_.end() ? found->second : choices_[problem] = choose();
  }
  void refuse(const Problem& problem) {
    std::lock_guard lock(mutex_);
    choices_[problem] = std::nullopt;
  }

 private:
  std::mutex mutex_;  // guards choices_
  std::map<Problem, std::optional<Algorithm>> choices_;
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

}}}}  // namespace tandem::v0::cuda

#ifdef TANDEM_CUDA_EMULATED

#include <cuda_emulation/control.h>

namespace tandem { inline namespace v0 { namespace cuda {

namespace {

constexpr GemmAlgorithm kAlgorithms[] = {GemmAlgorithm::kDirect, GemmAlgorithm::kAvx2, GemmAlgorithm::kAvx2Swapped,
                                         GemmAlgorithm::kAvx512, GemmAlgorithm::kAvx512Swapped};

std::string key_of(const Problem& problem) { return "product, emulated: " + problem.text(); }

/// The choice in the tuning file.
std::optional<GemmAlgorithm> tuned(const Problem& problem) {
  const std::string key = key_of(problem);
  const std::string* const name = Tuning::from_environment().find(key);
  if (name == nullptr) return std::nullopt;
  for (const GemmAlgorithm algorithm : kAlgorithms) {
    if (*name == to_string(algorithm) && is_available(algorithm)) return algorithm;
  }
  throw ValueError(str("tuning file: '", *name, "' is not an available algorithm for ", key));
}

/// The algorithm if the tuning file has no choice. run(algorithm) computes the product into other memory.
template <class F>
GemmAlgorithm choose(const Problem& problem, F run) {
  if (problem.dtype != kFloat32 || !measured_choices()) {
    return gemm_algorithm(problem.m, problem.n, problem.k, problem.a_transposed, problem.b_transposed);
  }
  static Choices<GemmAlgorithm>* const choices = new Choices<GemmAlgorithm>;
  return *choices->get(problem, [&] {
    std::vector<GemmAlgorithm> candidates;
    std::copy_if(std::begin(kAlgorithms), std::end(kAlgorithms), std::back_inserter(candidates), is_available);
    const auto best = static_cast<size_t>(
        fastest(static_cast<int>(candidates.size()), [&](int i) { run(candidates[static_cast<size_t>(i)]); }));
    Tuning::append(*measured_choices(), key_of(problem), to_string(candidates[best]));
    return candidates[best];
  });
}

}  // namespace

int64_t cublaslt_workspace_bytes(DType dtype) { return dtype == kFloat32 || dtype == kFloat64 ? 1 : 0; }

/// The CPU's kernels for products that would take long in the own GPU kernel; all other products test that kernel.
bool cublaslt_matmul(const KernelContext& context, DType dtype, int64_t batches, int64_t m, int64_t n, int64_t k,
                     double alpha, const MatrixOperand& a, const int64_t* a_offsets, const MatrixOperand& b,
                     const int64_t* b_offsets, double beta, GemmEpilogue epilogue, void* workspace, void* out) {
  constexpr int64_t kMinMultiplyAdds = 6 * 6 * 6;
  if ((dtype != kFloat32 && dtype != kFloat64) || batches * m * n * k < kMinMultiplyAdds || workspace == nullptr)
    return false;
  const Problem problem{context.device.index, false,        dtype,     1,         m, n, k,
                        a.transposed,         b.transposed, a.leading, b.leading, 0, 0, epilogue.bias != nullptr,
                        epilogue.relu,        beta != 0,    1};
  const std::optional<GemmAlgorithm> named = tuned(problem);
  const auto product = [=](int64_t i, int64_t a_offset, int64_t b_offset) {
    const int64_t element = size_of(dtype);
    MatrixOperand left = a, right = b;
    left.data = static_cast<const std::byte*>(a.data) + a_offset * element;
    right.data = static_cast<const std::byte*>(b.data) + b_offset * element;
    const auto run = [&](GemmAlgorithm algorithm, void* to) {
      std::vector<std::byte> scratch(
          static_cast<size_t>(cpu::gemm_workspace_bytes(dtype, algorithm, m, n, k, left, right)) + 64);
      cpu::gemm(Device(), dtype, algorithm, m, n, k, alpha, left, right, beta, epilogue,
                reinterpret_cast<void*>((reinterpret_cast<uintptr_t>(scratch.data()) + 63) / 64 * 64), to);
    };
    std::vector<std::byte> elsewhere;  // so that measuring does not change `out`
    const GemmAlgorithm algorithm = named ? *named : choose(problem, [&](GemmAlgorithm candidate) {
      elsewhere.resize(static_cast<size_t>(m * n * element));
      run(candidate, elsewhere.data());
    });
    run(algorithm, static_cast<std::byte*>(out) + i * m * n * element);
  };
  for (int64_t i = 0; i < batches; ++i) {
    const int64_t a_offset = a_offsets == nullptr ? 0 : a_offsets[i],
                  b_offset = b_offsets == nullptr ? 0 : b_offsets[i];
    cuda_emulation::run_on_device(static_cast<cudaStream_t>(context.stream), [=] { product(i, a_offset, b_offset); });
  }
  return true;
}

}}}  // namespace tandem::v0::cuda

#else

#include <cublasLt.h>

#include <charconv>
#include <memory>

#include <tandem/base/log.h>
#include <tandem/tensor/cuda.h>
#include <tandem/tensor/factories.h>

namespace tandem { inline namespace v0 { namespace cuda {

namespace {

constexpr int64_t kWorkspaceBytes = int64_t{32} << 20;  // NVIDIA's recommendation for Hopper

void check_cublas(cublasStatus_t status, const char* call) {
  if (status == CUBLAS_STATUS_SUCCESS) [[likely]]
    return;
  throw BackendError(str(call, ": ", cublasLtGetStatusString(status), ":"), status);
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
  std::once_flag made;
  Choices<cublasLtMatmulAlgo_t> choices;
  std::once_flag reported;  // guards the warning that the tuning file is from another machine
};

/// The GPU must be the calling thread's current device.
CublasLt& cublaslt_of(Device device) {
  // Never destroyed: the driver may be unloaded first.
  static CublasLt* const handles = new CublasLt[static_cast<size_t>(device_count())];
  CublasLt& own = handles[device.index];
  std::call_once(own.made, [&] { TANDEM_CUBLAS_CHECK(cublasLtCreate(&own.handle)); });
  return own;
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
  const cublasStatus_t status = cublasLtMatmulAlgoGetHeuristic(handle, description, a.layout, b.layout, out.layout,
                                                               out.layout, preference, most, results.data(), &found);
  if (status == CUBLAS_STATUS_NOT_SUPPORTED) return {};
  check_cublas(status, "cublasLtMatmulAlgoGetHeuristic");
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

/// The algorithm for a problem: that of the tuning file, else the first of the heuristic, which depends only on the
/// problem; nullopt if there is none. run(algorithm) starts the product into other memory.
template <class F>
std::optional<cublasLtMatmulAlgo_t> choose(CublasLt& cublaslt, const Problem& problem, cublasLtMatmulDesc_t description,
                                           const Layout& a, const Layout& b, const Layout& out, F run) {
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
    return algorithm;
  }
  if (tuning.hash() != 0 && !tuning.has_prefix(prefix)) {
    std::call_once(cublaslt.reported, [&] {
      log(LogLevel::kWarning, "the tuning file has nothing that begins with '", prefix,
          "': the heuristic of cuBLASLt is used");
    });
  }
  constexpr int kMaxMeasured = 16;
  const auto advised =
      advice(cublaslt.handle, description, a, b, out, problem.aligned, measured_choices() ? kMaxMeasured : 1);
  if (advised.empty()) return std::nullopt;
  if (!measured_choices()) return advised[0];
  const int best = fastest(static_cast<int>(advised.size()), [&](int i) {
    for (int repeat = 0; repeat < 5; ++repeat) run(advised[static_cast<size_t>(i)]);
    synchronize(Device::cuda(problem.device));
  });
  Tuning::append(*measured_choices(), prefix + problem.text(), to_text(advised[static_cast<size_t>(best)]));
  return advised[static_cast<size_t>(best)];
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
                     const int64_t* b_offsets, double beta, GemmEpilogue epilogue, void* workspace, void* out) {
  if (!is_floating_point(dtype) || k == 0 || workspace == nullptr) return false;
  const int64_t element = size_of(dtype);
  const std::optional<int64_t> a_step = batch_step(batches, a_offsets), b_step = batch_step(batches, b_offsets);
  if (!a_step || !b_step) {  // one matrix at a time
    for (int64_t i = 0; i < batches; ++i) {
      if (!cublaslt_matmul(context, dtype, 1, m, n, k, alpha, a, a_offsets + i, b, b_offsets + i, beta, epilogue,
                           workspace, static_cast<std::byte*>(out) + i * m * n * element)) {
        return false;
      }
    }
    return true;
  }
  const DeviceGuard guard(context.device);
  CublasLt& cublaslt = cublaslt_of(context.device);
  const auto first = [&](const MatrixOperand& operand, const int64_t* offsets) {
    return static_cast<const std::byte*>(operand.data) + (offsets == nullptr ? 0 : offsets[0]) * element;
  };
  const std::byte *a_data = first(a, a_offsets), *b_data = first(b, b_offsets);

  // out^T = b^T a^T in column-major order, which is the memory order of out, b and a.
  const cublasComputeType_t compute = compute_type_of(dtype);
  Description description(compute, dtype);
  description.set(CUBLASLT_MATMUL_DESC_TRANSA, b.transposed ? CUBLAS_OP_T : CUBLAS_OP_N);
  description.set(CUBLASLT_MATMUL_DESC_TRANSB, a.transposed ? CUBLAS_OP_T : CUBLAS_OP_N);
  const cublasLtEpilogue_t end = epilogue.bias == nullptr
                                     ? (epilogue.relu ? CUBLASLT_EPILOGUE_RELU : CUBLASLT_EPILOGUE_DEFAULT)
                                 : epilogue.relu ? CUBLASLT_EPILOGUE_RELU_BIAS
                                                 : CUBLASLT_EPILOGUE_BIAS;
  description.set(CUBLASLT_MATMUL_DESC_EPILOGUE, end);
  if (epilogue.bias != nullptr) description.set(CUBLASLT_MATMUL_DESC_BIAS_POINTER, epilogue.bias);
  const Layout left(dtype, b.transposed ? k : n, b.transposed ? n : k, b.leading, batches, *b_step);
  const Layout right(dtype, a.transposed ? m : k, a.transposed ? k : m, a.leading, batches, *a_step);
  const Layout result(dtype, n, m, n, batches, m * n);

  const float narrow[2] = {static_cast<float>(alpha), static_cast<float>(beta)};
  const double wide[2] = {alpha, beta};
  const void* const scale = dtype == kFloat64 ? static_cast<const void*>(wide) : narrow;
  const void* const old_scale = dtype == kFloat64 ? static_cast<const void*>(wide + 1) : narrow + 1;
  const auto run = [&](const cublasLtMatmulAlgo_t& algorithm, void* to) {
    return cublasLtMatmul(cublaslt.handle, description.description, scale, b_data, left.layout, a_data, right.layout,
                          old_scale, to, result.layout, to, result.layout, &algorithm, workspace,
                          static_cast<size_t>(kWorkspaceBytes), static_cast<cudaStream_t>(context.stream));
  };
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
                        epilogue.bias != nullptr,
                        epilogue.relu,
                        beta != 0,
                        alignment({a_data, b_data, out, epilogue.bias})};
  const auto algorithm = cublaslt.choices.get(problem, [&] {
    Tensor elsewhere;  // so that measuring does not change `out`
    return choose(cublaslt, problem, description.description, left, right, result,
                  [&](const cublasLtMatmulAlgo_t& candidate) {
                    if (!elsewhere.defined()) elsewhere = zeros({batches * m * n * element}, {kUInt8, context.device});
                    check_cublas(run(candidate, elsewhere.data_ptr()), "cublasLtMatmul");
                  });
  });
  if (!algorithm) return false;
  const cublasStatus_t status = run(*algorithm, out);
  if (status == CUBLAS_STATUS_NOT_SUPPORTED) {  // although the heuristic proposed it: do not use it again
    cublaslt.choices.refuse(problem);
    return false;
  }
  check_cublas(status, "cublasLtMatmul");
  return true;
}

}}}  // namespace tandem::v0::cuda

#endif
