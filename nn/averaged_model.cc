#include <tandem/nn/averaged_model.h>

#include <tandem/base/error.h>
#include <tandem/nn/clone.h>
#include <tandem/nn/training_modes.h>
#include <tandem/ops/elementwise.h>
#include <tandem/ops/math.h>
#include <tandem/tensor/factories.h>

namespace tandem { inline namespace v0 { namespace nn {

namespace {

using NamedTensors = std::vector<std::pair<std::string, Tensor>>;

void check_equal(const char* what, const NamedTensors& model, const NamedTensors& average, bool dtypes = true) {
  TANDEM_CHECK(ValueError, model.size() == average.size(), "AveragedModel: the model has ", model.size(), " ", what,
               ", the averaged model ", average.size(), "; construct both with the same arguments");
  for (size_t i = 0; i < model.size(); ++i) {
    const auto& [name, tensor] = model[i];
    const auto& [own_name, own] = average[i];
    TANDEM_CHECK(
        ValueError, name == own_name && tensor.shape() == own.shape() && (!dtypes || tensor.dtype() == own.dtype()),
        "AveragedModel: the model has '", name, "' ", tensor.dtype(), " ", tensor.shape(), ", the averaged model '",
        own_name, "' ", own.dtype(), " ", own.shape(), "; construct both with the same arguments");
  }
}

/// Calls f(average, current) for each tensor.
template <class F>
void for_each_pair(const char* what, const NamedTensors& model, const NamedTensors& average, const F& f) {
  check_equal(what, model, average);
  for (size_t i = 0; i < model.size(); ++i) f(average[i].second.detach(), model[i].second.detach());
}

}  // namespace

AverageFunction get_ema_avg_fn(double decay) {
  TANDEM_CHECK(ValueError, decay >= 0 && decay <= 1, "get_ema_avg_fn: decay is ", decay, ", expected 0 <= decay <= 1");
  return [decay](const Tensor& averaged, const Tensor& current, int64_t) { return lerp(averaged, current, 1 - decay); };
}

AverageFunction get_swa_avg_fn() {
  return [](const Tensor& averaged, const Tensor& current, int64_t num_averaged) {
    return lerp(averaged, current, 1 / static_cast<double>(num_averaged + 1));
  };
}

AveragedModelBase::AveragedModelBase(AveragedModelOptions options) : options_(std::move(options)) {
  TANDEM_CHECK(ValueError, options_.avg_fn, "AveragedModel: avg_fn is empty");
}

Tensor AveragedModelBase::make_count() { return zeros({}, {kInt64}); }

void AveragedModelBase::copy_from(const Module& model, Module& average) {
  const auto parameters = model.named_parameters();
  check_equal("parameters", parameters, average.named_parameters(), /*dtypes=*/false);
  check_equal("buffers", model.named_buffers(), average.named_buffers(), /*dtypes=*/false);
  if (!parameters.empty()) to(parameters[0].second.device());
  copy_state(model, average);
}

void AveragedModelBase::update_parameters(const Module& model) {
  const NoGradGuard no_grad;
  const Module& average = *named_children()[0].second;
  const auto num_averaged = n_averaged.item<int64_t>();
  const auto assign = [](const Tensor& own, const Tensor& current) { own.copy_(current); };
  const auto include = [&](const Tensor& own, const Tensor& current) {
    const bool is_averaged = num_averaged > 0 && is_floating_point(own.dtype());
    own.copy_(is_averaged ? options_.avg_fn(own, current, num_averaged) : current);
  };
  check_equal("buffers", model.named_buffers(), average.named_buffers());  // before anything is changed
  for_each_pair("parameters", model.named_parameters(), average.named_parameters(), include);
  if (options_.use_buffers) {
    for_each_pair("buffers", model.named_buffers(), average.named_buffers(), include);
  } else {
    for_each_pair("buffers", model.named_buffers(), average.named_buffers(), assign);
  }
  n_averaged.add_(1);
}

CumulativeBatchStatistics::CumulativeBatchStatistics(Module& model)
    : modes_(std::make_unique<TrainingModes>(model, true)) {
  for (Module* module : model.modules()) {
    auto* norm = dynamic_cast<BatchNormBase*>(module);
    if (norm != nullptr && norm->running_mean.defined()) norms_.push_back({norm, norm->momentum(), {}});
  }
  for (Norm& one : norms_) {
    BatchNormBase& norm = *one.module;
    norm.running_mean.zero_();
    norm.running_var.fill_(1);
    norm.num_batches_tracked.zero_();
    one.hook = norm.register_forward_pre_hook([&norm, calls = 0](Layer&, const Tensor&) mutable {
      norm.set_momentum(1.0 / ++calls);  // the mean of all calls
    });
  }
}

CumulativeBatchStatistics::~CumulativeBatchStatistics() {
  for (const Norm& one : norms_) one.module->set_momentum(one.momentum);
}

}}}  // namespace tandem::v0::nn
