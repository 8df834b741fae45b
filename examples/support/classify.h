// Evaluation of image classifiers.
#pragma once

#include <tandem/examples/support/flags.h>
#include <tandem/examples/support/metrics.h>
#include <tandem/tandem.h>

namespace examples {

/// Mean loss and accuracy in evaluation mode; the transformed images are distributed over the ranks. Collective.
Validation evaluate_classifier(tandem::nn::Layer& model, const tandem::data::Dataset& test,
                               const tandem::data::Transform& transform, tandem::distributed::Context& ctx,
                               const TrainingFlags& flags);

}  // namespace examples
