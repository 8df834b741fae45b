#include <tandem/benchmarks/ops/rows.h>

using namespace tandem;

namespace {

/// A channels-last image, as convolutions make it.
Tensor image(const Shape& shape) { return randn({shape[0], shape[2], shape[3], shape[1]}).permute({0, 3, 1, 2}); }

/// Ranks that are one.
struct OneRank : BatchNormExchange {
  Tensor gather(const Tensor& moments) override { return moments.unsqueeze(0); }
  void sum(const Tensor&) override {}
};

}  // namespace

TANDEM_BENCHMARK_ROWS(norm) {
  const Tensor mean = zeros({64}), var = ones({64});
  const auto inputs = [] { return TensorList{image({32, 64, 32, 32}), ones({64}), zeros({64})}; };
  rows.add("batch_norm", inputs,
           [=](const TensorList& in) { return batch_norm(in[0], mean, var, in[1], in[2], true); });
  rows.add(
      "batch_norm row-major",
      [] {
        return TensorList{randn({32, 64, 32, 32}), ones({64}), zeros({64})};
      },
      [=](const TensorList& in) { return batch_norm(in[0], mean, var, in[1], in[2], true); });
  rows.add("batch_norm_relu", inputs,
           [=](const TensorList& in) { return batch_norm_relu(in[0], mean, var, in[1], in[2], true); });
  rows.add(
      "batch_norm_relu small",
      [] {
        return TensorList{image({32, 512, 4, 4}), ones({512}), zeros({512})};
      },
      [](const TensorList& in) { return batch_norm_relu(in[0], {}, {}, in[1], in[2], true); });
  rows.add(
      "batch_norm_add_relu",
      [] {
        return TensorList{image({32, 64, 32, 32}), ones({64}), zeros({64}), image({32, 64, 32, 32})};
      },
      [=](const TensorList& in) { return batch_norm_add_relu(in[0], in[3], mean, var, in[1], in[2], true); });
  rows.add("sync_batch_norm", inputs, [=](const TensorList& in) {
    return sync_batch_norm(in[0], mean, var, in[1], in[2], std::make_shared<OneRank>());
  });
  rows.add(
      "layer_norm 128",
      [] {
        return TensorList{randn({2048, 128}), ones({128}), zeros({128})};
      },
      [](const TensorList& in) { return layer_norm(in[0], {128}, in[1], in[2]); });
  rows.add(
      "layer_norm 384",
      [] {
        return TensorList{randn({1024, 384}), ones({384}), zeros({384})};
      },
      [](const TensorList& in) { return layer_norm(in[0], {384}, in[1], in[2]); });
}
