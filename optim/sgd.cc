#include <tandem/optim/sgd.h>

#include <cmath>
#include <utility>

#include <tandem/optim/sgd_kernels.h>
#include <tandem/tensor/chores.h>
#include <tandem/tensor/factories.h>

namespace tandem::inline v0::optim {

namespace {

constexpr const char* kBuffer = "momentum_buffer";

void check_number(const char* name, double value) {
  TANDEM_CHECK(ValueError, std::isfinite(value) && value >= 0, "SGD: ", name, " is ", value,
               ", expected a finite number >= 0");
}

void check_options(const SGDOptions& options) {
  check_number("momentum", options.momentum);
  check_number("weight_decay", options.weight_decay);
  TANDEM_CHECK(ValueError, std::isfinite(options.dampening), "SGD: dampening is ", options.dampening,
               ", expected a finite number");
  TANDEM_CHECK(ValueError, !options.nesterov || (options.momentum > 0 && options.dampening == 0),
               "SGD: nesterov needs momentum > 0 and dampening 0, got ", options.momentum, " and ", options.dampening);
}

}  // namespace

SGD::SGD(std::vector<Tensor> parameters, SGDOptions options)
    : Optimizer("SGD", std::move(parameters), options.lr), options_(options), buffers_(Optimizer::parameters().size()) {
  check_options(options);
}

void SGD::check(size_t index) const {
  const Device device = parameters()[index].device();
  TANDEM_CHECK(DeviceError, device.is_cpu(), describe_parameter(index), " is on ", device,
               "; there is no kernel for it");
  const Tensor& buffer = buffers_[index];
  TANDEM_CHECK(DeviceError, !buffer.defined() || buffer.device() == device, describe_parameter(index), " is on ",
               device, ", its momentum buffer on ", buffer.device(), "; make the optimizer after moving the model");
}

void SGD::update(size_t index, const Tensor& parameter, const Tensor& gradient) {
  Tensor& buffer = buffers_[index];
  const bool first = !buffer.defined();
  if (options_.momentum != 0 && first) buffer = empty_like(parameter);
  const bool use_buffer = options_.momentum != 0;
  const cpu::SgdStep step = {lr(), options_.momentum, options_.dampening, options_.weight_decay, options_.nesterov,
                             first};
  const KernelContext context = {parameter.device()};
  const auto run = [&]<class T>(T*) {
    cpu::sgd(context, parameter.num_elements(), gradient.data<T>(), step, parameter.data<T>(),
             use_buffer ? buffer.data<T>() : nullptr);
  };
  if (parameter.dtype() == kFloat32) {
    run(static_cast<float*>(nullptr));
  } else {
    run(static_cast<double*>(nullptr));
  }
}

void SGD::save_numbers(State& state) const {
  state.set("momentum", options_.momentum);
  state.set("dampening", options_.dampening);
  state.set("weight_decay", options_.weight_decay);
  state.set("nesterov", options_.nesterov);
}

void SGD::save_tensors(size_t index, State& state) const {
  if (buffers_[index].defined()) state.set(kBuffer, buffers_[index]);
}

void SGD::load(const State& numbers, const std::vector<State>& tensors) {
  SGDOptions options;
  options.momentum = numbers.get<double>("momentum");
  options.dampening = numbers.get<double>("dampening");
  options.weight_decay = numbers.get<double>("weight_decay");
  options.nesterov = numbers.get<bool>("nesterov");
  check_options(options);
  std::vector<Tensor> buffers(tensors.size());
  for (size_t i = 0; i < tensors.size(); ++i) {
    if (tensors[i].find(kBuffer) == nullptr) continue;
    const auto& saved = tensors[i].get<Tensor>(kBuffer);
    const Tensor& parameter = parameters()[i];
    TANDEM_CHECK(
        StateError, saved.defined() && saved.shape() == parameter.shape() && saved.dtype() == parameter.dtype(),
        describe_parameter(i), " is ", describe(parameter), ", its momentum buffer in the state ", describe(saved));
    buffers[i] = empty_like(parameter);
    chores::copy(saved, buffers[i]);
  }
  options_ = options;
  buffers_ = std::move(buffers);
}

}  // namespace tandem::inline v0::optim
