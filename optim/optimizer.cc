#include <tandem/optim/optimizer.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>
#include <optional>
#include <set>
#include <tuple>
#include <type_traits>
#include <utility>

#include <tandem/autograd/leaf.h>
#include <tandem/autograd/node.h>
#include <tandem/base/trace.h>
#include <tandem/optim/gradient_batches.h>
#include <tandem/optim/rule.h>
#include <tandem/tensor/cuda_capture.h>
#include <tandem/tensor/factories.h>
#include <tandem/tensor/primitives.h>
#include <tandem/tensor/state_pieces.h>
#include <tandem/tensor/state_reader.h>

namespace tandem { inline namespace v0 { namespace optim {

namespace {

constexpr const char* kMaster = "master";  // in states

/// The name that the parameter's module gave it; "" if it has none.
std::string name_of(const Tensor& parameter) {
  return parameter.requires_grad() ? autograd::leaf(parameter).name : std::string();
}

/// The parameter's gradient, row-major; undefined if there is none.
Tensor row_major_gradient(const Tensor& parameter) {
  const Tensor gradient = gradient_of("step", parameter);
  if (!gradient.defined() || gradient.is_contiguous()) return gradient;
  Tensor copy = empty_like(gradient);  // slots are row-major, except after a backward with create_graph
  primitives::copy(gradient, copy);
  return copy;
}

/// The shape of the parameter's state on this rank: [elements of the shard], or the parameter's if it has no shard.
Shape state_shape(const Tensor& parameter) {
  const autograd::LeafShard* const shard = shard_of(parameter);
  return shard != nullptr ? Shape{shard->size()} : parameter.shape();
}

/// The first element of the parameter that this rank updates.
int64_t state_begin(const Tensor& parameter) {
  const autograd::LeafShard* const shard = shard_of(parameter);
  return shard != nullptr ? shard->begin : 0;
}

/// The parameter's copy for autocast that a step writes; undefined if there is none, or if the parameter has a shard.
Tensor copy_of(const Tensor& parameter) {
  return autograd::is_copied_by_autocast(parameter) && shard_of(parameter) == nullptr
             ? autograd::leaf(parameter).rounded.existing()
             : Tensor();
}

/// The parameter's copy if it is of dtype `dtype`, else undefined.
Tensor copy_of(const Tensor& parameter, DType dtype) {
  const Tensor copy = copy_of(parameter);
  return copy.defined() && copy.dtype() == dtype ? copy : Tensor();
}

/// Describes invalid options; "" if they are valid.
std::string problem_of(const OptimizerRule& rule, void* options) {
  const std::string problem = problem_of(rule.options(options), 1);
  return problem.empty() ? rule.problem(options) : problem;
}

/// The option of this name, if its value is a number or a bool.
std::optional<Option> find_option(const OptimizerRule& rule, void* options, std::string_view name) {
  for (const Option& option : rule.options(options)) {
    if (option.name == name && !std::holds_alternative<std::string*>(option.value)) return option;
  }
  return std::nullopt;
}

/// Calls f with the value of an option that find_option returned.
template <class F>
void visit_number(const Option& option, const F& f) {
  std::visit(
      [&]<class T>(T* value) {
        if constexpr (std::is_arithmetic_v<T>) f(*value);
      },
      option.value);
}

/// The dtype of a parameter's state and arithmetic.
DType state_dtype(const Tensor& parameter) { return parameter.dtype() == kFloat64 ? kFloat64 : kFloat32; }

bool is_16_bit(const Tensor& parameter) { return parameter.dtype() == kFloat16 || parameter.dtype() == kBFloat16; }

}  // namespace

/// A parameter that a step changes; its state exists.
struct Optimizer::Update {
  size_t index;
  size_t group;
  Tensor gradient;  ///< row-major
  unsigned used;    ///< OptimizerRule::used_state
  unsigned cases;   ///< OptimizerRule::cases; in a first step, some of the state was made
};

/// Parameters that one kernel updates.
struct Optimizer::Batch {
  Device device;
  DType dtype;
  DType copy_dtype;  ///< of the copies for autocast that the kernel writes
  size_t group;
  unsigned used;
  unsigned cases;
  int64_t steps;                ///< the step's number; 0 if the rule does not count steps
  std::vector<size_t> indices;  ///< of the parameters
  std::vector<StepTensors> tensors;
};

Optimizer::~Optimizer() = default;

// --- Groups and options --------------------------------------------------------------------------------------------

void Optimizer::check_group(const std::vector<Tensor>& parameters, void* options) const {
  std::set<const TensorImpl*> seen;
  for (const Tensor& parameter : parameters_) seen.insert(&parameter.impl());
  for (size_t i = parameters_.size(); i < parameters_.size() + parameters.size(); ++i) {
    const Tensor& parameter = parameters[i - parameters_.size()];
    TANDEM_CHECK(StateError, parameter.defined(), rule_.name, ": parameter ", i, " is undefined");
    TANDEM_CHECK(StateError, parameter.is_leaf(), rule_.name, ": parameter ", i, " is the result of an operation (",
                 tandem::describe(parameter), "), expected a leaf");
    TANDEM_CHECK(ValueError, seen.insert(&parameter.impl()).second, describe(i, parameter), " is given twice");
    TANDEM_CHECK(DTypeError, is_floating_point(parameter.dtype()), describe(i, parameter), " is ", parameter.dtype(),
                 ", expected a floating-point dtype");
    TANDEM_CHECK(StateError, parameter.is_contiguous(), describe(i, parameter), " is not contiguous");
    TANDEM_CHECK(ValueError, rule_.num_dims < 0 || parameter.dim() == rule_.num_dims, describe(i, parameter), " is ",
                 parameter.shape(), ", expected ", rule_.num_dims, " dimensions");
  }
  check_options(options);
}

void Optimizer::add_group(const std::vector<Tensor>& parameters, void* first_options, size_t stride) {
  parameters_.insert(parameters_.end(), parameters.begin(), parameters.end());
  group_ends_.push_back(parameters_.size());
  first_options_ = static_cast<std::byte*>(first_options);
  options_stride_ = stride;
  states_.resize(parameters_.size());
}

void Optimizer::check_not_empty() const {
  TANDEM_CHECK(ValueError, !parameters_.empty(), rule_.name, ": no parameters, expected at least one");
}

void Optimizer::check_options(int64_t group, void* options) const {
  check_index(group);
  check_options(options);
}

void Optimizer::check_options(void* options) const {
  const std::string problem = problem_of(rule_, options);
  TANDEM_CHECK(ValueError, problem.empty(), rule_.name, ": ", problem);
}

bool Optimizer::has_option(std::string_view name) const { return find_option(rule_, options_of(0), name).has_value(); }

double Optimizer::option(int64_t group, std::string_view name) const {
  const auto option = find_option(rule_, options_of(check_index(group)), name);
  TANDEM_CHECK(ValueError, option.has_value(), rule_.name, ": no option is named '", name, "'");
  double result = 0;
  visit_number(*option, [&](const auto& value) { result = static_cast<double>(value); });
  return result;
}

void Optimizer::set_option(int64_t group, std::string_view name, double value) {
  const size_t g = check_index(group);
  option(group, name);  // throws for a wrong name
  visit_number(*find_option(rule_, options_of(g), name), [&]<class T>(T& own) {
    if constexpr (std::is_same_v<T, bool>) {
      TANDEM_CHECK(ValueError, value == 0 || value == 1, rule_.name, ": ", name, " is ", value, ", expected 0 or 1");
    } else if constexpr (std::is_integral_v<T>) {
      const bool is_in_range = value >= -0x1p63 && value < 0x1p63;  // false for NaN
      TANDEM_CHECK(ValueError, is_in_range && std::trunc(value) == value, rule_.name, ": ", name, " is ", value,
                   ", expected an integer");
    }
    const T before = own;
    own = static_cast<T>(value);
    try {
      check_options(options_of(g));
    } catch (...) {
      own = before;
      throw;
    }
  });
}

void Optimizer::set_lr(double lr) {
  for (int64_t group = 0; group < num_groups(); ++group) set_lr(group, lr);
}

size_t Optimizer::check_index(int64_t group) const {
  TANDEM_CHECK(IndexError, group >= 0 && group < num_groups(), rule_.name, ": group is ", group,
               ", expected 0 <= group < ", num_groups());
  return static_cast<size_t>(group);
}

std::string Optimizer::describe(size_t index, const Tensor& parameter) const {
  const std::string name = name_of(parameter);
  return name.empty() ? str(rule_.name, ": parameter ", index)
                      : str(rule_.name, ": parameter ", index, " ('", name, "')");
}

// --- Steps ---------------------------------------------------------------------------------------------------------

void Optimizer::step(const Tensor& skip) {
  const TraceSpan span("optimizer step", "optimizer");
  settle();
  if (skip.defined()) tandem::cuda::on_replay([this] { settle(); });
  const std::vector<Update> updates = prepare();
  for (const Update& update : updates) {  // before a change
    if (const auto* shard = shard_of(parameters_[update.index])) shard->group->exchange({});
  }
  DType copy_dtype = kBFloat16;  // a step writes copies of one dtype
  for (const Update& update : updates) {
    if (const Tensor copy = copy_of(parameters_[update.index]); copy.defined()) copy_dtype = copy.dtype();
  }
  if (rule_.update_tensor != nullptr) {
    for (const Update& update : updates) update_tensor(update);
  } else {
    for (const Batch& batch : count_steps(updates, copy_dtype)) run(batch, skip);
  }
  if (skip.defined()) {
    maybe_skipped_.clear();
    for (const Update& update : updates) maybe_skipped_.push_back(update.index);
    skip_ = skip;
    tandem::cuda::on_replay([this, skip] { skip_ = skip; });
    tandem::cuda::on_failed_capture([this] { skip_ = {}; });
  }
  exchange(updates);
  for (const Update& update : updates) {
    const Tensor& parameter = parameters_[update.index];
    autograd::end_in_place("step", parameter);
    if (rule_.update_tensor == nullptr && copy_of(parameter, copy_dtype).defined())
      autograd::leaf(parameter).rounded.end_step(parameter);
  }
}

/// Exchanges the updated shards between the ranks, so that every rank has the whole parameters.
void Optimizer::exchange(const std::vector<Update>& updates) const {
  std::vector<Tensor> divided;
  for (const Update& update : updates) {
    if (shard_of(parameters_[update.index]) != nullptr) divided.push_back(parameters_[update.index]);
  }
  for (const DividedParameters& own : by_group(divided)) {
    std::vector<const autograd::Leaf*> leaves;
    for (const Tensor& parameter : own.parameters) leaves.push_back(&autograd::leaf(parameter));
    own.group->exchange(leaves);
  }
}

void Optimizer::settle() const {
  if (!skip_.defined()) return;
  TANDEM_CHECK(
      StateError, !tandem::cuda::is_capturing(), rule_.name,
      ": the last step of a cuda::Graph may have been skipped; call state_dict() before the capture of another "
      "graph");
  if (std::exchange(skip_, {}).to_vector<int32_t>()[0] == 0) return;
  for (const size_t index : maybe_skipped_) --states_[index].steps;
}

void Optimizer::zero_grad() const {
  for (const Tensor& parameter : parameters_) parameter.zero_grad();
}

/// Makes the state that the step needs: all of it or, if this throws, nothing.
std::vector<Optimizer::Update> Optimizer::prepare() {
  std::vector<Update> updates;
  updates.reserve(parameters_.size());
  std::vector<std::pair<Tensor*, Tensor>> made;
  size_t group = 0;
  for (size_t i = 0; i < parameters_.size(); ++i) {
    while (i == group_ends_[group]) ++group;
    const Tensor& parameter = parameters_[i];
    const Tensor gradient = row_major_gradient(parameter);
    if (!gradient.defined()) {
      if (tandem::cuda::is_capturing(parameter.device())) {
        tandem::cuda::on_replay([this, i] {
          TANDEM_CHECK(StateError, !row_major_gradient(parameters_[i]).defined(), describe_parameter(i),
                       " has a gradient, but it had none during the capture; capture a new graph");
        });
      }
      continue;
    }
    const autograd::LeafShard* const shard = shard_of(parameter);
    TANDEM_CHECK(StateError, shard == nullptr || rule_.update_tensor == nullptr, describe_parameter(i),
                 " is updated as a whole, but a DistributedDataParallel divides it among ranks; construct that without "
                 "shard, or use an elementwise optimizer");
    const Shape shape = state_shape(parameter);
    const int64_t begin = state_begin(parameter);
    const unsigned used = rule_.used_state(options_of(group));
    /// Returns whether the tensor had to be made.
    const auto prepare_tensor = [&](Tensor& tensor, const char* name, bool is_used) {
      TANDEM_CHECK(DeviceError, !tensor.defined() || tensor.device() == parameter.device(), describe_parameter(i),
                   " is on ", parameter.device(), ", its ", name, " on ", tensor.device(),
                   "; create the optimizer after moving the model");
      TANDEM_CHECK(DTypeError, !tensor.defined() || tensor.dtype() == state_dtype(parameter), describe_parameter(i),
                   " is ", parameter.dtype(), ", its ", name, " ", tensor.dtype(),
                   "; create the optimizer after converting the model");
      TANDEM_CHECK(StateError, !tensor.defined() || (tensor.shape() == shape && states_[i].begin == begin),
                   describe_parameter(i), ": its ", name, " is of elements ", states_[i].begin, " to ",
                   states_[i].begin + tensor.numel(), ", but this rank updates elements ", begin, " to ",
                   begin + num_elements(shape),
                   "; create the optimizer after the DistributedDataParallel, or load the "
                   "state that it had before");
      if (tensor.defined() || !is_used) return false;
      TANDEM_CHECK(StateError, !tandem::cuda::is_capturing(parameter.device()), describe_parameter(i),
                   ": its first step cannot be captured; take one step before the capture");
      made.emplace_back(&tensor, zeros(shape, {state_dtype(parameter), parameter.device()}));
      return true;
    };
    TANDEM_CHECK(DTypeError, !states_[i].master.defined() || is_16_bit(parameter), describe_parameter(i), " is ",
                 parameter.dtype(), ", but has a master; create the optimizer after converting the model");
    prepare_tensor(states_[i].master, kMaster, is_16_bit(parameter));
    bool is_first = false;
    for (size_t s = 0; s < rule_.state.size(); ++s)
      is_first |= prepare_tensor(states_[i].tensors[s], rule_.state[s].name, (used >> s & 1) != 0);
    const unsigned cases = rule_.cases == nullptr ? 0 : rule_.cases(options_of(group), is_first);
    updates.push_back({i, group, gradient, used, cases});
  }
  for (auto& [tensor, zeroed] : made) *tensor = std::move(zeroed);
  for (const Update& update : updates) states_[update.index].begin = state_begin(parameters_[update.index]);
  return updates;
}

std::vector<Optimizer::Batch> Optimizer::count_steps(const std::vector<Update>& updates, DType copy_dtype) {
  std::vector<Batch> batches;
  for (const auto& [index, group, gradient, used, cases] : updates) {
    const Tensor& parameter = parameters_[index];
    const int64_t steps = ++states_[index].steps;
    // The gradient is read; the parameter, its master and its state are read and written.
    const int num_wide = std::popcount(used) + (is_16_bit(parameter) ? 1 : 0);
    trace_work(0, gradient.numel() * (3 * static_cast<int64_t>(size_of(parameter.dtype())) +
                                      2 * num_wide * static_cast<int64_t>(size_of(state_dtype(parameter)))));

    const auto key = std::tuple(parameter.device(), parameter.dtype(), group, cases, rule_.counts_steps ? steps : 0);
    auto found = std::find_if(batches.begin(), batches.end(), [&](const Batch& b) {
      return std::tie(b.device, b.dtype, b.group, b.cases, b.steps) == key;
    });
    if (found == batches.end()) {
      const auto [device, dtype, group_, cases_, steps_] = key;
      found = batches.insert(found, {device, dtype, copy_dtype, group_, used, cases_, steps_, {}, {}});
    }
    found->indices.push_back(index);
    found->tensors.push_back(step_tensors(index, gradient, used, copy_dtype));
  }
  return batches;
}

StepTensors Optimizer::step_tensors(size_t index, const Tensor& gradient, unsigned used, DType copy_dtype) const {
  const Tensor& parameter = parameters_[index];
  const bool has_master = is_16_bit(parameter);
  const autograd::LeafShard* const shard = shard_of(parameter);
  std::byte* const own = shard != nullptr ? shard->values.data_ptr() : parameter.data_ptr();
  StepTensors tensors = {shard != nullptr ? shard->size() : parameter.numel(),
                         gradient.defined() ? gradient.data_ptr() : nullptr,
                         has_master ? states_[index].master.data_ptr() : own,
                         has_master ? own : nullptr,
                         {}};
  if (const Tensor copy = copy_of(parameter, copy_dtype); copy.defined()) tensors.rounded = copy.data_ptr();
  for (size_t s = 0; s < rule_.state.size(); ++s) {
    const Tensor& tensor = states_[index].tensors[s];
    tensors.state[s] = tensor.defined() && (used >> s & 1) != 0 ? tensor.data_ptr() : tensors.parameter;
  }
  return tensors;
}

void Optimizer::update_tensor(const Update& update) {
  const Tensor& parameter = parameters_[update.index];
  TANDEM_CHECK(StateError, !tandem::cuda::is_capturing(parameter.device()), rule_.name, ": a step cannot be captured");
  ParameterState& state = states_[update.index];
  ++state.steps;
  const bool has_master = is_16_bit(parameter);
  const Tensor values = parameter.detach();
  rule_.update_tensor(
      options_of(update.group),
      {update.gradient, has_master ? state.master : values, state.tensors, rule_.counts_steps ? state.steps : 0},
      has_master ? values : Tensor());
}

void Optimizer::run(const Batch& batch, const Tensor& skip) {
  void* const options = options_of(batch.group);
  StepCall call = {.dtype = batch.dtype,
                   .copy_dtype = batch.copy_dtype,
                   .cases = batch.cases,
                   .factors = rule_.factors(options, batch.steps),
                   .replay_factors = nullptr,
                   .skip = skip.defined() ? skip.data<int32_t>() : nullptr,
                   .tensors = batch.tensors};
  const size_t num_bytes = rule_.num_factors * sizeof(double);
  if (tandem::cuda::is_capturing(batch.device)) {
    // A replay runs the same kernels on the same memory. The host counts the step and passes the factors of this step
    // to the kernels.
    const auto replay = [this, batch, options, num_bytes](void* bytes) {
      const int64_t steps = states_[batch.indices[0]].steps;
      for (size_t i = 0; i < batch.indices.size(); ++i) {
        const size_t index = batch.indices[i];
        const bool fits = step_tensors(index, row_major_gradient(parameters_[index]), batch.used, batch.copy_dtype) ==
                              batch.tensors[i] &&
                          rule_.cases(options, false) == batch.cases && rule_.used_state(options) == batch.used &&
                          (!rule_.counts_steps || states_[index].steps == steps);
        TANDEM_CHECK(StateError, fits, describe_parameter(index),
                     ": the parameter, its gradient, state or options changed after the capture; capture a new graph");
      }
      for (const size_t index : batch.indices) ++states_[index].steps;
      const auto factors = rule_.factors(options, steps + 1);
      std::memcpy(bytes, factors.data(), num_bytes);
    };
    call.replay_factors = tandem::cuda::add_step_bytes(call.factors.data(), num_bytes, replay).data<double>();
  }
  const TraceSpan span(rule_.name, "algorithm");
  TANDEM_CHECK(DeviceError, batch.device.is_cpu() || rule_.cuda != nullptr, rule_.name, " has no kernel for ",
               batch.device);
  (batch.device.is_cpu() ? rule_.cpu : rule_.cuda)(kernel_context(batch.device), call);
}

// --- States --------------------------------------------------------------------------------------------------------

State Optimizer::state_dict() const {
  settle();
  State state;
  state.set("optimizer", std::string(rule_.name));
  size_t begin = 0;
  for (size_t g = 0; g < group_ends_.size(); ++g) {
    State own;
    save_options(rule_.options(options_of(g)), own);
    own.set("num_parameters", static_cast<int64_t>(group_ends_[g] - begin));
    begin = group_ends_[g];
    state.set(str("groups.", g), std::move(own));
  }
  for (size_t i = 0; i < parameters_.size(); ++i) {
    State own;
    if (const std::string name = name_of(parameters_[i]); !name.empty()) own.set("name", name);
    if (rule_.counts_steps && states_[i].steps > 0) own.set("step", states_[i].steps);
    const auto set = [&](const char* name, const Tensor& tensor) {
      if (!tensor.defined()) return;
      const autograd::LeafShard* const shard = shard_of(parameters_[i]);
      shard == nullptr ? own.set(name, tensor)
                       : own.set(name, make_pieces(parameters_[i].shape(), shard->begin, tensor));
    };
    set(kMaster, states_[i].master);
    for (size_t s = 0; s < rule_.state.size(); ++s) set(rule_.state[s].name, states_[i].tensors[s]);
    state.set(str("state.", i), std::move(own));
  }
  return state;
}

void Optimizer::load_state_dict(const State& state) {
  settle();
  StateReader reader(state);
  if (const auto* saved = reader.read<std::string>("optimizer"); saved != nullptr && *saved != rule_.name)
    reader.refuse("optimizer", str(rule_.name, " expected, ", *saved, " in the state"));
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

  std::vector<std::shared_ptr<void>> options;
  for (size_t g = 0; g < group_ends_.size(); ++g) {
    const std::string path = str("groups.", g);
    options.push_back(rule_.copy_options(options_of(g)));
    load_options(rule_.options(options[g].get()), reader, path + ".");
    if (const std::string problem = problem_of(rule_, options[g].get()); !problem.empty()) reader.refuse(path, problem);
  }

  struct Saved {
    int64_t steps = 0;
    std::vector<std::optional<std::vector<Tensor>>> tensors;  ///< consecutive elements, 1-D
    std::optional<std::vector<Tensor>> master;
  };
  std::vector<Saved> saved(parameters_.size());
  for (size_t i = 0; i < saved.size(); ++i) {
    const Tensor& parameter = parameters_[i];
    const int64_t first = state_begin(parameter), last = first + num_elements(state_shape(parameter));
    const auto path = [i](const char* name) { return str("state.", i, ".", name); };
    const auto read = [&](const char* name) {
      return std::optional(reader.read_elements(path(name), parameter.shape(), state_dtype(parameter), first, last));
    };
    bool has_state = (rule_.counts_steps && reader.has(path("step"))) || reader.has(path(kMaster));
    for (const auto& [name, is_always_used] : rule_.state) has_state = has_state || reader.has(path(name));
    if (has_state && rule_.counts_steps) {
      if (const auto* steps = reader.read<int64_t>(path("step"))) {
        saved[i].steps = *steps;
        if (*steps < 1) reader.refuse(path("step"), str("is ", *steps, ", expected at least 1"));
      }
    }
    for (const auto& [name, is_always_used] : rule_.state) {
      const bool is_expected = (has_state && is_always_used) || reader.has(path(name));
      saved[i].tensors.push_back(is_expected ? read(name) : std::nullopt);
    }
    if (has_state && is_16_bit(parameter)) saved[i].master = read(kMaster);
  }
  reader.finish(str(rule_.name, ": the state does not fit"));

  std::vector<ParameterState> states;  // complete before anything is changed: copies need memory
  for (size_t i = 0; i < saved.size(); ++i) {
    ParameterState& own = states.emplace_back();
    own.steps = saved[i].steps;
    own.begin = state_begin(parameters_[i]);
    const auto copy = [&](const std::optional<std::vector<Tensor>>& from, Tensor& to) {
      if (!from) return;
      to = empty(state_shape(parameters_[i]), {state_dtype(parameters_[i]), parameters_[i].device()});
      copy_elements(*from, to);
    };
    for (size_t s = 0; s < rule_.state.size(); ++s) copy(saved[i].tensors[s], own.tensors[s]);
    copy(saved[i].master, own.master);
  }
  for (size_t g = 0; g < options.size(); ++g) rule_.assign_options(options[g].get(), options_of(g));
  states_ = std::move(states);
}

}}}  // namespace tandem::v0::optim
