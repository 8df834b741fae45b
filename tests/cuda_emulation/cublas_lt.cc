// cuBLASLt's API. Objects that are used after they were destroyed, and calls against the documentation's rules, end the
// process; problems for which the documentation lists no kernel are CUBLAS_STATUS_NOT_SUPPORTED.
#include <cublasLt.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <functional>
#include <set>
#include <string>
#include <vector>

#include <tandem/base/half.h>
#include <tandem/tests/cuda_emulation/library.h>
#include <tandem/tests/cuda_emulation/runtime.h>

struct cublasLtContext {
  int device;
};
struct cublasLtMatrixLayoutOpaque {
  cudaDataType_t type;
  int64_t rows, columns, leading;
  int32_t batches = 1;
  int64_t batch_stride = 0;
};
struct cublasLtMatmulDescOpaque {
  cublasComputeType_t compute;
  cudaDataType_t scale;
  cublasOperation_t transpose_a = CUBLAS_OP_N, transpose_b = CUBLAS_OP_N;
  cublasLtEpilogue_t epilogue = CUBLASLT_EPILOGUE_DEFAULT;
  const void* bias = nullptr;
  void* gelu_input = nullptr;
  int64_t gelu_input_leading = 0;
};
struct cublasLtMatmulPreferenceOpaque {
  uint64_t workspace_bytes = 0;
  uint32_t reduction_schemes = ~0U;
  uint32_t alignment[4] = {256, 256, 256, 256};  // of a, b, c, d
};

namespace cuda_emulation { namespace {

constexpr size_t kVersion = 130100;
constexpr uint64_t kNumAlgorithms = 4;
constexpr size_t kWorkspaceBytes = size_t{1} << 20;  // of every algorithm
constexpr size_t kWorkspaceAlignment = 256;

/// The objects of a type that exist.
template <class T>
class Objects {
 public:
  void add(const T* object) {
    std::lock_guard lock(mutex_);
    all_.insert(object);
  }
  void remove(const T* object, const char* call) {
    std::lock_guard lock(mutex_);
    if (all_.erase(object) == 0) end_process(std::string(call) + ": no such object");
  }
  const T& check(const T* object, const char* call) {
    std::lock_guard lock(mutex_);
    if (all_.count(object) == 0) end_process(std::string(call) + ": an argument is no object of the right type");
    return *object;
  }
  static Objects& get() {
    static Objects* const all = new Objects;  // never destroyed: libraries may be called after main
    return *all;
  }

 private:
  std::mutex mutex_;
  std::set<const T*> all_;
};

template <class T>
cublasStatus_t create(T** result, T* object) {
  Objects<T>::get().add(object);
  *result = object;
  return CUBLAS_STATUS_SUCCESS;
}

template <class T>
cublasStatus_t destroy(T* object, const char* call) {
  if (object != nullptr) {
    Objects<T>::get().remove(object, call);
    delete object;
  }
  return static_cast<cublasStatus_t>(record_library_call(call));
}

template <class T>
const T& checked(const T* object, const char* call) {
  return Objects<T>::get().check(object, call);
}

template <class T>
void read(T& target, const void* value, size_t num_bytes, const char* call) {
  if (num_bytes != sizeof(T)) {
    end_process(std::string(call) + ": an attribute of " + std::to_string(num_bytes) + " bytes, expected " +
                std::to_string(sizeof(T)));
  }
  std::memcpy(&target, value, sizeof(T));
}

int64_t size_of(cudaDataType_t type) { return type == CUDA_R_64F ? 8 : type == CUDA_R_32F ? 4 : 2; }
bool is_half(cudaDataType_t type) { return type == CUDA_R_16F || type == CUDA_R_16BF; }

double load(cudaDataType_t type, const void* data, int64_t i) {
  switch (type) {
    case CUDA_R_64F: return static_cast<const double*>(data)[i];
    case CUDA_R_32F: return static_cast<const float*>(data)[i];
    case CUDA_R_16F: return static_cast<const tandem::Half*>(data)[i];
    default: return static_cast<const tandem::BFloat16*>(data)[i];
  }
}

void store(cudaDataType_t type, void* data, int64_t i, double value) {
  switch (type) {
    case CUDA_R_64F: static_cast<double*>(data)[i] = value; break;
    case CUDA_R_32F: static_cast<float*>(data)[i] = static_cast<float>(value); break;
    case CUDA_R_16F: static_cast<tandem::Half*>(data)[i] = tandem::Half(static_cast<float>(value)); break;
    default: static_cast<tandem::BFloat16*>(data)[i] = tandem::BFloat16(static_cast<float>(value)); break;
  }
}

/// A product with its operands' sizes: d is m x n, the sum has k terms.
struct Product {
  cublasLtMatmulDescOpaque description;
  cublasLtMatrixLayoutOpaque a, b, c, d;
  int64_t m, n, k;

