#include <tandem/optim/grad_scaler.h>

#include <algorithm>
#include <cmath>
#include <string>
#include <utility>

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

/// With the default of min_scale, a smaller init_scale is also valid.
GradScalerOptions with_bound(GradScalerOptions options) {
  options.min_scale = std::min(options.min_scale, options.init_scale);
  return options;
}

}  // namespace

GradScaler::GradScaler(GradScalerOptions options)
    : options_(with_bound(std::move(options))), scale_(options_.init_scale) {
  TANDEM_CHECK(ValueError, std::isfinite(scale_) && scale_ > 0, "GradScaler: init_scale is ", scale_,
               ", expected a positive number");
  TANDEM_CHECK(ValueError, options_.min_scale > 0, "GradScaler: min_scale is ", options_.min_scale,
               ", expected a positive number");
  TANDEM_CHECK(ValueError, options_.growth_factor > 1, "GradScaler: growth_factor is ", options_.growth_factor,
               ", expected > 1");
  TANDEM_CHECK(ValueError, options_.backoff_factor > 0 && options_.backoff_factor < 1, "GradScaler: backoff_factor is ",
               options_.backoff_factor, ", expected between 0 and 1");
  TANDEM_CHECK(ValueError, options_.growth_interval > 0, "GradScaler: growth_interval is ", options_.growth_interval,
               ", expected > 0");
}

double GradScaler::get_scale() const {
  settle();
  return scale_;
}

void GradScaler::backward(const Tensor& loss) const {
  const Tensor seed = full(loss.shape(), get_scale(), loss.options());
  tandem::cuda::fill_in_replays(seed, [this] { return get_scale(); });
  loss.backward(seed);
}

bool GradScaler::has_found(const Unscaled& one) {
  return one.found_in_graph.defined() ? one.found_in_graph.to_vector<int32_t>()[0] != 0 : one.found;
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
  settle();
  if (tandem::cuda::is_capturing()) return unscale_in_graph(optimizer, gradients);
  bool any = false;
  std::vector<Tensor> flags;
  for (const GradientBatch& batch : batches_of(gradients)) {  // launches all kernels before the first synchronization
    flags.push_back(zeros({1}, {kInt32, batch.device}));
    TANDEM_KERNEL(kernel_context(batch.device), unscale, batch.dtype, batch.values, 1 / scale_, nullptr,
                  flags.back().data<int32_t>());
  }
  for (const Tensor& gradient : gradients) autograd::end_in_place("unscale_", gradient);
  for (const Tensor& flag : flags) any = flag.to_vector<int32_t>()[0] != 0 || any;
  for (const DividedParameters& own : by_group(optimizer.parameters())) {
    if (own.group == nullptr) continue;
    const Tensor found = full({1}, any ? 1 : 0, {kFloat64, own.parameters[0].device()});
    own.group->all_reduce(found, /*maximum=*/true);
    any = found.to_vector<double>()[0] != 0;
  }
  if (options_.all_reduce_found_inf) {
    const Tensor found = full({1}, any ? 1 : 0, {kFloat64});
    options_.all_reduce_found_inf(found);
    any = found.to_vector<double>()[0] != 0;
  }
  unscaled_.push_back({&optimizer, any, false, {}});
}

void GradScaler::unscale_in_graph(const Optimizer& optimizer, const std::vector<Tensor>& gradients) {
  TANDEM_CHECK(StateError, !options_.all_reduce_found_inf,
               "GradScaler: all_reduce_found_inf cannot be captured in a cuda::Graph");
  const std::vector<GradientBatch> batches = batches_of(gradients);
  TANDEM_CHECK(StateError, !batches.empty(), "GradScaler: no parameter of the optimizer has a gradient");
  const Device device = batches[0].device;
  const Tensor found = zeros({1}, {kInt32, device});
  const double* const factor = tandem::cuda::step_value(device, 1 / scale_, [this] { return 1 / get_scale(); });
  for (const GradientBatch& batch : batches) {
    TANDEM_KERNEL(kernel_context(batch.device), unscale, batch.dtype, batch.values, 1 / scale_, factor,
                  found.data<int32_t>());
  }
  for (const Tensor& gradient : gradients) autograd::end_in_place("unscale_", gradient);
  const Unscaled one = {&optimizer, false, false, found};
  unscaled_.push_back(one);
  tandem::cuda::on_replay([this, one] { unscaled_.push_back(one); });
  tandem::cuda::on_failed_capture([this] {
    unscaled_.clear();
    pending_.clear();
  });
}

bool GradScaler::step(Optimizer& optimizer) {
  if (find(optimizer) == nullptr) unscale_(optimizer);
  Unscaled& one = *find(optimizer);
  TANDEM_CHECK(StateError, !one.stepped,
               "GradScaler: step was already called for this optimizer; call update() before the next step");
  const bool in_graph = tandem::cuda::is_capturing();
  TANDEM_CHECK(StateError, !in_graph || one.found_in_graph.defined(),
               "GradScaler: unscale_ was called before the capture of a cuda::Graph; capture it too");
  one.stepped = true;
  if (!in_graph) one.found = has_found(one);
  if (!one.found) optimizer.step(in_graph ? one.found_in_graph : Tensor());
  return !one.found;
}

void GradScaler::update() {
  TANDEM_CHECK(StateError, !unscaled_.empty(), "GradScaler: update was called before step; call step first");
  if (!tandem::cuda::is_capturing()) return update_scale(std::exchange(unscaled_, {}));
  const auto postpone = [this] { pending_ = std::exchange(unscaled_, {}); };
  tandem::cuda::on_replay(postpone);
  postpone();
}

void GradScaler::settle() const {
  if (pending_.empty()) return;
  TANDEM_CHECK(StateError, !tandem::cuda::is_capturing(),
               "GradScaler: the scale after the last step of a cuda::Graph is not known; call get_scale() before the "
               "capture of another graph");
  update_scale(std::exchange(pending_, {}));
}

void GradScaler::update_scale(const std::vector<Unscaled>& unscaled) const {
  if (std::any_of(unscaled.begin(), unscaled.end(), has_found)) {
    scale_ = std::max(scale_ * options_.backoff_factor, options_.min_scale);
    growth_tracker_ = 0;
  } else if (++growth_tracker_ >= options_.growth_interval) {
    const double larger = scale_ * options_.growth_factor;
    if (std::isfinite(static_cast<float>(larger))) scale_ = larger;
    growth_tracker_ = 0;
  }
}

State GradScaler::state_dict() const {
  settle();
  State state;
  state.set("scale", scale_);
  state.set("growth_tracker", growth_tracker_);
  return state;
}

void GradScaler::load_state_dict(const State& state) {
  settle();
  StateReader reader(state);
  const auto* scale = reader.read<double>("scale");
  const auto* tracker = reader.read<int64_t>("growth_tracker");
  if (scale != nullptr && !(std::isfinite(*scale) && *scale >= 0))
    reader.refuse("scale", str("is ", *scale, ", expected a finite number of at least 0"));
  if (tracker != nullptr && *tracker < 0)
    reader.refuse("growth_tracker", str("is ", *tracker, ", expected at least 0"));
  reader.finish("GradScaler: the state does not fit");
  scale_ = std::max(*scale, options_.min_scale);
  growth_tracker_ = *tracker;
}

}}}  // namespace tandem::v0::optim
