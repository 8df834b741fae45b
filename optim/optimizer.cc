#include <tandem/optim/optimizer.h>

#include <algorithm>
#include <cmath>
#include <set>
#include <utility>

#include <tandem/autograd/leaf.h>
#include <tandem/autograd/node.h>
#include <tandem/base/trace.h>
#include <tandem/tensor/cuda_capture.h>
#include <tandem/tensor/factories.h>
#include <tandem/tensor/primitives.h>

namespace tandem { inline namespace v0 { namespace optim {

namespace {

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
  primitives::copy(gradient, copy);
  return copy;
}

}  // namespace

Optimizer::Optimizer(const char* name, const std::vector<std::vector<Tensor>>& groups) : name_(name) {
  for (const std::vector<Tensor>& group : groups) {
    parameters_.insert(parameters_.end(), group.begin(), group.end());
    group_ends_.push_back(parameters_.size());
  }
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
  std::vector<Update> updates;
  updates.reserve(parameters_.size());
  for (size_t i = 0; i < parameters_.size(); ++i) {
    const Tensor gradient = gradient_of(parameters_[i]);
    if (!gradient.defined()) {
      refuse_in_replays(i);
      continue;
    }
    prepare(i);
    updates.push_back({i, parameters_[i], gradient});
  }
  update(updates);
  for (const Update& done : updates) autograd::end_in_place("step", done.parameter);
}

void Optimizer::zero_grad() const {
  for (const Tensor& parameter : parameters_) parameter.zero_grad();
}

double Optimizer::lr(int64_t group) const { return lr_of(check_group(group)); }

void Optimizer::set_lr(double lr) {
  for (int64_t group = 0; group < num_groups(); ++group) set_lr(group, lr);
}

void Optimizer::set_lr(int64_t group, double lr) {
  const size_t index = check_group(group);
  TANDEM_CHECK(ValueError, std::isfinite(lr) && lr >= 0, name_, ": lr is ", lr, ", expected a finite number >= 0");
  set_lr_of(index, lr);
}

State Optimizer::state_dict() const {
  State state;
  state.set("optimizer", std::string(name_));
  size_t begin = 0;
  for (size_t g = 0; g < group_ends_.size(); ++g) {
    State own;
    save_options(g, own);
    own.set("num_parameters", static_cast<int64_t>(group_ends_[g] - begin));
    begin = group_ends_[g];
    state.set(str("groups.", g), std::move(own));
  }
  for (size_t i = 0; i < parameters_.size(); ++i) {
    State own;
    if (const std::string name = name_of(parameters_[i]); !name.empty()) own.set("name", name);
    save_kept(i, own);
    state.set(str("state.", i), std::move(own));
  }
  return state;
}

void Optimizer::load_state_dict(const State& state) {
  StateReader reader(state);
  if (const auto* saved = reader.read<std::string>("optimizer"); saved != nullptr && *saved != name_)
    reader.refuse("optimizer", str("this one is ", name_, ", the state's ", *saved));
  size_t begin = 0;
  for (size_t g = 0; g < group_ends_.size(); ++g) {
    const auto count = static_cast<int64_t>(group_ends_[g] - begin);
    begin = group_ends_[g];
    const std::string path = str("groups.", g, ".num_parameters");
    if (const auto* saved = reader.read<int64_t>(path); saved != nullptr && *saved != count)
      reader.refuse(path, str(count, " expected, ", *saved, " in the state"));
  }
  for (size_t i = 0; i < parameters_.size(); ++i) {
    const std::string path = str("state.", i, ".name");
    if (!reader.has(path)) continue;
    const std::string mine = name_of(parameters_[i]);
    const auto* saved = reader.read<std::string>(path);
    if (saved != nullptr && !mine.empty() && mine != *saved)
      reader.refuse(path, str("'", mine, "' expected, '", *saved, "' in the state"));
  }
  const std::function<void()> take_over = prepare_load(reader);
  reader.finish(str(name_, ": the state does not fit"));
  take_over();
}

size_t Optimizer::group_of(size_t index) const {
  return static_cast<size_t>(std::upper_bound(group_ends_.begin(), group_ends_.end(), index) - group_ends_.begin());
}

size_t Optimizer::check_group(int64_t group) const {
  TANDEM_CHECK(IndexError, group >= 0 && group < num_groups(), name_, ": group ", group, " is outside the ",
               num_groups(), " groups");
  return static_cast<size_t>(group);
}

std::string Optimizer::describe_parameter(size_t index) const {
  const std::string name = name_of(parameters_[index]);
  return name.empty() ? str(name_, ": parameter ", index) : str(name_, ": parameter ", index, " ('", name, "')");
}

void Optimizer::check_device(size_t index, const char* what, const Tensor& kept) const {
  const Device device = parameters_[index].device();
  TANDEM_CHECK(DeviceError, !kept.defined() || kept.device() == device, describe_parameter(index), " is on ", device,
               ", its ", what, " on ", kept.device(), "; make the optimizer after moving the model");
}

void Optimizer::refuse_in_replays(size_t index) const {
  if (!tandem::cuda::is_capturing(parameters_[index].device())) return;
  tandem::cuda::on_replay([this, index] {
    TANDEM_CHECK(StateError, !gradient_of(parameters_[index]).defined(), describe_parameter(index),
                 " has a gradient, which it had not where the graph was captured; capture another");
  });
}

void Optimizer::refuse_first_in_capture(size_t index) const {
  TANDEM_CHECK(StateError, !tandem::cuda::is_capturing(parameters_[index].device()), describe_parameter(index),
               " takes its first step, which cannot be captured; take one step before");
}

void Optimizer::check_replay(size_t index, const void* parameter, const void* gradient, bool fit) const {
  const Tensor now = gradient_of(parameters_[index]);
  TANDEM_CHECK(StateError,
               fit && parameters_[index].data_ptr() == parameter && now.defined() && now.data_ptr() == gradient,
               describe_parameter(index),
               ", its gradient, state or options have changed, and the graph's step does not fit; capture another");
}

Tensor Optimizer::copy_for(size_t index, const Tensor* saved) const {
  if (saved == nullptr) return {};
  Tensor copy = empty_like(parameters_[index]);
  primitives::copy(*saved, copy);
  return copy;
}

}}}  // namespace tandem::v0::optim