  // The epilogues are sums of these bits.
  bool has_bias() const { return (description.epilogue & CUBLASLT_EPILOGUE_BIAS) != 0; }
  bool has_gelu() const { return (description.epilogue & CUBLASLT_EPILOGUE_GELU) != 0; }
  bool stores_gelu_input() const { return description.epilogue >= CUBLASLT_EPILOGUE_GELU_AUX; }

  /// Rules of cublasLtMatmul's documentation that do not depend on the data.
  Product(const char* call, const cublasLtMatmulDescOpaque& desc, const cublasLtMatrixLayoutOpaque& left,
          const cublasLtMatrixLayoutOpaque& right, const cublasLtMatrixLayoutOpaque& old,
          const cublasLtMatrixLayoutOpaque& out)
      : description(desc), a(left), b(right), c(old), d(out), m(out.rows), n(out.columns) {
    const auto fault = [call](const std::string& text) { end_process(std::string(call) + ": " + text); };
    const bool ta = desc.transpose_a == CUBLAS_OP_T, tb = desc.transpose_b == CUBLAS_OP_T;
    k = ta ? a.rows : a.columns;
    if ((ta ? a.columns : a.rows) != m || (tb ? b.rows : b.columns) != n || (tb ? b.columns : b.rows) != k ||
        c.rows != m || c.columns != n) {
      fault("the sizes of a, b, c and d do not match");
    }
    for (const auto* layout : {&a, &b, &c, &d}) {
      if (layout->leading < std::max<int64_t>(1, layout->rows)) {
        fault("a leading dimension of " + std::to_string(layout->leading) + " for " + std::to_string(layout->rows) +
              " rows");
      }
      if (layout->batches != d.batches) fault("batch counts differ");
    }
    if (d.batches > 1 && d.batch_stride < d.leading * (d.columns - 1) + d.rows) fault("matrices of d overlap");
    if (desc.scale != (desc.compute == CUBLAS_COMPUTE_64F ? CUDA_R_64F : CUDA_R_32F)) {
      fault("the scale type does not belong to the compute type");
    }
    if (has_bias() && desc.bias == nullptr) fault("an epilogue with a bias without its pointer");
    if (stores_gelu_input() != (desc.gelu_input != nullptr)) {
      fault("the pointer to GELU's input must be set for epilogues that store it, and for no others");
    }
    if (stores_gelu_input() && (desc.gelu_input_leading < m || desc.gelu_input_leading % 8 != 0)) {
      fault("the leading dimension of GELU's input is less than the rows, or not a multiple of 8");
    }
    if (stores_gelu_input() && d.batches > 1) fault("GELU's input of several products is not emulated");
  }

  /// Whether the documentation's table of types has this row.
  bool is_supported() const {
    if (a.type != b.type || c.type != d.type) return false;
    if (has_gelu() && (!is_half(a.type) || d.type != a.type)) return false;
    if (description.compute == CUBLAS_COMPUTE_64F) return a.type == CUDA_R_64F && d.type == CUDA_R_64F;
    if (description.compute == CUBLAS_COMPUTE_32F_FAST_TF32) return a.type == CUDA_R_32F && d.type == CUDA_R_32F;
    return (a.type == CUDA_R_32F && d.type == CUDA_R_32F) ||
           (is_half(a.type) && (d.type == a.type || d.type == CUDA_R_32F));
  }

