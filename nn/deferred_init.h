// Memory and initial values of parameters that are made at their first use. Private to nn/.
#pragma once

#include <functional>
#include <string>

#include <tandem/tensor/generator.h>
#include <tandem/tensor/tensor.h>

namespace tandem { inline namespace v0 { namespace nn {

using Initializer = std::function<void(const Tensor& tensor, Generator* generator)>;

/// Drops the memory of a new parameter until its first use.
void defer_memory(const std::string& name, const Tensor& parameter);
/// If `tensor` is deferred: records that `initialize` sets all its elements, advances the generator (null: the rank's)
/// as it would, and returns true.
bool defer_init(const Tensor& tensor, Generator* generator, const Initializer& initialize);
/// If `tensor` is deferred: makes its memory without initial values, before all elements are written.
void allocate_deferred(const Tensor& tensor);
/// If `tensor` is deferred: a deferred tensor of the same shape with these options, whose initial values are those of
/// `tensor`, converted. Otherwise undefined.
Tensor convert_deferred(const Tensor& tensor, const TensorOptions& options);

}}}  // namespace tandem::v0::nn
