#include <tandem/examples/support/classify.h>
#include <tandem/examples/support/training_run.h>

namespace examples {

namespace td = tandem;

Validation evaluate_classifier(td::nn::Layer& model, const td::data::Dataset& test,
                               const td::data::Transform& transform, td::distributed::Context& ctx,
                               const TrainingFlags& flags) {
  const td::NoGradGuard no_grad;
  const Amp amp(flags);
  model.eval();
  td::data::DistributedSampler sampler(
      test.size(), ctx.rank(), ctx.world_size(),
      {.shuffle = false, .mode = td::data::DistributedSamplerOptions::Mode::kEvaluation});
  td::data::DataLoader loader(test, sampler, {.batch_size = 256, .device = ctx.device(), .transform = transform});
  const td::Tensor sums = td::zeros({2}, {td::kFloat64, ctx.device()});  // sum of losses, number of correct predictions
  for (auto& batch : loader) {
    const td::Tensor logits = model(batch.images);
    sums[0].add_(td::cross_entropy(logits, batch.labels) * static_cast<double>(batch.size));
    sums[1].add_(td::eq(logits.argmax(1), batch.labels).sum());
  }
  ctx.group()->all_reduce(sums);
  model.train();
  const auto totals = sums.to_vector<double>();
  const auto size = static_cast<double>(test.size());
  return {totals[0] / size, totals[1] / size};
}

}  // namespace examples
