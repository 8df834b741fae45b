#include <tandem/optim/sgd.h>

#include <cmath>
#include <string>
#include <utility>

#include <tandem/base/trace.h>
#include <tandem/optim/options.h>
#include <tandem/optim/sgd_kernels.h>
#include <tandem/optim/step_batches.h>
#include <tandem/tensor/cuda_capture.h>
#include <tandem/tensor/factories.h>

namespace tandem { inline namespace v0 { namespace optim {

namespace {

constexpr const char* kBuffer = "momentum_buffer";

/// Calls f(name, value) for each option.
template <class Options, class F>
void each_option(Options& options, F f) {
  f("lr", options.lr);
  f("momentum", options.momentum);
  f("dampening", options.dampening);
  f("weight_decay", options.weight_decay);
  f("nesterov", options.nesterov);
}

/// What is wrong with the options; "" if nothing is.
std::string problem_of(const SGDOptions& options) {
  std::string problem = not_negative("lr", options.lr);
  if (problem.empty()) problem = not_negative("momentum", options.momentum);
  if (problem.empty()) problem = not_negative("weight_decay", options.weight_decay);
  if (problem.empty() && !std::isfinite(options.dampening))
    problem = str("dampening is ", options.dampening, ", expected a finite number");
  if (problem.empty() && options.nesterov && (options.momentum == 0 || options.dampening != 0))
    problem = str("nesterov needs momentum > 0 and dampening 0, got ", options.momentum, " and ", options.dampening);
  return problem;
}

void check_options(const SGDOptions& options) {
  const std::string problem = problem_of(options);
  TANDEM_CHECK(ValueError, problem.empty(), "SGD: ", problem);
}

}  // namespace

SGD::SGD(std::vector<Tensor> parameters, SGDOptions options) : SGD({{std::move(parameters), options}}) {}

SGD::SGD(std::vector<ParameterGroup<SGDOptions>> groups)
    : GroupedOptimizer("SGD", std::move(groups)), kept_(parameters().size()) {
  for (const auto& group : groups_) check_options(group.options);
}

void SGD::set_options(int64_t group, const SGDOptions& options) {
  const size_t index = check_group(group);
  check_options(options);
  groups_[index].options = options;
}

SgdStep SGD::step_of(size_t index) const {
  const SGDOptions& options = options_of(index);
  return {group_of(index),      options.lr,       options.momentum,     options.dampening,
          options.weight_decay, options.nesterov, !kept_[index].started};
}

void SGD::prepare(size_t index) {
  Tensor& buffer = kept_[index].buffer;
  check_device(index, "momentum buffer", buffer);
  if (options_of(index).momentum == 0) return;
  if (!kept_[index].started) refuse_first_in_capture(index);
  if (!buffer.defined()) buffer = empty_like(parameters()[index]);
}

void SGD::update(const std::vector<Update>& updates) {
  StepBatches<SgdStep, SgdTensors> batches;
  for (const auto& [index, parameter, gradient] : updates) {
    const bool use_buffer = options_of(index).momentum != 0;
    Kept& kept = kept_[index];
    trace_work(0, (use_buffer ? 5 : 3) * parameter.num_bytes());  // of its tensors, only the gradient is not written
    batches.add(index, parameter, step_of(index),
                {parameter.num_elements(), gradient.data_ptr(), parameter.data_ptr(),
                 use_buffer ? kept.buffer.data_ptr() : nullptr});
    kept.started = kept.started || use_buffer;
  }
  for (const auto& batch : batches.all()) {
    SgdStep step = batch.step;
    const auto next = [this, batch] {
      const SgdStep& then = batch.step;
      for (size_t i = 0; i < batch.indices.size(); ++i) {
        const size_t index = batch.indices[i];
        const SgdStep now = step_of(index);
        const SgdTensors& there = batch.tensors[i];
        const bool is_there =
            there.buffer == nullptr || (kept_[index].started && kept_[index].buffer.data_ptr() == there.buffer);
        check_replay(index, there.parameter, there.gradient,
                     is_there && (now.weight_decay != 0) == (then.weight_decay != 0) &&
                         (now.momentum != 0) == (then.momentum != 0) && now.nesterov == then.nesterov);
      }
      return SgdFactors<double>(step_of(batch.indices[0]));
    };
    step.of_step = tandem::cuda::step_value(batch.device, SgdFactors<double>(step), next);
    TANDEM_KERNEL(kernel_context(batch.device), sgd, batch.dtype, step, batch.tensors);
  }
}

void SGD::save_options(size_t group, State& state) const {
  each_option(groups_[group].options, [&](const char* name, auto value) { state.set(name, value); });
}

void SGD::save_kept(size_t index, State& state) const {
  if (kept_[index].started) state.set(kBuffer, kept_[index].buffer);
}

std::function<void()> SGD::prepare_load(StateReader& reader) {
  std::vector<SGDOptions> options(groups_.size());
  for (size_t g = 0; g < options.size(); ++g) {
    const std::string path = str("groups.", g);
    each_option(options[g], [&](const char* name, auto& value) { read_into(reader, path, name, value); });
    if (const std::string problem = problem_of(options[g]); !problem.empty()) reader.refuse(path, problem);
  }
  std::vector<const Tensor*> saved(parameters().size());
  for (size_t i = 0; i < saved.size(); ++i) {
    const std::string path = str("state.", i, ".", kBuffer);
    if (reader.has(path)) saved[i] = reader.read_tensor(path, parameters()[i]);
  }
  return [this, options = std::move(options), saved = std::move(saved)] {
    std::vector<Kept> kept;
    for (size_t i = 0; i < saved.size(); ++i) kept.push_back({copy_for(i, saved[i]), saved[i] != nullptr});
    for (size_t g = 0; g < options.size(); ++g) groups_[g].options = options[g];
    kept_ = std::move(kept);
  };
}

}}}  // namespace tandem::v0::optim