  /// Identifies the problem for which an algorithm is chosen.
  uint64_t hash() const {
    std::string text;
    for (const auto* layout : {&a, &b, &c, &d}) {
      for (const int64_t value : {int64_t{layout->type}, layout->rows, layout->columns, layout->leading,
                                  int64_t{layout->batches}, layout->batch_stride}) {
        text += std::to_string(value) + ' ';
      }
    }
    for (const int value : {int{description.compute}, int{description.transpose_a}, int{description.transpose_b},
                            int{description.epilogue}}) {
      text += std::to_string(value) + ' ';
    }
    return std::hash<std::string>()(text);
  }
};

/// The bytes from the first to the last element of all matrices.
size_t extent(const cublasLtMatrixLayoutOpaque& m) {
  if (m.rows == 0 || m.columns == 0) return 0;
  return static_cast<size_t>(((m.batches - 1) * m.batch_stride + m.leading * (m.columns - 1) + m.rows) *
                             size_of(m.type));
}

/// op(matrix) in row-major order.
std::vector<double> dense(const cublasLtMatrixLayoutOpaque& matrix, const void* data, int64_t batch, bool transposed) {
  std::vector<double> values(static_cast<size_t>(matrix.rows * matrix.columns));
  for (int64_t column = 0; column < matrix.columns; ++column) {
    for (int64_t row = 0; row < matrix.rows; ++row) {
      values[static_cast<size_t>(transposed ? column * matrix.rows + row : row * matrix.columns + column)] =
          load(matrix.type, data, batch * matrix.batch_stride + column * matrix.leading + row);
    }
  }
  return values;
}

struct Data {
  double alpha, beta;
  const void *a, *b, *c;
  void* d;
};

/// Whether the product is rounded before the bias is added, as by cuBLASLt 13.1 on an H200.
bool rounds_twice(const Product& p) { return is_half(p.d.type) && (p.a.leading | p.b.leading | p.d.leading) % 8 != 0; }

double rounded(cudaDataType_t type, double value) {
  double number = 0;
  store(type, &number, 0, value);
  return load(type, &number, 0);
}

void multiply(const Product& p, const Data& data) {
  for (int64_t batch = 0; batch < p.d.batches; ++batch) {
    const std::vector<double> a = dense(p.a, data.a, batch, p.description.transpose_a == CUBLAS_OP_T),
                              b = dense(p.b, data.b, batch, p.description.transpose_b == CUBLAS_OP_T);
    std::vector<double> sums(static_cast<size_t>(p.n));
    for (int64_t i = 0; i < p.m; ++i) {
      std::fill(sums.begin(), sums.end(), 0);
      for (int64_t depth = 0; depth < p.k; ++depth) {
        const double left = a[static_cast<size_t>(i * p.k + depth)];
        const double* const right = b.data() + depth * p.n;
        for (int64_t j = 0; j < p.n; ++j) {
          sums[static_cast<size_t>(j)] = __builtin_fma(left, right[j], sums[static_cast<size_t>(j)]);
        }
      }
      for (int64_t j = 0; j < p.n; ++j) {
        const int64_t at = batch * p.d.batch_stride + j * p.d.leading + i;
        double value = data.alpha * sums[static_cast<size_t>(j)];
        if (data.beta != 0) {
          value += data.beta * load(p.c.type, data.c, batch * p.c.batch_stride + j * p.c.leading + i);
        }
        if (p.has_bias()) {
          if (rounds_twice(p)) value = rounded(p.d.type, value);
          value += load(p.d.type, p.description.bias, i);
        }
        if (p.has_gelu()) {
          if (p.stores_gelu_input()) {
            store(p.d.type, p.description.gelu_input, j * p.description.gelu_input_leading + i, value);
          }
          value *= 0.5 * (1 + std::tanh(std::sqrt(2 / M_PI) * (value + 0.044715 * value * value * value)));
        }
        store(p.d.type, data.d, at, value);
      }
    }
  }
}

}}  // namespace cuda_emulation

