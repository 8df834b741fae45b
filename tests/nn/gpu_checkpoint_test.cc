// Checkpoints on a GPU, whose random numbers and memory are the device's.
#include <tandem/nn/checkpoint.h>

#include <tandem/autograd/engine.h>
#include <tandem/nn/layers.h>
#include <tandem/ops/activation.h>
#include <tandem/ops/cast.h>
#include <tandem/ops/elementwise.h>
#include <tandem/ops/math.h>
#include <tandem/ops/random.h>
#include <tandem/ops/reduce.h>
#include <tandem/tensor/allocator.h>
#include <tandem/tensor/cuda.h>
#include <tandem/tensor/factories.h>
#include <tandem/tensor/generator.h>
#include <tandem/tests/support/test.h>

namespace tandem { namespace {

const Device kGpu("cuda");

/// Values of the result, of the gradients and of a number that is drawn afterwards.
std::vector<std::vector<float>> step(bool checkpoints, bool half) {
  manual_seed(5);
  nn::Linear a(16, 16), b(16, 16);
  a.to(kGpu);
  b.to(kGpu);
  const Tensor x = randn({8, 16}).to(kGpu).requires_grad_();
  const auto block = [&](const Tensor& t) { return dropout(gelu(b(dropout(a(t), 0.5))), 0.25); };
  std::optional<Autocast> autocast;
  if (half) autocast.emplace(kBFloat16);
  const Tensor y = checkpoints ? nn::checkpoint(block, x) : block(x);
  sum(square(y)).backward();
  std::vector<std::vector<float>> result;
  for (const Tensor& tensor : {y, x.grad(), a.weight.grad(), b.weight.grad(), rand({1}, {.device = kGpu})}) {
    result.push_back(tensor.cpu().to(kFloat32).to_vector<float>());
  }
  return result;
}

TEST(GpuCheckpoint, DropoutAndAutocastHaveTheSameBits) {
  for (const bool half : {false, true}) EXPECT_EQ(step(true, half), step(false, half)) << half;
}

TEST(GpuCheckpoint, ActivationsAreNotStored) {
  const auto peak = [](bool checkpoints) {
    const Tensor x = ones({64, 256}, {.device = kGpu}).requires_grad_();
    reset_peak_memory(kGpu);
    const int64_t before = memory_stats(kGpu).allocated;
    Tensor y = x;
    for (int i = 0; i < 8; ++i) {
      const auto block = [](const Tensor& t) { return gelu(gelu(gelu(t))); };
      y = checkpoints ? nn::checkpoint(block, y) : block(y);
    }
    sum(y).backward();
    return memory_stats(kGpu).peak_allocated - before;
  };
  EXPECT_LE(peak(true), peak(false) / 2);
}

}}  // namespace tandem
