// Parameters that are computed from other parameters: torch.nn.utils.parametrize and torch.nn.utils.parametrizations.
#pragma once

#include <concepts>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include <tandem/base/macros.h>
#include <tandem/nn/module.h>

namespace tandem { inline namespace v0 { namespace nn {

/// A function that computes a parameter from other trained parameters, the *originals*.
class TANDEM_API Parametrization : public Module {
 public:
  /// The value of the parameter, differentiable.
  virtual Tensor forward(const std::vector<Tensor>& originals) = 0;
  /// Originals whose forward() is `value`, or close to it; by default `value` itself. Not recorded.
  virtual std::vector<Tensor> right_inverse(const Tensor& value) { return {value}; }
};

/// Makes parameter `name` of `layer` the result of a parametrization, which each call of the layer computes before its
/// forward hooks; between calls the member keeps the value of the last call. The originals are parameters with
/// PyTorch's keys "parametrizations.<name>.original", or "original0", "original1", ... if there are several; parameters
/// and buffers of the parametrization itself have the prefix "parametrizations.<name>.0.". Create optimizers and
/// DistributedDataParallel afterwards. Calls of the layer are not thread-safe. Throws ValueError if the layer has no
/// such parameter, or if the parameter is already parametrized; StateError while the structure of the layer is frozen.
TANDEM_API void register_parametrization(Layer& layer, const std::string& name,
                                         std::unique_ptr<Parametrization> parametrization);
/// Makes `name` a parameter again: a copy of its computed value or, if `leave_parametrized` is false, its only
/// original. Throws ValueError if it is not parametrized, or if it has several originals and `leave_parametrized` is
/// false; StateError while the structure of the layer is frozen.
TANDEM_API void remove_parametrizations(Layer& layer, const std::string& name, bool leave_parametrized = true);
/// Whether parameter `name` of `module` is the result of a parametrization.
TANDEM_API bool is_parametrized(const Module& module, const std::string& name);

/// w = v g / ||v||, where the norm is over all dimensions except `dim`, or over all without `dim`. original0 is g, the
/// norms; original1 is v. T. Salimans, D. P. Kingma, "Weight normalization", NeurIPS 2016.
class TANDEM_API WeightNorm : public Parametrization {
 public:
  /// The dimension that keeps its size in g.
  explicit WeightNorm(std::optional<int64_t> dim = 0) : dim_(dim) {}
  Tensor forward(const std::vector<Tensor>& originals) override;
  std::vector<Tensor> right_inverse(const Tensor& value) override;

 private:
  std::optional<int64_t> dim_;
};

/// w = original / sigma, where sigma = u^T W v is the largest singular value of W: the original as a matrix whose rows
/// are indexed by `dim`. A vector is divided by its norm. In training mode each call improves the buffers u and v by
/// n_power_iterations steps of power iteration. A checkpointed call must therefore be the last one before its backward
/// (StateError). T. Miyato et al., "Spectral normalization for generative adversarial networks", ICLR 2018.
class TANDEM_API SpectralNorm : public Parametrization {
 public:
  /// Starts with 15 power iterations from random vectors. Throws ValueError unless n_power_iterations is at least 1,
  /// IndexError for a wrong `dim`.
  explicit SpectralNorm(const Tensor& weight, int64_t n_power_iterations = 1, double eps = 1e-12, int64_t dim = 0);
  Tensor forward(const std::vector<Tensor>& originals) override;

 private:
  Tensor matrix(const Tensor& weight) const;
  void iterate(const Tensor& matrix, int64_t steps);

  int64_t n_power_iterations_;
  double eps_;
  int64_t dim_;
  Tensor& u_;  ///< buffer "_u", undefined for a vector
  Tensor& v_;  ///< buffer "_v", undefined for a vector
};

/// Registers a WeightNorm, and returns the layer:
///
///     nn::Linear& fc = nn::weight_norm(add<nn::Linear>("fc", 20, 40));
template <std::derived_from<Layer> L>
L& weight_norm(L& layer, const std::string& name = "weight", std::optional<int64_t> dim = 0) {
  register_parametrization(layer, name, std::make_unique<WeightNorm>(dim));
  return layer;
}

/// Registers a SpectralNorm, and returns the layer. `dim` is by default 1 for transposed convolutions, else 0.
template <std::derived_from<Layer> L>
L& spectral_norm(L& layer, const std::string& name = "weight", int64_t n_power_iterations = 1, double eps = 1e-12,
                 std::optional<int64_t> dim = {}) {
  const int64_t rows = dim.value_or(layer.type_name().starts_with("ConvTranspose") ? 1 : 0);
  register_parametrization(layer, name,
                           std::make_unique<SpectralNorm>(layer.get_parameter(name), n_power_iterations, eps, rows));
  return layer;
}

}}}  // namespace tandem::v0::nn
