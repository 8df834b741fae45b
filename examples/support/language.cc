#include <tandem/examples/support/language.h>
#include <tandem/train/metrics.h>

#include <cmath>

namespace examples {

namespace td = tandem;

td::train::Evaluation evaluate_language_model(td::nn::Layer& model, const td::data::Dataset& text,
                                              td::distributed::Context& ctx, int64_t batch_size) {
  td::data::DistributedSampler sampler(
      text.size(), ctx.rank(), ctx.world_size(),
      {.shuffle = false, .mode = td::data::DistributedSamplerOptions::Mode::kEvaluation});
  td::data::DataLoader loader(text, sampler, {.batch_size = batch_size, .device = ctx.device()});
  td::train::Perplexity perplexity({.group = ctx.group()});
  for (auto& batch : loader) perplexity.update(model(batch.input), batch.target);
  const double result = perplexity.compute();
  return {{"loss", std::log(result)}, {"perplexity", result}};
}

std::vector<td::optim::ParameterGroup<td::optim::AdamWOptions>> decay_matrices_only(
    const td::nn::Module& model, const td::optim::AdamWOptions& options) {
  std::vector<td::Tensor> matrices;
  std::vector<td::Tensor> others;
  for (const td::Tensor& parameter : model.parameters())
    (parameter.dim() >= 2 ? matrices : others).push_back(parameter);
  td::optim::AdamWOptions without_decay = options;
  without_decay.weight_decay = 0;
  return {{matrices, options}, {others, without_decay}};
}

}  // namespace examples
