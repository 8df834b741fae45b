// A detector of one anchor per cell: its targets are written by index, its loss selects cells by a mask.
#include <tandem/tandem.h>
#include <tandem/tests/nn/drawn.h>

namespace td = tandem;
namespace nn = td::nn;

namespace {

constexpr int64_t kBatch = 4, kClasses = 3, kGrid = 4;

/// Per cell an objectness, x, y, width, height and the classes: [N, 5 + classes, grid, grid].
td::Tensor make_target(const td::Tensor& boxes) {
  td::Tensor target = td::zeros({kBatch, 5 + kClasses, kGrid, kGrid}, td::kDouble);
  for (int64_t n = 0; n < boxes.size(0); ++n) {
    for (int64_t b = 0; b < boxes.size(1); ++b) {
      const auto box = boxes[n][b].to_vector<double>();
      const auto j = static_cast<int64_t>(box[0] * kGrid), i = static_cast<int64_t>(box[1] * kGrid);
      target.index({n, td::Slice(), i, j}) = 0;
      target[n][0][i][j] = 1;
      target.index({n, td::Slice(1, 5), i, j}) =
          td::tensor({box[0] * kGrid - j, box[1] * kGrid - i, box[2], box[3]}, td::kDouble);
      target[n][5 + static_cast<int64_t>(box[4] * kClasses)][i][j] = 1;
    }
  }
  return target;
}

td::Tensor detection_loss(const td::Tensor& output, const td::Tensor& target) {
  const td::Tensor mask = target.select(1, 0) > 0.5;
  const td::Tensor cells = output.permute(0, 2, 3, 1).index({mask});
  const td::Tensor wanted = target.permute(0, 2, 3, 1).index({mask});
  const auto sum = td::Reduction::kSum;
  const td::Tensor position = td::mse_loss(cells.slice(1, 1, 3).sigmoid(), wanted.slice(1, 1, 3), sum);
  const td::Tensor size = td::mse_loss(cells.slice(1, 3, 5), wanted.slice(1, 3, 5).sqrt(), sum);
  const td::Tensor kind = td::cross_entropy(cells.slice(1, 5, 8), wanted.slice(1, 5, 8).argmax(1), {.reduction = sum});
  const td::Tensor wanted_found = target.select(1, 0);
  const td::Tensor weight = td::where(mask, 1.0, td::full_like(wanted_found, 0.5));
  const td::Tensor found = td::binary_cross_entropy_with_logits(output.select(1, 0), wanted_found, weight, sum);
  return (5 * (position + size) + kind + found) / kBatch;
}

TEST(Programs, Detector) {
  nn::Sequential model(nn::Conv2d(1, 8, 3, {.stride = 2, .padding = 1}), nn::BatchNorm2d(8), nn::LeakyReLU(0.1),
                       nn::Conv2d(8, 16, 3, {.stride = 2, .padding = 1}), nn::BatchNorm2d(16), nn::LeakyReLU(0.1),
                       nn::Conv2d(16, 5 + kClasses, 1));
  td::testing::draw_weights(model);
  td::optim::SGD optimizer(model.parameters(), {.lr = 3e-3, .momentum = 0.9, .weight_decay = 1e-4});
  std::vector<double> losses;
  for (uint32_t step = 0; step < 20; ++step) {
    const td::Tensor boxes = td::testing::drawn({kBatch, 3, 5}, step) * 0.499 + 0.5;
    optimizer.zero_grad();
    const td::Tensor loss = detection_loss(model(td::testing::shapes(kBatch, step)), make_target(boxes));
    loss.backward();
    optimizer.step();
    losses.push_back(loss.item());
  }
  td::testing::expect_recorded_losses(losses, "detector", 1e-8);
}

}  // namespace
