// What the examples that classify images share.
#pragma once

#include <tandem/examples/support/flags.h>
#include <tandem/examples/support/metrics.h>
#include <tandem/tandem.h>

namespace examples {

/// Loss and accuracy on a data set, each image, transformed, looked at by one rank, in evaluation mode.  Collective.
Validation evaluate_classifier(tandem::nn::Layer& model, const tandem::data::Dataset& test,
                               const tandem::data::Transform& transform, tandem::distributed::Context& ctx,
                               const TrainingFlags& flags);

}  // namespace examples
