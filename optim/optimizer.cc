#include <tandem/optim/optimizer.h>

#include <cmath>
#include <set>
#include <utility>

#include <tandem/autograd/leaf.h>
#include <tandem/autograd/node.h>
#include <tandem/base/trace.h>
#include <tandem/tensor/chores.h>
#include <tandem/tensor/factories.h>

namespace tandem::inline v0::optim {

namespace {

void check_lr(const char* name, double lr) {
  TANDEM_CHECK(ValueError, std::isfinite(lr) && lr >= 0, name, ": lr is ", lr, ", expected a finite number >= 0");
}

/// The name that the parameter's module gave it; "" if none did.
std::string name_of(const Tensor& parameter) {
  return parameter.requires_grad() ? autograd::leaf(parameter).name : std::string();
}

/// The parameter's gradient, row-major; undefined if there is none.
Tensor gradient_of(const Tensor& parameter) {
  if (!parameter.requires_grad()) return {};
  const Tensor gradient = parameter.grad();
  if (!gradient.defined() || gradient.is_contiguous()) return gradient;
  Tensor copy = empty_like(gradient);  // slots are row-major, except those that a backward with create_graph recorded
  chores::copy(gradient, copy);
  return copy;
}

}  // namespace

Optimizer::Optimizer(const char* name, std::vector<Tensor> parameters, double lr)
    : name_(name), parameters_(std::move(parameters)), lr_(lr) {
  check_lr(name_, lr);
  TANDEM_CHECK(ValueError, !parameters_.empty(), name_, ": there are no parameters");
  std::set<const TensorImpl*> seen;
  for (size_t i = 0; i < parameters_.size(); ++i) {
    const Tensor& parameter = parameters_[i];
    TANDEM_CHECK(StateError, parameter.defined(), name_, ": parameter ", i, " is undefined");
    TANDEM_CHECK(StateError, parameter.is_leaf(), name_, ": parameter ", i, " is the result of an operation (",
                 describe(parameter), "), expected a leaf");
    TANDEM_CHECK(ValueError, seen.insert(&parameter.impl()).second, describe_parameter(i), " is given twice");
    TANDEM_CHECK(DTypeError, parameter.dtype() == kFloat32 || parameter.dtype() == kFloat64, describe_parameter(i),
                 " is ", parameter.dtype(), ", expected float32 or float64");
    TANDEM_CHECK(StateError, parameter.is_contiguous(), describe_parameter(i), " is not row-major");
  }
}

Optimizer::~Optimizer() = default;

void Optimizer::step() {
  const TraceSpan span("optimizer step", "optimizer");
  std::vector<Tensor> gradients;
  for (size_t i = 0; i < parameters_.size(); ++i) {
    gradients.push_back(gradient_of(parameters_[i]));
    if (gradients.back().defined()) check(i);
  }
  for (size_t i = 0; i < parameters_.size(); ++i) {
    if (!gradients[i].defined()) continue;
    update(i, parameters_[i], gradients[i]);
    autograd::end_in_place("step", parameters_[i]);
  }
}

void Optimizer::zero_grad() const {
  for (const Tensor& parameter : parameters_) parameter.zero_grad();
}

void Optimizer::set_lr(double lr) {
  check_lr(name_, lr);
  lr_ = lr;
}

State Optimizer::state_dict() const {
  State state;
  state.set("lr", lr_);
  save_numbers(state);
  state.set("num_parameters", static_cast<int64_t>(parameters_.size()));
  for (size_t i = 0; i < parameters_.size(); ++i) {
    State own;
    if (const std::string name = name_of(parameters_[i]); !name.empty()) own.set("name", name);
    save_tensors(i, own);
    state.set(str("state.", i), std::move(own));
  }
  return state;
}

void Optimizer::load_state_dict(const State& state) {
  const auto lr = state.get<double>("lr");
  const auto count = state.get<int64_t>("num_parameters");
  TANDEM_CHECK(StateError, std::isfinite(lr) && lr >= 0, name_, ": lr in the state is ", lr);
  TANDEM_CHECK(StateError, count == static_cast<int64_t>(parameters_.size()), name_, ": the state is of ", count,
               " parameters, the optimizer has ", parameters_.size());
  std::vector<State> tensors;
  for (size_t i = 0; i < parameters_.size(); ++i) {
    tensors.push_back(state.get<State>(str("state.", i)));
    const std::string mine = name_of(parameters_[i]);
    const std::string saved = tensors.back().find("name") != nullptr ? tensors.back().get<std::string>("name") : "";
    TANDEM_CHECK(StateError, mine.empty() || saved.empty() || mine == saved, describe_parameter(i), " is named '",
                 saved, "' in the state");
  }
  load(state, tensors);
  lr_ = lr;
}

std::string Optimizer::describe_parameter(size_t index) const {
  const std::string name = name_of(parameters_[index]);
  return name.empty() ? str(name_, ": parameter ", index) : str(name_, ": parameter ", index, " ('", name, "')");
}

}  // namespace tandem::inline v0::optim