using namespace cuda_emulation;

#define TANDEM_RECORD() \
  if (const int to_inject = record_library_call(__func__); to_inject != 0) return static_cast<cublasStatus_t>(to_inject)

const char* cublasLtGetStatusString(cublasStatus_t status) {
  switch (status) {
    case CUBLAS_STATUS_SUCCESS: return "CUBLAS_STATUS_SUCCESS";
    case CUBLAS_STATUS_NOT_INITIALIZED: return "CUBLAS_STATUS_NOT_INITIALIZED";
    case CUBLAS_STATUS_ALLOC_FAILED: return "CUBLAS_STATUS_ALLOC_FAILED";
    case CUBLAS_STATUS_INVALID_VALUE: return "CUBLAS_STATUS_INVALID_VALUE";
    case CUBLAS_STATUS_ARCH_MISMATCH: return "CUBLAS_STATUS_ARCH_MISMATCH";
    case CUBLAS_STATUS_MAPPING_ERROR: return "CUBLAS_STATUS_MAPPING_ERROR";
    case CUBLAS_STATUS_EXECUTION_FAILED: return "CUBLAS_STATUS_EXECUTION_FAILED";
    case CUBLAS_STATUS_INTERNAL_ERROR: return "CUBLAS_STATUS_INTERNAL_ERROR";
    case CUBLAS_STATUS_NOT_SUPPORTED: return "CUBLAS_STATUS_NOT_SUPPORTED";
    case CUBLAS_STATUS_LICENSE_ERROR: return "CUBLAS_STATUS_LICENSE_ERROR";
  }
  return "unknown";
}

size_t cublasLtGetVersion() { return kVersion; }

cublasStatus_t cublasLtCreate(cublasLtHandle_t* handle) {
  TANDEM_RECORD();
  return create(handle, new cublasLtContext{current_device()});
}
cublasStatus_t cublasLtDestroy(cublasLtHandle_t handle) { return destroy(handle, __func__); }

