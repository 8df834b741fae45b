#include <tandem/examples/support/classify.h>
#include <tandem/train/metrics.h>

namespace examples {

namespace td = tandem;

td::train::Evaluation evaluate_classifier(td::nn::Layer& model, const td::data::Dataset& test,
                                          const td::data::Transform& transform, td::distributed::Context& ctx) {
  // Every image is visited by exactly one rank.
  td::data::DistributedSampler sampler(
      test.size(), ctx.rank(), ctx.world_size(),
      {.shuffle = false, .mode = td::data::DistributedSamplerOptions::Mode::kEvaluation});
  td::data::DataLoader loader(test, sampler, {.batch_size = 256, .device = ctx.device(), .transform = transform});
  td::train::Mean loss({.group = ctx.group()});
  td::train::Accuracy accuracy({.group = ctx.group()});
  for (auto& batch : loader) {
    const td::Tensor logits = model(batch.input);
    loss.update(td::cross_entropy(logits, batch.target), batch.size);
    accuracy.update(logits, batch.target);
  }
  return {{"loss", loss.compute()}, {"accuracy", accuracy.compute()}};
}

}  // namespace examples
