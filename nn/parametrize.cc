#include <tandem/nn/parametrize.h>

#include <algorithm>
#include <utility>

#include <tandem/autograd/checkpoint.h>
#include <tandem/autograd/grad_mode.h>
#include <tandem/autograd/leaf.h>
#include <tandem/nn/init.h>
#include <tandem/ops/elementwise.h>
#include <tandem/ops/loss.h>
#include <tandem/ops/matmul.h>
#include <tandem/ops/reduce.h>
#include <tandem/ops/view.h>
#include <tandem/tensor/factories.h>

namespace tandem { inline namespace v0 { namespace nn {

/// The module "parametrizations.<name>" of a layer, with the originals of one parameter. Named as in PyTorch.
class ParametrizationList : public Module {
 public:
  using Target = Module::OwnTensor;

  ParametrizationList(Target& target, std::unique_ptr<Parametrization> parametrization)
      : target_(target), parametrization_(add_module("0", std::move(parametrization))) {}

  /// Throws the errors of the parametrization for the present value, and ShapeError, DTypeError or DeviceError if its
  /// result cannot replace the parameter. Called before anything is changed.
  static void check_result(Parametrization& parametrization, const Tensor& value) {
    const NoGradGuard no_grad;
    parametrization.eval();
    const Tensor result = parametrization.forward(parametrization.right_inverse(value));
    const auto text = [&] {
      return str("register_parametrization: ", parametrization.type_name(), " returned ", describe(result), " for ",
                 describe(value));
    };
    TANDEM_CHECK(ShapeError, result.shape() == value.shape(), text());
    TANDEM_CHECK(DTypeError, result.dtype() == value.dtype(), text());
    TANDEM_CHECK(DeviceError, result.device() == value.device(), text());
  }

  /// Replaces the parameter by its originals and registers the hooks. Called when this module has its path.
  void start() {
    const bool requires_grad = target_.tensor.requires_grad();
    std::vector<Tensor> values;
    {
      const NoGradGuard no_grad;
      values = parametrization_.right_inverse(target_.tensor);
    }
    const std::string old_path = layer().path().empty() ? target_.name : layer().path() + "." + target_.name;
    std::string& leaf_name = autograd::leaf(target_.tensor.requires_grad_()).name;
    if (leaf_name == old_path) leaf_name.clear();  // if the parameter is an original, it gets a new path
    for (size_t i = 0; i < values.size(); ++i) {
      Tensor& original = add_parameter(values.size() == 1 ? "original" : str("original", i), values[i]);
      original.requires_grad_(requires_grad);
      originals_.push_back(&original);
    }
    target_.kind = Kind::kComputed;
    compute();
    target_.tensor = target_.tensor.detach();
    before_ = layer().register_forward_pre_hook([this](Layer&, const Tensor&) { compute(); });
    // The member is detached after each call, so that it does not keep the graph of the call alive.
    after_ = layer().register_forward_hook(
        [this](Layer&, const Tensor&, const Tensor&) { target_.tensor = target_.tensor.detach(); });
  }

  void compute() {
    std::vector<Tensor> values;
    for (const Tensor* original : originals_) values.push_back(*original);
    target_.tensor = parametrization_.forward(values);
  }

  /// Makes the member a parameter again.
  void stop(bool leave_parametrized) {
    const bool requires_grad = originals_[0]->requires_grad();
    if (leave_parametrized) {
      const NoGradGuard no_grad;
      compute();
      target_.tensor = target_.tensor.detach().clone();
    } else {
      target_.tensor = *originals_[0];
      autograd::leaf(target_.tensor.requires_grad_()).name.clear();
    }
    target_.kind = Kind::kParameter;
    layer().make_parameter(target_.name, target_.tensor);
    target_.tensor.requires_grad_(requires_grad);
  }

  size_t size() const { return originals_.size(); }

  static bool is_computed(const Module& module, const std::string& name) {
    return std::any_of(module.parameters_.begin(), module.parameters_.end(),
                       [&](const Target& entry) { return entry.name == name && entry.kind == Kind::kComputed; });
  }

  static void register_with(Layer& layer, const std::string& name, std::unique_ptr<Parametrization> parametrization) {
    constexpr const char* kWhat = "register_parametrization";
    layer.check_not_frozen_above(kWhat);
    layer.check_not_frozen_below(kWhat);
    TANDEM_CHECK(ValueError, parametrization != nullptr, kWhat, ": the parametrization is null");
    TANDEM_CHECK(ValueError, !is_computed(layer, name), kWhat, ": '", name, "' of ", layer.scope_name()->text,
                 " is parametrized already");
    layer.find_tensor(kWhat, "parameter", &Module::parameters_, name);  // throws if it does not exist
    Target& target = *std::find_if(layer.parameters_.begin(), layer.parameters_.end(),
                                   [&](const Target& entry) { return entry.name == name; });
    check_result(*parametrization, target.tensor);
    parametrization->train(layer.is_training());
    if (find_child(layer, kFolder) == layer.children_.end()) layer.add<Module>(kFolder);
    Module& folder = *find_child(layer, kFolder)->module;
    folder.add_module(name, std::make_unique<ParametrizationList>(target, std::move(parametrization))).start();
  }