cublasStatus_t cublasLtMatrixLayoutCreate(cublasLtMatrixLayout_t* layout, cudaDataType_t type, uint64_t rows,
                                          uint64_t columns, int64_t leading) {
  TANDEM_RECORD();
  return create(
      layout, new cublasLtMatrixLayoutOpaque{type, static_cast<int64_t>(rows), static_cast<int64_t>(columns), leading});
}
cublasStatus_t cublasLtMatrixLayoutDestroy(cublasLtMatrixLayout_t layout) { return destroy(layout, __func__); }
cublasStatus_t cublasLtMatrixLayoutSetAttribute(cublasLtMatrixLayout_t layout,
                                                cublasLtMatrixLayoutAttribute_t attribute, const void* value,
                                                size_t num_bytes) {
  TANDEM_RECORD();
  checked(layout, __func__);
  if (attribute == CUBLASLT_MATRIX_LAYOUT_BATCH_COUNT) {
    read(layout->batches, value, num_bytes, __func__);
  } else {
    read(layout->batch_stride, value, num_bytes, __func__);
  }
  return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasLtMatmulDescCreate(cublasLtMatmulDesc_t* description, cublasComputeType_t compute,
                                        cudaDataType_t scale) {
  TANDEM_RECORD();
  return create(description, new cublasLtMatmulDescOpaque{compute, scale});
}
cublasStatus_t cublasLtMatmulDescDestroy(cublasLtMatmulDesc_t description) { return destroy(description, __func__); }
cublasStatus_t cublasLtMatmulDescSetAttribute(cublasLtMatmulDesc_t description,
                                              cublasLtMatmulDescAttributes_t attribute, const void* value,
                                              size_t num_bytes) {
  TANDEM_RECORD();
  checked(description, __func__);
  switch (attribute) {
    case CUBLASLT_MATMUL_DESC_TRANSA: read(description->transpose_a, value, num_bytes, __func__); break;
    case CUBLASLT_MATMUL_DESC_TRANSB: read(description->transpose_b, value, num_bytes, __func__); break;
    case CUBLASLT_MATMUL_DESC_EPILOGUE: read(description->epilogue, value, num_bytes, __func__); break;
    case CUBLASLT_MATMUL_DESC_BIAS_POINTER: read(description->bias, value, num_bytes, __func__); break;
    case CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_POINTER: read(description->gelu_input, value, num_bytes, __func__); break;
    case CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_LD: read(description->gelu_input_leading, value, num_bytes, __func__); break;
  }
  return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasLtMatmulPreferenceCreate(cublasLtMatmulPreference_t* preference) {
  TANDEM_RECORD();
  return create(preference, new cublasLtMatmulPreferenceOpaque);
}
cublasStatus_t cublasLtMatmulPreferenceDestroy(cublasLtMatmulPreference_t preference) {
  return destroy(preference, __func__);
}
cublasStatus_t cublasLtMatmulPreferenceSetAttribute(cublasLtMatmulPreference_t preference,
                                                    cublasLtMatmulPreferenceAttributes_t attribute, const void* value,
                                                    size_t num_bytes) {
  TANDEM_RECORD();
  checked(preference, __func__);
  switch (attribute) {
    case CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES: read(preference->workspace_bytes, value, num_bytes, __func__); break;
    case CUBLASLT_MATMUL_PREF_REDUCTION_SCHEME_MASK:
      read(preference->reduction_schemes, value, num_bytes, __func__);
      break;
    default:
      read(preference->alignment[attribute - CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES], value, num_bytes, __func__);
  }
  return CUBLAS_STATUS_SUCCESS;
}

// Algorithm i: data = {i, hash of the product, alignments of a, b, c and d}.
cublasStatus_t cublasLtMatmulAlgoGetHeuristic(cublasLtHandle_t handle, cublasLtMatmulDesc_t description,
                                              cublasLtMatrixLayout_t a, cublasLtMatrixLayout_t b,
                                              cublasLtMatrixLayout_t c, cublasLtMatrixLayout_t d,
                                              cublasLtMatmulPreference_t preference, int most,
                                              cublasLtMatmulHeuristicResult_t* results, int* count) {
  TANDEM_RECORD();
  checked(handle, __func__);
  const Product product(__func__, checked(description, __func__), checked(a, __func__), checked(b, __func__),
                        checked(c, __func__), checked(d, __func__));
  const cublasLtMatmulPreferenceOpaque& wanted = checked(preference, __func__);
  if (most < 1) return CUBLAS_STATUS_INVALID_VALUE;
  *count = 0;
  if (!product.is_supported()) return CUBLAS_STATUS_NOT_SUPPORTED;
  for (uint64_t i = 0; i < kNumAlgorithms && *count < most; ++i) {
    if (kWorkspaceBytes > wanted.workspace_bytes) continue;
    cublasLtMatmulHeuristicResult_t& result = results[(*count)++];
    result = {};
    result.algo.data[0] = i;
    result.algo.data[1] = product.hash();
    std::copy(std::begin(wanted.alignment), std::end(wanted.alignment), result.algo.data + 2);
    result.workspaceSize = kWorkspaceBytes;
    result.state = CUBLAS_STATUS_SUCCESS;
    result.wavesCount = 1;
  }
  return *count == 0 ? CUBLAS_STATUS_NOT_SUPPORTED : CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasLtMatmulAlgoCheck(cublasLtHandle_t handle, cublasLtMatmulDesc_t description,
                                       cublasLtMatrixLayout_t a, cublasLtMatrixLayout_t b, cublasLtMatrixLayout_t c,
                                       cublasLtMatrixLayout_t d, const cublasLtMatmulAlgo_t* algorithm,
                                       cublasLtMatmulHeuristicResult_t* result) {
  TANDEM_RECORD();
  checked(handle, __func__);
  const Product product(__func__, checked(description, __func__), checked(a, __func__), checked(b, __func__),
                        checked(c, __func__), checked(d, __func__));
  if (algorithm->data[0] >= kNumAlgorithms || algorithm->data[1] != product.hash()) return CUBLAS_STATUS_INVALID_VALUE;
  result->workspaceSize = kWorkspaceBytes;
  return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasLtMatmul(cublasLtHandle_t handle, cublasLtMatmulDesc_t description, const void* alpha,
                              const void* a_data, cublasLtMatrixLayout_t a, const void* b_data,
                              cublasLtMatrixLayout_t b, const void* beta, const void* c_data, cublasLtMatrixLayout_t c,
                              void* d_data, cublasLtMatrixLayout_t d, const cublasLtMatmulAlgo_t* algorithm,
                              void* workspace, size_t workspace_bytes, cudaStream_t stream) {
  const std::string call = "cublasLtMatmul, algorithm " + std::to_string(algorithm->data[0]);
  if (const int status = record_library_call(call); status != 0) return static_cast<cublasStatus_t>(status);
  const int device = checked(handle, __func__).device;
  const Product product(__func__, checked(description, __func__), checked(a, __func__), checked(b, __func__),
                        checked(c, __func__), checked(d, __func__));
  const auto fault = [](const std::string& text) { end_process("cublasLtMatmul: " + text); };
  if (device_of("cublasLtMatmul", stream) != device) fault("the stream belongs to another device than the handle");
  if (algorithm->data[0] >= kNumAlgorithms || algorithm->data[1] != product.hash()) {
    fault("the algorithm was chosen for another product");
  }
  check_host_memory("cublasLtMatmul: alpha", alpha);
  check_host_memory("cublasLtMatmul: beta", beta);
  const auto scale = [&](const void* p) { return load(product.description.scale, p, 0); };
  const Data data{scale(alpha), scale(beta), a_data, b_data, c_data, d_data};

  const size_t d_bytes = extent(product.d);
  check_device_memory("cublasLtMatmul: a", a_data, extent(product.a), algorithm->data[2], device);
  check_device_memory("cublasLtMatmul: b", b_data, extent(product.b), algorithm->data[3], device);
  check_device_memory("cublasLtMatmul: d", d_data, d_bytes, algorithm->data[5], device);
  check_disjoint("cublasLtMatmul: d", d_data, d_bytes, "a", a_data, extent(product.a));
  check_disjoint("cublasLtMatmul: d", d_data, d_bytes, "b", b_data, extent(product.b));
  if (data.beta != 0) {
    check_device_memory("cublasLtMatmul: c", c_data, extent(product.c), algorithm->data[4], device);
    if (c_data != d_data) {
      check_disjoint("cublasLtMatmul: d", d_data, d_bytes, "c", c_data, extent(product.c));
    } else if (product.c.leading != product.d.leading || product.c.batch_stride != product.d.batch_stride) {
      fault("c and d are the same memory with different layouts");
    }
  }
  if (product.has_bias()) {
    const auto bias_bytes = static_cast<size_t>(product.m * size_of(product.d.type));
    check_device_memory("cublasLtMatmul: bias", product.description.bias, bias_bytes,
                        static_cast<size_t>(size_of(product.d.type)), device);
    check_disjoint("cublasLtMatmul: d", d_data, d_bytes, "the bias", product.description.bias, bias_bytes);
  }
  size_t gelu_bytes = 0;
  if (product.stores_gelu_input()) {
    cublasLtMatrixLayoutOpaque layout = product.d;
    layout.leading = product.description.gelu_input_leading;
    gelu_bytes = extent(layout);
    check_device_memory("cublasLtMatmul: GELU's input", product.description.gelu_input, gelu_bytes, 16, device);
    check_disjoint("cublasLtMatmul: d", d_data, d_bytes, "GELU's input", product.description.gelu_input, gelu_bytes);
  }
  if (workspace_bytes < kWorkspaceBytes) fault("the workspace is smaller than the algorithm's");
  check_device_memory("cublasLtMatmul: workspace", workspace, workspace_bytes, kWorkspaceAlignment, device);
  check_disjoint("cublasLtMatmul: d", d_data, d_bytes, "the workspace", workspace, workspace_bytes);
  compute_on(stream, [product, data] { multiply(product, data); });
  return CUBLAS_STATUS_SUCCESS;
}
