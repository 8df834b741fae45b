// float32 products of a training step: what each algorithm reaches on one thread.
//
//     bazel run -c opt //benchmarks/ops:products
#include <algorithm>
#include <chrono>
#include <cstdint>
#include <cstdio>

#include <tandem/base/parallel_for.h>
#include <tandem/ops/matmul_kernels.h>
#include <tandem/ops/random.h>
#include <tandem/tensor/factories.h>

namespace {

using namespace tandem;

struct Product {
  const char* name;
  int64_t m, n, k;
  bool a_transposed, b_transposed;
};

constexpr Product kProducts[] = {
    {"x W^T", 128, 1024, 784, false, true},  {"x W^T", 128, 1024, 1024, false, true},
    {"x W^T", 128, 10, 1024, false, true},   {"x W^T", 1024, 1536, 384, false, true},
    {"dy W", 128, 1024, 1024, false, false}, {"dy W", 128, 1024, 10, false, false},
    {"dy^T x", 1024, 784, 128, true, false}, {"dy^T x", 1024, 1024, 128, true, false},
    {"dy^T x", 10, 1024, 128, true, false},  {"square", 1000, 1000, 1000, false, false},
};

constexpr ProductAlgorithm kAlgorithms[] = {ProductAlgorithm::kAvx2, ProductAlgorithm::kAvx2Swapped,
                                            ProductAlgorithm::kAvx512, ProductAlgorithm::kAvx512Swapped};

/// 10^9 operations per second, the best of 20 runs.
double rate(const Product& p, ProductAlgorithm algorithm) {
  const Tensor a = rand({p.m, p.k}), b = rand({p.k, p.n}), out = empty({p.m, p.n});
  const MatrixOperand left{a.data_ptr(), p.a_transposed ? p.m : p.k, p.a_transposed};
  const MatrixOperand right{b.data_ptr(), p.b_transposed ? p.k : p.n, p.b_transposed};
  const Tensor scratch =
      empty({cpu::product_workspace_bytes(kFloat32, algorithm, p.m, p.n, p.k, left, right)}, {kUInt8});
  double best = 1e30;
  for (int run = 0; run < 20; ++run) {
    const auto start = std::chrono::steady_clock::now();
    cpu::product({}, kFloat32, algorithm, p.m, p.n, p.k, 1, left, right, 0, {}, scratch.data_ptr(), out.data_ptr());
    best = std::min(best, std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count());
  }
  return 2e-9 * static_cast<double>(p.m * p.n * p.k) / best;
}

}  // namespace

int main() {
  set_num_threads(1);
  std::printf("%-8s %5s %5s %5s", "", "m", "n", "k");
  for (const ProductAlgorithm algorithm : kAlgorithms) std::printf("  %14s", to_string(algorithm));
  std::printf("  rule\n");
  for (const Product& p : kProducts) {
    std::printf("%-8s %5ld %5ld %5ld", p.name, static_cast<long>(p.m), static_cast<long>(p.n), static_cast<long>(p.k));
    for (const ProductAlgorithm algorithm : kAlgorithms) {
      is_available(algorithm) ? std::printf("  %14.1f", rate(p, algorithm)) : std::printf("  %14s", "-");
    }
    std::printf("  %s\n", to_string(product_algorithm(p.m, p.n, p.k, p.a_transposed, p.b_transposed)));
  }
}
