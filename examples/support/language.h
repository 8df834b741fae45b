// Training and evaluation of language models.
#pragma once

#include <tandem/tandem.h>
#include <tandem/train/trainer.h>

#include <cstdint>
#include <vector>

namespace examples {

/// Mean loss per token and perplexity of a text; its windows are distributed over the ranks. Collective.
tandem::train::Evaluation evaluate_language_model(tandem::nn::Layer& model, const tandem::data::Dataset& text,
                                                  tandem::distributed::Context& ctx, int64_t batch_size = 32);

/// Parameter groups with weight decay for matrices only, not for norms and biases.
std::vector<tandem::optim::ParameterGroup<tandem::optim::AdamWOptions>> decay_matrices_only(
    const tandem::nn::Module& model, const tandem::optim::AdamWOptions& options);

}  // namespace examples
