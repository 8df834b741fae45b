// Evaluation of image classifiers.
#pragma once

#include <tandem/tandem.h>
#include <tandem/train/trainer.h>

namespace examples {

/// Mean loss and accuracy; the transformed images are distributed over the ranks. Collective.
tandem::train::Evaluation evaluate_classifier(tandem::nn::Layer& model, const tandem::data::Dataset& test,
                                              const tandem::data::Transform& transform,
                                              tandem::distributed::Context& ctx);

}  // namespace examples
