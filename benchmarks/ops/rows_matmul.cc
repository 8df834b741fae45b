#include <memory>

#include <tandem/benchmarks/ops/rows.h>
#include <tandem/ops/matmul/matmul_kernels.h>

using namespace tandem;

namespace {

// x W^T, dy W and dy^T x of the training cases' layers.
struct Product {
  int64_t m, n, k;
  bool a_transposed, b_transposed;
};
constexpr Product kProducts[] = {
    {128, 1024, 784, false, true},  {128, 1024, 1024, false, true},   {128, 10, 1024, false, true},
    {1024, 1536, 384, false, true}, {128, 1024, 1024, false, false},  {128, 1024, 10, false, false},
    {1024, 784, 128, true, false},  {1024, 1024, 128, true, false},   {10, 1024, 128, true, false},
    {2048, 512, 128, false, true},  {1000, 1000, 1000, false, false},
};
constexpr ProductAlgorithm kAlgorithms[] = {ProductAlgorithm::kAvx2, ProductAlgorithm::kAvx2Swapped,
                                            ProductAlgorithm::kAvx512, ProductAlgorithm::kAvx512Swapped};

double flops(const Product& p) { return 2.0 * static_cast<double>(p.m * p.n * p.k); }

TensorList operands(const Product& p) {
  return {p.a_transposed ? transpose(randn({p.k, p.m}), 0, 1) : randn({p.m, p.k}),
          p.b_transposed ? transpose(randn({p.n, p.k}), 0, 1) : randn({p.k, p.n})};
}

/// The kernel alone, with one algorithm.
Tensor product(const Product& p, ProductAlgorithm algorithm, const TensorList& in) {
  const MatrixOperand a{in[0].data_ptr(), p.a_transposed ? p.m : p.k, p.a_transposed};
  const MatrixOperand b{in[1].data_ptr(), p.b_transposed ? p.k : p.n, p.b_transposed};
  const Tensor scratch = empty({cpu::product_workspace_bytes(kFloat32, algorithm, p.m, p.n, p.k, a, b)}, {kUInt8});
  Tensor out = empty({p.m, p.n});
  cpu::product(Device(), kFloat32, algorithm, p.m, p.n, p.k, 1, a, b, 0, {}, scratch.data_ptr(), out.data_ptr());
  return out;
}

}  // namespace

TANDEM_BENCHMARK_ROWS(matmul) {
  for (const Product& p : kProducts) {
    const auto rule = product_algorithm(p.m, p.n, p.k, p.a_transposed, p.b_transposed);
    rows.add(
        std::string("matmul ") + to_string(rule), [&p] { return operands(p); },
        [](const TensorList& in) { return matmul(in[0], in[1]); }, {.flops = flops(p)});
    for (const ProductAlgorithm algorithm : kAlgorithms) {
      if (!is_available(algorithm)) continue;
      rows.add(
          std::string("product ") + to_string(algorithm), [&p] { return operands(p); },
          [&p, algorithm](const TensorList& in) { return product(p, algorithm, in); },
          {.flops = flops(p), .backward = false});
    }
  }
  rows.add(
      "matmul batched",
      [] {
        return TensorList{randn({64, 128, 32}), randn({64, 32, 128})};
      },
      [](const TensorList& in) { return matmul(in[0], in[1]); }, {.flops = 2.0 * 64 * 128 * 128 * 32});
  rows.add(
      "bmm",
      [] {
        return TensorList{randn({24, 256, 64}), randn({24, 64, 256})};
      },
      [](const TensorList& in) { return bmm(in[0], in[1]); }, {.flops = 2.0 * 24 * 256 * 256 * 64});
  const auto layer = [] { return TensorList{randn({2048, 128}), randn({512, 128}), randn({512})}; };
  const double layer_flops = 2.0 * 2048 * 512 * 128;
  rows.add("linear", layer, [](const TensorList& in) { return linear(in[0], in[1], in[2]); }, {.flops = layer_flops});
  rows.add("addmm", layer, [](const TensorList& in) { return addmm(in[2], in[0], in[1].t(), 0.5, 2); },
           {.flops = layer_flops});
  rows.add("linear_relu", layer, [](const TensorList& in) { return linear_relu(in[0], in[1], in[2]); },
           {.flops = layer_flops});
}
