#include <tandem/benchmarks/ops/rows.h>

using namespace tandem;

namespace {

/// Images as convolutions make them: [N, H, W, C] in memory, so that neither the input's gradient nor the output's is copied.
Tensor image(const Shape& shape) { return randn({shape[0], shape[2], shape[3], shape[1]}); }
Tensor nchw(const Tensor& image) { return image.permute({0, 3, 1, 2}); }
Tensor nhwc(const Tensor& image) { return image.permute({0, 2, 3, 1}); }

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
           [=](const TensorList& in) { return nhwc(batch_norm(nchw(in[0]), mean, var, in[1], in[2], true)); });
  rows.add(
      "batch_norm row-major",
      [] {
        return TensorList{randn({32, 64, 32, 32}), ones({64}), zeros({64})};
      },
      [=](const TensorList& in) { return batch_norm(in[0], mean, var, in[1], in[2], true); });
  rows.add("batch_norm_relu", inputs,
           [=](const TensorList& in) { return nhwc(batch_norm_relu(nchw(in[0]), mean, var, in[1], in[2], true)); });
  rows.add(
      "batch_norm_relu small",
      [] {
        return TensorList{image({32, 512, 4, 4}), ones({512}), zeros({512})};
      },
      [](const TensorList& in) { return nhwc(batch_norm_relu(nchw(in[0]), {}, {}, in[1], in[2], true)); });
  rows.add(
      "batch_norm_add_relu",
      [] {
        return TensorList{image({32, 64, 32, 32}), ones({64}), zeros({64}), image({32, 64, 32, 32})};
      },
      [=](const TensorList& in) {
        return nhwc(batch_norm_add_relu(nchw(in[0]), nchw(in[3]), mean, var, in[1], in[2], true));
      });
  rows.add("sync_batch_norm", inputs, [=](const TensorList& in) {
    return nhwc(sync_batch_norm(nchw(in[0]), mean, var, in[1], in[2], std::make_shared<OneRank>()));
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
