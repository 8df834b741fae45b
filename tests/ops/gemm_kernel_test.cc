// The own GEMM kernel for GPUs, without cuBLASLt.
#include <tandem/ops/matmul/cublaslt_matmul.h>
#include <tandem/ops/matmul/matmul_kernels.h>
#include <tandem/tensor/primitives.h>
#include <tandem/tests/support/op_case.h>

namespace tandem::testing { namespace {

constexpr int64_t kM = 65, kN = 67, kK = 33;  // a tile plus 1, a tile plus 3, two steps of depth plus 1
constexpr int64_t kBatches = 2;
const Device kGpu("cuda:0");

/// Integers, so that sums are exact.
Dense whole_numbers(const Shape& shape, DType dtype, uint64_t seed) {
  Dense result = random_dense(shape, seed, dtype == kUInt8 ? 0 : -9, 10);
  for (double& x : result.values) x = std::floor(x);
  return result;
}

/// kBatches matrices with padding between rows.
struct Matrices {
  int64_t leading;
  bool transposed;
  std::vector<int64_t> offsets;
  Dense values;
  Tensor on_gpu;

  Matrices(int64_t rows, int64_t columns, bool transpose, DType dtype, uint64_t seed)
      : leading((transpose ? rows : columns) + 3), transposed(transpose) {
    const int64_t lines = transpose ? columns : rows;
    for (int64_t i = 0; i < kBatches; ++i) offsets.push_back(i * (lines * leading + 5));
    values = whole_numbers({kBatches * (lines * leading + 5)}, dtype, seed);
    on_gpu = make_tensor(values, dtype, Layout::kContiguous, kGpu);
  }

  double at(int64_t batch, int64_t i, int64_t j) const {
    return values[offsets[static_cast<size_t>(batch)] + (transposed ? j * leading + i : i * leading + j)];
  }
  MatrixOperand operand() const { return {on_gpu.data_ptr(), leading, transposed}; }
};

void check_gemm(DType dtype, bool a_transposed, bool b_transposed, double alpha, double beta, bool epilogue) {
  SCOPED_TRACE(
      str(dtype, a_transposed ? " aT" : "", b_transposed ? " bT" : "", " beta ", beta, epilogue ? " epilogue" : ""));
  const Matrices a(kM, kK, a_transposed, dtype, 1), b(kK, kN, b_transposed, dtype, 2);
  const Dense old_values = whole_numbers({kBatches, kM, kN}, dtype, 3), bias_values = whole_numbers({kN}, dtype, 4);
  const Tensor bias = make_tensor(bias_values, dtype, Layout::kContiguous, kGpu);
  const Tensor out = make_tensor(old_values, dtype, Layout::kContiguous, kGpu);
  const KernelContext context = kernel_context(kGpu);
  const GemmEpilogue end{epilogue ? bias.data_ptr() : nullptr, epilogue};
  ASSERT_FALSE(cuda::cublaslt_matmul(context, dtype, kBatches, kM, kN, kK, alpha, a.operand(), a.offsets.data(),
                                     b.operand(), b.offsets.data(), beta, end, nullptr, out.data_ptr()));
  cuda::gemm(context, dtype, kBatches, kM, kN, kK, alpha, a.operand(), a.offsets.data(), b.operand(), b.offsets.data(),
             beta, end, nullptr, out.data_ptr());

  Dense expected = dense_zeros({kBatches, kM, kN});
  for (int64_t i = 0; i < expected.numel(); ++i) {
    const int64_t batch = i / (kM * kN), row = i / kN % kM, column = i % kN;
    double sum = 0;
    for (int64_t l = 0; l < kK; ++l) sum += a.at(batch, row, l) * b.at(batch, l, column);
    const double value = alpha * sum + beta * old_values[i] + (epilogue ? bias_values[column] : 0.0);
    expected[i] = epilogue ? std::max(0.0, value) : value;
    const double low = dtype == kInt8 ? -128 : 0;  // overflow wraps around
    if (size_of(dtype) == 1) expected[i] -= 256 * std::floor((expected[i] - low) / 256);
  }
  EXPECT_TRUE(close(out, expected, size_of(dtype) == 2 ? epsilon(dtype) : 0));
}

TEST(GemmKernel, MatchesReferenceForEveryDTypeAndTransposition) {
  for (const DType dtype : {kFloat64, kFloat32, kFloat16, kBFloat16, kInt64, kInt32, kInt16, kInt8, kUInt8}) {
    for (const int transposed : {0, 1, 2, 3}) {
      check_gemm(dtype, transposed & 1, transposed & 2, 1, 0, false);
      if (is_floating_point(dtype)) {
        check_gemm(dtype, transposed & 1, transposed & 2, -1.25, 0.5, true);
      } else {
        check_gemm(dtype, transposed & 1, transposed & 2, -3, 2, false);
      }
    }
  }
}

}}  // namespace tandem::testing
