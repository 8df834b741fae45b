#include <tandem/optim/grad_scaler.h>

#include <cmath>
#include <string>

#include <tandem/autograd/leaf.h>
#include <tandem/autograd/node.h>
#include <tandem/optim/grad_scaler_kernels.h>
#include <tandem/optim/gradient_batches.h>
#include <tandem/tensor/cuda_capture.h>
#include <tandem/tensor/factories.h>
#include <tandem/tensor/state_reader.h>

namespace tandem { inline namespace v0 { namespace optim {

namespace {

/// " ('fc.weight')"; "" if no module has named the parameter.
std::string name_in_text(const Tensor& parameter) {
  const std::string name = parameter.requires_grad() ? autograd::leaf(parameter).name : "";
  return name.empty() ? "" : str(" ('", name, "')");
}

}  // namespace

GradScaler::GradScaler(GradScalerOptions options) : options_(std::move(options)), scale_(options_.init_scale) {
  TANDEM_CHECK(ValueError, std::isfinite(scale_) && scale_ > 0, "GradScaler: init_scale is ", scale_,
               ", expected a positive number");
  TANDEM_CHECK(ValueError, options_.growth_factor > 1, "GradScaler: growth_factor is ", options_.growth_factor,
               ", expected > 1");
  TANDEM_CHECK(ValueError, options_.backoff_factor > 0 && options_.backoff_factor < 1, "GradScaler: backoff_factor is ",
               options_.backoff_factor, ", expected between 0 and 1");
  TANDEM_CHECK(ValueError, options_.growth_interval > 0, "GradScaler: growth_interval is ", options_.growth_interval,
               ", expected > 0");
}

void GradScaler::backward(const Tensor& loss) const {
  const Tensor seed = full(loss.shape(), scale_, loss.options());
  tandem::cuda::fill_in_replays(seed, [this] { return scale_; });
  loss.backward(seed);
}

GradScaler::Unscaled* GradScaler::find(const Optimizer& optimizer) {
  for (Unscaled& one : unscaled_) {
    if (one.optimizer == &optimizer) return &one;
  }
  return nullptr;
}

void GradScaler::unscale_(Optimizer& optimizer) {
  TANDEM_CHECK(StateError, find(optimizer) == nullptr,
               "GradScaler: unscale_ was already called for this optimizer; call update() before the next step");
  const std::vector<Tensor> gradients = gradients_of("GradScaler", optimizer.parameters());
  for (size_t i = 0; i < optimizer.parameters().size(); ++i) {
    const Tensor& parameter = optimizer.parameters()[i];
    TANDEM_CHECK(DTypeError, parameter.dtype() != kFloat16 || !parameter.requires_grad() || !parameter.grad().defined(),
                 "GradScaler: the gradient of parameter ", i, name_in_text(parameter),
                 " is float16, in which unscaled gradients underflow; keep parameters in float32 and use Autocast");
  }
  bool any = false;
  std::vector<Tensor> flags;
  for (const GradientBatch& batch : batches_of(gradients)) {  // launches all kernels before the first synchronization
    flags.push_back(zeros({1}, {kInt32, batch.device}));
    TANDEM_KERNEL(kernel_context(batch.device), unscale, batch.dtype, batch.values, 1 / scale_,
                  flags.back().data<int32_t>());
  }
  for (const Tensor& gradient : gradients) autograd::end_in_place("unscale_", gradient);
  for (const Tensor& flag : flags) any = flag.to_vector<int32_t>()[0] != 0 || any;
  if (options_.all_reduce_found_inf) {
    const Tensor found = full({1}, any ? 1 : 0, {kFloat64});
    options_.all_reduce_found_inf(found);
    any = found.to_vector<double>()[0] != 0;
  }
  unscaled_.push_back({&optimizer, any, false});
}

bool GradScaler::step(Optimizer& optimizer) {
  if (find(optimizer) == nullptr) unscale_(optimizer);
  Unscaled& one = *find(optimizer);
  TANDEM_CHECK(StateError, !one.stepped,
               "GradScaler: step was already called for this optimizer; call update() before the next step");
  one.stepped = true;
  if (!one.found) optimizer.step();
  return !one.found;
}

void GradScaler::update() {
  TANDEM_CHECK(StateError, !unscaled_.empty(), "GradScaler: update was called before step; call step first");
  bool found = false;
  for (const Unscaled& one : unscaled_) found = found || one.found;
  unscaled_.clear();
  if (found) {
    scale_ *= options_.backoff_factor;
    growth_tracker_ = 0;
  } else if (++growth_tracker_ >= options_.growth_interval) {
    const double larger = scale_ * options_.growth_factor;
    if (std::isfinite(static_cast<float>(larger))) scale_ = larger;
    growth_tracker_ = 0;
  }
}

State GradScaler::state_dict() const {
  State state;
  state.set("scale", scale_);
  state.set("growth_tracker", growth_tracker_);
  return state;
}

void GradScaler::load_state_dict(const State& state) {
  StateReader reader(state);
  const auto* scale = reader.read<double>("scale");
  const auto* tracker = reader.read<int64_t>("growth_tracker");
  if (scale != nullptr && !(std::isfinite(*scale) && *scale > 0))
    reader.refuse("scale", str("is ", *scale, ", expected a positive number"));
  if (tracker != nullptr && *tracker < 0)
    reader.refuse("growth_tracker", str("is ", *tracker, ", expected at least 0"));
  reader.finish("GradScaler: the state does not fit");
  scale_ = *scale;
  growth_tracker_ = *tracker;
}

}}}  // namespace tandem::v0::optim