  static void remove_from(Layer& layer, const std::string& name, bool leave_parametrized) {
    constexpr const char* kWhat = "remove_parametrizations";
    layer.check_not_frozen_above(kWhat);
    layer.check_not_frozen_below(kWhat);
    TANDEM_CHECK(ValueError, is_computed(layer, name), kWhat, ": '", name, "' of ", layer.scope_name()->text,
                 " is not parametrized");
    Module& folder = *find_child(layer, kFolder)->module;
    const auto list = find_child(folder, name);
    auto& self = static_cast<ParametrizationList&>(*list->module);
    TANDEM_CHECK(ValueError, leave_parametrized || self.size() == 1, kWhat, ": '", name, "' is computed from ",
                 self.size(), " originals; pass leave_parametrized = true");
    self.stop(leave_parametrized);
    folder.children_.erase(list);
    if (folder.children_.empty()) layer.children_.erase(find_child(layer, kFolder));
  }

 private:
  static constexpr const char* kFolder = "parametrizations";

  static std::vector<Child>::iterator find_child(Module& module, const std::string& name) {
    return std::find_if(module.children_.begin(), module.children_.end(),
                        [&](const Child& child) { return child.name == name; });
  }
  /// The layer may have been moved since the registration.
  Layer& layer() { return static_cast<Layer&>(*parent_->parent_); }

  Target& target_;
  Parametrization& parametrization_;
  std::vector<const Tensor*> originals_;
  HookHandle before_, after_;
};

void register_parametrization(Layer& layer, const std::string& name, std::unique_ptr<Parametrization> parametrization) {
  ParametrizationList::register_with(layer, name, std::move(parametrization));
}

void remove_parametrizations(Layer& layer, const std::string& name, bool leave_parametrized) {
  ParametrizationList::remove_from(layer, name, leave_parametrized);
}

bool is_parametrized(const Module& module, const std::string& name) {
  return ParametrizationList::is_computed(module, name);
}

namespace {

/// The norms of v over all dimensions except `dim`, in a shape that broadcasts to v.
Tensor norm_except(const Tensor& v, std::optional<int64_t> dim) {
  if (!dim) return norm(v);
  const int64_t kept = wrap_dim("weight_norm", *dim, v.dim());
  Shape shape(static_cast<size_t>(v.dim()), 1);
  shape[static_cast<size_t>(kept)] = v.size(kept);
  return norm(movedim(v, kept, 0).reshape({v.size(kept), -1}), 2, {1}).view(shape);
}

}  // namespace

Tensor WeightNorm::forward(const std::vector<Tensor>& originals) {
  const Tensor &g = originals[0], &v = originals[1];
  return v * (g / norm_except(v, dim_));
}

std::vector<Tensor> WeightNorm::right_inverse(const Tensor& value) { return {norm_except(value, dim_), value}; }

SpectralNorm::SpectralNorm(const Tensor& weight, int64_t n_power_iterations, double eps, int64_t dim)
    : n_power_iterations_(n_power_iterations),
      eps_(eps),
      dim_(weight.dim() > 1 ? wrap_dim("spectral_norm", dim, weight.dim()) : 0),
      u_(add_buffer("_u", Tensor())),
      v_(add_buffer("_v", Tensor())) {
  TANDEM_CHECK(ValueError, n_power_iterations >= 1, "spectral_norm: n_power_iterations is ", n_power_iterations,
               ", expected at least 1");
  if (weight.dim() < 2) return;
  const NoGradGuard no_grad;
  const Tensor rows = matrix(weight);
  u_ = normalize(init::normal_(empty({rows.size(0)}, rows.options())), 2, 0, eps);
  v_ = normalize(init::normal_(empty({rows.size(1)}, rows.options())), 2, 0, eps);
  iterate(rows, 15);
}

Tensor SpectralNorm::matrix(const Tensor& weight) const { return movedim(weight, dim_, 0).flatten(1); }

void SpectralNorm::iterate(const Tensor& matrix, int64_t steps) {
  const NoGradGuard no_grad;
  for (int64_t step = 0; step < steps; ++step) {
    u_.copy_(normalize(mv(matrix, v_), 2, 0, eps_));
    v_.copy_(normalize(mv(matrix.t(), u_), 2, 0, eps_));
  }
}

Tensor SpectralNorm::forward(const std::vector<Tensor>& originals) {
  const Tensor& weight = originals[0];
  if (!u_.defined()) return normalize(weight, 2, 0, eps_);
  const Tensor rows = matrix(weight);
  if (is_training() && !autograd::is_recomputing()) iterate(rows, n_power_iterations_);
  autograd::expect_unchanged(u_);
  // Copies: backward needs these values after later calls changed the buffers.
  const Tensor u = u_.clone(), v = v_.clone();
  return weight / dot(u, mv(rows, v));
}

}}}  // namespace tandem::v0::nn
