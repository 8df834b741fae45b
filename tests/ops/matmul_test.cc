#include <optional>

#include <tandem/base/parallel_for.h>
#include <tandem/ops/matmul/matmul_kernels.h>
#include <tandem/tests/support/op_case.h>
#include <tandem/tests/support/ops.h>

namespace tandem::testing { namespace {

TEST(Matmul, EmptyInnerDimensionGivesZeros) {
  EXPECT_TRUE(close(matmul(empty({3, 0}), empty({0, 2})), dense_zeros({3, 2}), 0));
  EXPECT_EQ(matmul(empty({0, 4}), empty({4, 2})).shape(), Shape({0, 2}));
  EXPECT_EQ(matmul(empty({0, 3, 4}), empty({0, 4, 2})).shape(), Shape({0, 3, 2}));
  EXPECT_EQ(matmul(empty({5, 0, 4}), empty({4, 2})).shape(), Shape({5, 0, 2}));
  Tensor a = empty({3, 0}).requires_grad_(), b = empty({0, 2}).requires_grad_();
  matmul(a, b).backward(ones({3, 2}));
  EXPECT_EQ(a.grad().shape(), Shape({3, 0}));
}

TEST(Matmul, IntegerOverflowWrapsAround) {
  const Tensor a = from_vector<uint8_t>({200, 100, 3, 4}, {2, 2}), b = from_vector<uint8_t>({2, 0, 1, 5}, {2, 2});
  EXPECT_EQ(matmul(a, b).to_vector<int64_t>(), (std::vector<int64_t>{500 % 256, 500 % 256, 10, 20}));
  const Tensor small = a.to(kInt8);  // -56, 100, 3, 4
  EXPECT_EQ(matmul(small, b.to(kInt8)).to_vector<int64_t>(), (std::vector<int64_t>{-12, 500 % 256 - 256, 10, 20}));
  EXPECT_EQ(addmm(small, small, small, 300, 1).to_vector<int64_t>(), (std::vector<int64_t>{-52, -32, -24, -20}));
  const Tensor c = tensor({1, 2, 3}).view({1, 3}), d = tensor({4, 5, 6}).view({3, 1});
  EXPECT_EQ(matmul(c, d).to_vector<int64_t>(), (std::vector<int64_t>{32}));
  EXPECT_EQ(matmul(d, c).dtype(), kInt64);
}

TEST(Matmul, MemberFunctionMatchesFreeFunction) {
  const Tensor a = random_tensor({3, 4}, 1), b = random_tensor({4, 2}, 2);
  EXPECT_TRUE(primitives::bytes_equal(a.matmul(b), matmul(a, b)));
}

TEST(Matmul, InvalidArgumentsAreNamedInErrors) {
  EXPECT_ERROR(ShapeError, matmul(empty({2, 3}), empty({4, 5})),
               "matmul: inner sizes 3 and 4 differ\n"
               "  input  cpu  float32 [2, 3]\n"
               "  other  cpu  float32 [4, 5]");
  EXPECT_ERROR(ShapeError, matmul(empty({2, 2, 3}), empty({3, 3, 5})),
               "matmul: batch sizes 2 and 3 do not broadcast\n"
               "  input  cpu  float32 [2, 2, 3]\n"
               "  other  cpu  float32 [3, 3, 5]");
  EXPECT_ERROR(ShapeError, matmul(empty({}), empty({3, 5})),
               "matmul: input and other must have at least one dimension\n"
               "  input  cpu  float32 []\n"
               "  other  cpu  float32 [3, 5]");
  EXPECT_ERROR(DTypeError, matmul(empty({2, 3}, {kBool}), empty({3, 5}, {kBool})),
               "matmul: bool matrices cannot be multiplied\n"
               "  input  cpu  bool [2, 3]\n"
               "  other  cpu  bool [3, 5]");
  EXPECT_NE(error_text<DTypeError>([] {
              matmul(empty({2, 3}), empty({3, 5}, {kFloat64}));
            }).find("matmul: "),
            std::string::npos);
}

TEST(Bmm, EmptySizesGiveEmptyOrZeroResults) {
  EXPECT_EQ(bmm(empty({0, 3, 4}), empty({0, 4, 2})).shape(), Shape({0, 3, 2}));
  EXPECT_TRUE(close(bmm(empty({2, 3, 0}), empty({2, 0, 2})), dense_zeros({2, 3, 2}), 0));
}

TEST(Bmm, InvalidArgumentsAreNamedInErrors) {
  EXPECT_ERROR(ShapeError, bmm(empty({3, 4}), empty({2, 4, 5})),
               "bmm: input and mat2 must have 3 dimensions\n"
               "  input  cpu  float32 [3, 4]\n"
               "  mat2   cpu  float32 [2, 4, 5]");
  EXPECT_ERROR(ShapeError, bmm(empty({1, 3, 4}), empty({2, 4, 5})),
               "bmm: batch sizes 1 and 2 differ\n"
               "  input  cpu  float32 [1, 3, 4]\n"
               "  mat2   cpu  float32 [2, 4, 5]");
  EXPECT_ERROR(ShapeError, bmm(empty({2, 3, 4}), empty({2, 5, 4})),
               "bmm: inner sizes 4 and 5 differ\n"
               "  input  cpu  float32 [2, 3, 4]\n"
               "  mat2   cpu  float32 [2, 5, 4]");
  EXPECT_ERROR(DTypeError, bmm(empty({2, 3, 4}), empty({2, 4, 5}, {kFloat64})),
               "bmm: operands have different dtypes\n"
               "  input  cpu  float32 [2, 3, 4]\n"
               "  mat2   cpu  float64 [2, 4, 5]  <- differs");
}

TEST(Addmm, BetaZeroDoesNotReadInput) {
  const Tensor input = full({2, 2}, std::numeric_limits<double>::quiet_NaN());
  const Tensor a = random_tensor({2, 3}, 1), b = random_tensor({3, 2}, 2);
  EXPECT_TRUE(primitives::bytes_equal(addmm(input, a, b, 0, 1), matmul(a, b)));
}

TEST(Addmm, IntegerOperandsGiveExactResults) {
  const Tensor input = tensor({1, 2}), a = tensor({1, 2, 3, 4}).view({2, 2}), b = tensor({1, 0, 0, 1}).view({2, 2});
  EXPECT_EQ(addmm(input, a, b, 2, 3).to_vector<int64_t>(), (std::vector<int64_t>{5, 10, 11, 16}));
}

TEST(Addmm, OperandsOnDifferentDevicesAreRejected) {
  set_cpu_device_count(2);
  const Device other("cpu:1");
  const Tensor input = empty({128}), mat1 = empty({64, 256}, {kFloat32, other}),
               mat2 = empty({256, 128}, {kFloat32, other});
  EXPECT_ERROR(DeviceError, addmm(input, mat1, mat2),
               "addmm: operands are on different devices\n"
               "  input  cpu    float32 [128]       <- differs\n"
               "  mat1   cpu:1  float32 [64, 256]\n"
               "  mat2   cpu:1  float32 [256, 128]\n"
               "  move it with input.to(cpu:1), or move the module with model.to(cpu:1)");
  EXPECT_EQ(addmm(input.to(other), mat1, mat2).device(), other);
}

TEST(Addmm, ShapesOfAddmvAreNamedInErrors) {
  EXPECT_EQ(addmv(tensor({1, 2}), tensor({{1, 2}, {3, 4}}), tensor({5, 6}), 2, 3).to_vector<int64_t>(),
            (std::vector<int64_t>{53, 121}));
  EXPECT_ERROR(ShapeError, addmv(empty({4}), empty({2, 3}), empty({3})),
               "addmv: input [n], mat [n, m] and vec [m] are needed\n"
               "  input  cpu  float32 [4]\n"
               "  mat    cpu  float32 [2, 3]\n"
               "  vec    cpu  float32 [3]");
}

TEST(Addmm, InvalidArgumentsAreNamedInErrors) {
  EXPECT_ERROR(ShapeError, addmm(empty({4}), empty({2, 3}), empty({3, 5})),
               "addmm: input does not broadcast to [2, 5]\n"
               "  input  cpu  float32 [4]\n"
               "  mat1   cpu  float32 [2, 3]\n"
               "  mat2   cpu  float32 [3, 5]");
  EXPECT_ERROR(ShapeError, addmm(empty({5}), empty({2, 3}), empty({4, 5})),
               "addmm: inner sizes 3 and 4 differ\n"
               "  input  cpu  float32 [5]\n"
               "  mat1   cpu  float32 [2, 3]\n"
               "  mat2   cpu  float32 [4, 5]");
  EXPECT_ERROR(ShapeError, addmm(empty({5}), empty({2, 2, 3}), empty({3, 5})),
               "addmm: mat1 and mat2 must have 2 dimensions\n"
               "  input  cpu  float32 [5]\n"
               "  mat1   cpu  float32 [2, 2, 3]\n"
               "  mat2   cpu  float32 [3, 5]");
}

// --- algorithms of float32 and bfloat16 ------------------------------------------------------------------------------

constexpr GemmAlgorithm kAlgorithms[] = {
    GemmAlgorithm::kDirect,        GemmAlgorithm::kAvx2,       GemmAlgorithm::kAvx2Swapped,      GemmAlgorithm::kAvx512,
    GemmAlgorithm::kAvx512Swapped, GemmAlgorithm::kAvx512Bf16, GemmAlgorithm::kAvx512Bf16Swapped};

/// Compares one algorithm with float64 on one product; the matrices have padding of NaN around them.
void check_algorithm(GemmAlgorithm algorithm, int64_t m, int64_t n, int64_t k, bool a_transposed, bool b_transposed,
                     bool is_bf16) {
  const DType dtype = is_bf16 ? kBFloat16 : kFloat32;
  SCOPED_TRACE(
      str(to_string(algorithm), " m=", m, " n=", n, " k=", k, a_transposed ? " aT" : "", b_transposed ? " bT" : ""));
  const auto make_matrix = [&](int64_t rows, int64_t columns, int64_t padding, uint64_t seed) {
    Dense values = random_dense({rows, columns + padding}, seed);
    for (int64_t i = 0; i < values.numel(); ++i) {
      if (i % (columns + padding) >= columns) values[i] = NAN;
    }
    return make_tensor(values, dtype);
  };
  const int64_t a_leading = (a_transposed ? m : k) + 3, b_leading = (b_transposed ? k : n) + 5;
  const Tensor a_values = make_matrix(a_transposed ? k : m, a_leading - 3, 3, 1),
               b_values = make_matrix(b_transposed ? n : k, b_leading - 5, 5, 2);
  const Dense a = dense(a_values), b = dense(b_values), bias = random_dense({n}, 4);
  const Tensor bias_values = make_tensor(bias, kFloat32);
  const MatrixOperand left{a_values.data_ptr(), a_leading, a_transposed},
      right{b_values.data_ptr(), b_leading, b_transposed};
  const int64_t bytes = cpu::gemm_workspace_bytes(dtype, algorithm, m, n, k, left, right);
  const Tensor scratch = empty({bytes + 8}, {kUInt8});
  primitives::fill(scratch, 0xff);  // NaN of both dtypes
  const double alpha = -1.25;
  Dense sums = dense_zeros({m, n});
  for (int64_t i = 0; i < m; ++i) {
    for (int64_t j = 0; j < n; ++j) {
      for (int64_t l = 0; l < k; ++l) {
        sums[i * n + j] += a[a_transposed ? l * a_leading + i : i * a_leading + l] *
                           b[b_transposed ? j * b_leading + l : l * b_leading + j];
      }
    }
  }
  for (const double beta : {0.0, 1.0, 0.5}) {
    for (const int variant : {0, 1, 2, 3}) {
      const bool epilogue = variant & 1, float32_result = variant & 2;
      if (float32_result ? dtype == kFloat32 : is_bf16 && k > 8192) continue;
      const DType result = float32_result ? kFloat32 : dtype;
      const Tensor out = make_tensor(random_dense({m, n}, 3), result);
      const Dense old = dense(out);
      cpu::gemm(Device(), dtype, algorithm, m, n, k, alpha, left, right, beta,
                {epilogue ? bias_values.data_ptr() : nullptr, epilogue, float32_result}, scratch.data_ptr(),
                out.data_ptr());
      Dense expected = dense_zeros({m, n});
      for (int64_t i = 0; i < m * n; ++i) {
        const double value = alpha * sums[i] + beta * old[i] + (epilogue ? bias[i % n] : 0.0);
        expected[i] = epilogue ? std::max(0.0, value) : value;
      }
      EXPECT_TRUE(close(out, expected, epsilon(result) + epsilon(kFloat32) * static_cast<double>(7 + k)))
          << beta << epilogue << float32_result;
    }
  }
  for (int64_t i = 0; i < 8; ++i) EXPECT_EQ(scratch.data<uint8_t>()[bytes + i], 0xff) << "wrote beyond the workspace";
}

TEST(GemmAlgorithms, EachAlgorithmMatchesFloat64) {
  for (const GemmAlgorithm algorithm : kAlgorithms) {
    if (!is_available(algorithm)) continue;
    const bool is_bf16 = algorithm >= GemmAlgorithm::kAvx512Bf16;
    for (const int64_t m : {1, 5, 7, 49}) {
      for (const int64_t n : {1, 3, 17, 33, 65}) {
        for (const int64_t k : {1, 7, 33, 34}) {
          for (const int transposed : {0, 1, 2, 3})
            check_algorithm(algorithm, m, n, k, transposed & 1, transposed & 2, is_bf16);
        }
      }
    }
    check_algorithm(algorithm, 13, 70, 1025, false, true, is_bf16);  // two blocks of k
    check_algorithm(algorithm, 13, 70, 2100, true, false, is_bf16);  // three
    if (is_bf16) {
      check_algorithm(algorithm, 7, 70, 8191, true, true, is_bf16);
      for (const int transposed : {0, 1, 2, 3})  // two blocks, which have float32 results only
        check_algorithm(algorithm, 3, 65, 8193, transposed & 1, transposed & 2, is_bf16);
    }
    check_algorithm(algorithm, 150, 300, 200, false, true, is_bf16);  // several pieces
    check_algorithm(algorithm, 150, 300, 200, true, false, is_bf16);
    check_algorithm(algorithm, 150, 300, 200, false, false, is_bf16);
  }
}

TEST(GemmAlgorithms, VectorAlgorithmMatchesFloat64) {
  for (const bool is_bf16 : {false, true}) {
    for (const int64_t n : {1, 3, 4, 66}) {
      for (const int64_t k : {1, 7, 8, 33}) check_algorithm(GemmAlgorithm::kVector, 1, n, k, false, true, is_bf16);
    }
    check_algorithm(GemmAlgorithm::kVector, 1, 600, 500, false, true, is_bf16);  // several pieces
  }
}

TEST(GemmAlgorithms, ShapeDeterminesTheAlgorithm) {
  const bool avx512 = is_available(GemmAlgorithm::kAvx512);
  const auto tiles = avx512 ? GemmAlgorithm::kAvx512 : GemmAlgorithm::kAvx2;
  const auto swapped = avx512 ? GemmAlgorithm::kAvx512Swapped : GemmAlgorithm::kAvx2Swapped;
  EXPECT_EQ(gemm_algorithm(8, 8, 8, false, false), GemmAlgorithm::kDirect);
  EXPECT_EQ(gemm_algorithm(128, 1024, 0, false, false), GemmAlgorithm::kDirect);
  EXPECT_EQ(gemm_algorithm(1, 1024, 784, false, true), GemmAlgorithm::kVector);
  EXPECT_EQ(gemm_algorithm(1, 1024, 784, false, false), tiles);
  EXPECT_EQ(gemm_algorithm(128, 1024, 784, false, true), swapped);
  EXPECT_EQ(gemm_algorithm(512, 1024, 784, false, true), swapped);
  EXPECT_EQ(gemm_algorithm(513, 1024, 784, false, true), tiles);
  EXPECT_EQ(gemm_algorithm(128, 10, 1024, false, true), GemmAlgorithm::kAvx2);
  EXPECT_EQ(gemm_algorithm(128, 17, 1024, false, true), tiles);
  EXPECT_EQ(gemm_algorithm(16, 1024, 784, false, true), GemmAlgorithm::kAvx2Swapped);
  EXPECT_EQ(gemm_algorithm(128, 1024, 784, false, false), tiles);
  EXPECT_EQ(gemm_algorithm(1024, 784, 128, true, false), tiles);
  EXPECT_EQ(gemm_algorithm(512, 128, 2048, true, false), swapped);
  EXPECT_EQ(gemm_algorithm(511, 128, 2048, true, false), tiles);
  EXPECT_EQ(gemm_algorithm(512, 32, 2048, true, false), tiles);
  EXPECT_EQ(gemm_algorithm(128, 1024, 784, true, true), tiles);
  const auto of_bf16 = [](int64_t m, int64_t n, int64_t k) { return gemm_algorithm(m, n, k, false, true, kBFloat16); };
  EXPECT_EQ(of_bf16(24, 24, 24), GemmAlgorithm::kDirect);
  EXPECT_EQ(of_bf16(1, 1024, 784), GemmAlgorithm::kVector);
  EXPECT_EQ(of_bf16(512, 1024, 784), GemmAlgorithm::kAvx512Bf16Swapped);
  EXPECT_EQ(of_bf16(513, 1024, 784), GemmAlgorithm::kAvx512Bf16);
}

TEST(GemmAlgorithms, HalfTypesHaveKernelsOfLargeProductsOnly) {
  const bool has = is_available(GemmAlgorithm::kAvx512Bf16);
  EXPECT_FALSE(has_half_gemm(kBFloat16, 24, 24, 24, true));
  EXPECT_EQ(has_half_gemm(kBFloat16, 25, 24, 24, true), has);
  EXPECT_EQ(has_half_gemm(kBFloat16, 25, 24, 8192, true), has);
  EXPECT_FALSE(has_half_gemm(kBFloat16, 25, 24, 8193, true));
  EXPECT_EQ(has_half_gemm(kBFloat16, 25, 24, 8193, false), has);
  EXPECT_FALSE(has_half_gemm(kFloat16, 25, 24, 24, true));
  EXPECT_FALSE(has_half_gemm(kFloat32, 25, 24, 24, true));
}

// Products of all kinds, and odd sizes and strides.
TEST(GemmAlgorithms, BFloat16ResultsAreRoundedOnce) {
  const auto part = [](const Shape& shape, uint64_t seed) {  // a view that begins at an odd address
    const Tensor whole = random_tensor({shape[0] + 1, shape[1] + 4}, seed, kBFloat16);
    return whole.slice(0, 1, shape[0] + 1).slice(1, 3, shape[1] + 3);
  };
  for (const int64_t k : {41, 64, 8195}) {
    SCOPED_TRACE(k);
    const Tensor a = part({37, k}, 1), b = part({k, 39}, 2), old = random_tensor({37, 39}, 3, kBFloat16);
    const auto wide = [](const Tensor& x) { return x.to(kFloat64); };
    const double tolerance = epsilon(kBFloat16) / 2 + epsilon(kFloat32) * static_cast<double>(k);
    EXPECT_TRUE(close(matmul(a, b), dense(matmul(wide(a), wide(b))), tolerance));
    EXPECT_TRUE(close(addmm(old, a, b, 2, -1.5), dense(addmm(wide(old), wide(a), wide(b), 2, -1.5)), tolerance));
    const Tensor batch = stack({a, a + a}), weight = part({35, k}, 4), bias = random_tensor({35}, 5, kBFloat16);
    EXPECT_TRUE(close(matmul(batch, b.t().clone().t()), dense(matmul(wide(batch), wide(b))), tolerance));
    EXPECT_TRUE(close(bmm(batch, stack({b, b})), dense(matmul(wide(batch), wide(b))), tolerance));
    EXPECT_TRUE(close(linear_relu(a, weight, bias), dense(linear_relu(wide(a), wide(weight), wide(bias))), tolerance));
  }
}

TEST(GemmAlgorithms, ThreadCountDoesNotChangeBits) {
  const Tensor x = random_tensor({130, 257}, 1), weight = random_tensor({300, 257}, 2);
  Tensor w = weight.clone().requires_grad_(), input = x.clone().requires_grad_();
  const Tensor cotangent = random_tensor({130, 300}, 3);
  auto run = [&](int threads, bool is_bf16) {
    set_num_threads(threads);
    w.zero_grad();
    input.zero_grad();
    std::optional<Autocast> autocast;
    if (is_bf16) autocast.emplace(kBFloat16);
    const Tensor y = linear_relu(input, w);
    autocast.reset();
    y.backward(cotangent.to(y.dtype()));
    return std::vector<Tensor>{y.detach().clone(), w.grad().clone(), input.grad().clone()};
  };
  for (const bool is_bf16 : {false, true}) {
    const auto one = run(1, is_bf16), two = run(2, is_bf16);
    for (size_t i = 0; i < one.size(); ++i) EXPECT_TRUE(primitives::bytes_equal(one[i], two[i])) << i << is_bf16;
  }
  set_num_threads(0);
}
TEST(Products, ShapesAreNamedInErrors) {
  EXPECT_ERROR(ShapeError, mm(zeros({3, 4}), zeros({5, 2})),
               "mm: input must be [m, k] and mat2 [k, n]\n"
               "  input  cpu  float32 [3, 4]\n"
               "  mat2   cpu  float32 [5, 2]");
  EXPECT_ERROR(ShapeError, mv(zeros({3, 4}), zeros({4, 1})),
               "mv: input must be [m, k] and vec [k]\n"
               "  input  cpu  float32 [3, 4]\n"
               "  vec    cpu  float32 [4, 1]");
  EXPECT_ERROR(ShapeError, outer(zeros({3, 4}), zeros({4})),
               "outer: input and vec2 must have 1 dimension\n"
               "  input  cpu  float32 [3, 4]\n"
               "  vec2   cpu  float32 [4]");
  EXPECT_ERROR(ShapeError, baddbmm(zeros({3}), zeros({2, 3, 4}), zeros({2, 4, 5})),
               "baddbmm: input does not broadcast to [2, 3, 5]\n"
               "  input   cpu  float32 [3]\n"
               "  batch1  cpu  float32 [2, 3, 4]\n"
               "  batch2  cpu  float32 [2, 4, 5]");
}

TEST(Bilinear, InvalidArgumentsAreNamedInErrors) {
  const Tensor a = ones({3, 4}), b = ones({3, 5}), weight = ones({2, 4, 5});
  EXPECT_ERROR(ShapeError, bilinear(a, b, ones({4, 5})),
               "bilinear: weight must have 3 dimensions, [out, in1, in2]\n"
               "  input1  cpu  float32 [3, 4]\n"
               "  input2  cpu  float32 [3, 5]\n"
               "  weight  cpu  float32 [4, 5]");
  EXPECT_ERROR(ShapeError, bilinear(b, b, weight),
               "bilinear: the last dimension of input1 must have size 4\n"
               "  input1  cpu  float32 [3, 5]\n"
               "  input2  cpu  float32 [3, 5]\n"
               "  weight  cpu  float32 [2, 4, 5]");
  EXPECT_ERROR(ShapeError, bilinear(a, a, weight),
               "bilinear: the last dimension of input2 must have size 5\n"
               "  input1  cpu  float32 [3, 4]\n"
               "  input2  cpu  float32 [3, 4]\n"
               "  weight  cpu  float32 [2, 4, 5]");
  EXPECT_ERROR(ShapeError, bilinear(a, ones({5}), weight),
               "bilinear: input1 and input2 must have equal sizes but for the last\n"
               "  input1  cpu  float32 [3, 4]\n"
               "  input2  cpu  float32 [5]\n"
               "  weight  cpu  float32 [2, 4, 5]");
  EXPECT_ERROR(ShapeError, bilinear(a, b, weight, ones({3})),
               "bilinear: bias must have shape [2]\n"
               "  input1  cpu  float32 [3, 4]\n"
               "  input2  cpu  float32 [3, 5]\n"
               "  weight  cpu  float32 [2, 4, 5]\n"
               "  bias    cpu  float32 [3]");
}

TEST(Baddbmm, InputIsNotReadIfBetaIsZero) {
  const Tensor out = baddbmm(full({1}, NAN), ones({2, 1, 3}), ones({2, 3, 1}), 0, 2);
  EXPECT_EQ(out.to_vector<float>(), (std::vector<float>{6, 6}));
}

TEST(Einsum, InvalidEquationsAreNamedInErrors) {
  const Tensor a = zeros({3, 4}), b = zeros({5, 2});
  const std::string operands = "\n  tensors[0]  cpu  float32 [3, 4]\n  tensors[1]  cpu  float32 [5, 2]";
  const auto text = [&](const std::string& equation) { return error_text<Error>([&] { einsum(equation, {a, b}); }); };
  EXPECT_EQ(text("ij,jk->ik"), "einsum: 'j' has size 5 in tensors[1], before it 4, in \"ij,jk->ik\"" + operands);
  EXPECT_EQ(text("ij,ii"), "einsum: 'i' has sizes 5 and 2 in tensors[1] in \"ij,ii\"" + operands);
  EXPECT_EQ(text("ij,kl->ijj"), "einsum: the result has 'j' twice in \"ij,kl->ijj\"" + operands);
  EXPECT_EQ(text("ij,kl->m"), "einsum: the result has 'm', which no tensor has, in \"ij,kl->m\"" + operands);
  EXPECT_EQ(text("ij,klm"), "einsum: tensors[1] has 2 dimensions, but 3 labels in \"ij,klm\"" + operands);
  EXPECT_EQ(text("ij"), "einsum: 2 tensors for another number of terms in \"ij\"" + operands);
  EXPECT_EQ(text("ij,kl,m"), "einsum: 2 tensors for another number of terms in \"ij,kl,m\"" + operands);
  EXPECT_EQ(text("i.j,kl"), "einsum: unexpected '.': a term has letters and at most one ..., in \"i.j,kl\"" + operands);
  EXPECT_ERROR(ValueError, einsum("", {}), "einsum: the list of tensors is empty");
}

TEST(Einsum, IntegersKeepTheirDType) {
  const Tensor a = tensor({1, 2, 3}).to(kInt32);
  EXPECT_EQ(einsum("i->", {a}).dtype(), kInt32);
  EXPECT_EQ(einsum("i,i", {a, a}).item<int64_t>(), 14);
}

}}  // namespace tandem::testing
