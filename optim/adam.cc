#include <tandem/optim/adam.h>

#include <string>
#include <utility>

#include <tandem/base/trace.h>
#include <tandem/optim/adam_kernels.h>
#include <tandem/optim/options.h>
#include <tandem/optim/step_batches.h>
#include <tandem/tensor/cuda_capture.h>
#include <tandem/tensor/factories.h>

namespace tandem { inline namespace v0 { namespace optim {

namespace {

/// Calls f(name, value) for each option.
template <class Options, class F>
void each_option(Options& options, F f) {
  f("lr", options.lr);
  f("beta1", options.betas.first);
  f("beta2", options.betas.second);
  f("eps", options.eps);
  f("weight_decay", options.weight_decay);
}

/// What is wrong with a beta; "" if nothing is.
std::string not_below_one(const char* name, double value) {
  return value >= 0 && value < 1 ? "" : str(name, " is ", value, ", expected 0 <= ", name, " < 1");
}

/// What is wrong with the options; "" if nothing is.
std::string problem_of(const AdamOptions& options) {
  std::string problem = not_negative("lr", options.lr);
  if (problem.empty()) problem = not_below_one("beta1", options.betas.first);
  if (problem.empty()) problem = not_below_one("beta2", options.betas.second);
  if (problem.empty()) problem = not_negative("eps", options.eps);
  if (problem.empty()) problem = not_negative("weight_decay", options.weight_decay);
  return problem;
}

void check_options(const char* name, const AdamOptions& options) {
  const std::string problem = problem_of(options);
  TANDEM_CHECK(ValueError, problem.empty(), name, ": ", problem);
}

AdamOptions adam_options(const AdamWOptions& options) {
  return {options.lr, options.betas, options.eps, options.weight_decay};
}

std::vector<ParameterGroup<AdamOptions>> adam_groups(std::vector<ParameterGroup<AdamWOptions>> groups) {
  std::vector<ParameterGroup<AdamOptions>> result;
  for (auto& group : groups) result.push_back({std::move(group.parameters), adam_options(group.options)});
  return result;
}

}  // namespace

Adam::Adam(std::vector<Tensor> parameters, AdamOptions options) : Adam({{std::move(parameters), options}}) {}

Adam::Adam(std::vector<ParameterGroup<AdamOptions>> groups) : Adam("Adam", false, std::move(groups)) {}

Adam::Adam(const char* name, bool decoupled, std::vector<ParameterGroup<AdamOptions>> groups)
    : GroupedOptimizer(name, std::move(groups)), decoupled_(decoupled), kept_(parameters().size()) {
  for (const auto& group : groups_) check_options(name, group.options);
}

AdamW::AdamW(std::vector<Tensor> parameters, AdamWOptions options)
    : Adam("AdamW", true, {{std::move(parameters), adam_options(options)}}) {}

AdamW::AdamW(std::vector<ParameterGroup<AdamWOptions>> groups) : Adam("AdamW", true, adam_groups(std::move(groups))) {}

void Adam::set_options(int64_t group, const AdamOptions& options) {
  const size_t index = check_group(group);
  check_options(name(), options);
  groups_[index].options = options;
}

AdamStep Adam::step_of(size_t index) const {
  const AdamOptions& options = options_of(index);
  return {group_of(index), options.lr,           options.betas.first, options.betas.second,
          options.eps,     options.weight_decay, decoupled_,          kept_[index].steps};
}

void Adam::prepare(size_t index) {
  Kept& kept = kept_[index];
  check_device(index, "moments", kept.mean);
  if (kept.steps == 0) refuse_first_in_capture(index);
  if (kept.mean.defined()) return;
  kept.square = empty_like(parameters()[index]);
  kept.mean = empty_like(parameters()[index]);
}

void Adam::update(const std::vector<Update>& updates) {
  // Those that take the same step in the same place go together: on a GPU they are one launch.
  StepBatches<AdamStep, AdamTensors> batches;
  for (const auto& [index, parameter, gradient] : updates) {
    Kept& kept = kept_[index];
    ++kept.steps;
    trace_work(0, 7 * parameter.num_bytes());  // four tensors, of which the gradient is not written
    batches.add(index, parameter, step_of(index),
                {parameter.num_elements(), gradient.data_ptr(), parameter.data_ptr(), kept.mean.data_ptr(),
                 kept.square.data_ptr()});
  }
  for (const auto& batch : batches.all()) {
    AdamStep step = batch.step;
    const auto next = [this, batch] {
      const size_t first = batch.indices[0];
      for (size_t i = 0; i < batch.indices.size(); ++i) {
        const size_t index = batch.indices[i];
        const Kept& kept = kept_[index];
        const AdamTensors& there = batch.tensors[i];
        const bool is_there =
            kept.steps > 0 && kept.mean.data_ptr() == there.mean && kept.square.data_ptr() == there.square;
        check_replay(index, there.parameter, there.gradient,
                     is_there && kept.steps == kept_[first].steps && decay_of(step_of(index)) == decay_of(batch.step));
      }
      for (const size_t index : batch.indices) ++kept_[index].steps;
      return AdamFactors<double>(step_of(first));
    };
    step.of_step = tandem::cuda::step_value(batch.device, AdamFactors<double>(step), next);
    TANDEM_KERNEL(kernel_context(batch.device), adam, batch.dtype, step, batch.tensors);
  }
}

void Adam::save_options(size_t group, State& state) const {
  each_option(groups_[group].options, [&](const char* name, double value) { state.set(name, value); });
}

void Adam::save_kept(size_t index, State& state) const {
  const Kept& kept = kept_[index];
  if (kept.steps == 0) return;
  state.set("step", kept.steps);
  state.set("exp_avg", kept.mean);
  state.set("exp_avg_sq", kept.square);
}

std::function<void()> Adam::prepare_load(StateReader& reader) {
  std::vector<AdamOptions> options(groups_.size());
  for (size_t g = 0; g < options.size(); ++g) {
    const std::string path = str("groups.", g);
    each_option(options[g], [&](const char* name, double& value) { read_into(reader, path, name, value); });
    if (const std::string problem = problem_of(options[g]); !problem.empty()) reader.refuse(path, problem);
  }
  struct Saved {
    int64_t steps = 0;
    const Tensor* mean = nullptr;
    const Tensor* square = nullptr;
  };
  std::vector<Saved> saved(kept_.size());
  for (size_t i = 0; i < saved.size(); ++i) {
    const std::string path = str("state.", i);
    const Tensor& parameter = parameters()[i];
    if (!reader.has(path + ".step") && !reader.has(path + ".exp_avg") && !reader.has(path + ".exp_avg_sq")) continue;
    read_into(reader, path, "step", saved[i].steps);
    if (reader.has(path + ".step") && saved[i].steps < 1)
      reader.refuse(path + ".step", str("is ", saved[i].steps, ", expected at least 1"));
    saved[i].mean = reader.read_tensor(path + ".exp_avg", parameter);
    saved[i].square = reader.read_tensor(path + ".exp_avg_sq", parameter);
  }
  return [this, options = std::move(options), saved = std::move(saved)] {
    std::vector<Kept> kept;
    for (size_t i = 0; i < saved.size(); ++i)
      kept.push_back({saved[i].steps, copy_for(i, saved[i].mean), copy_for(i, saved[i].square)});
    for (size_t g = 0; g < options.size(); ++g) groups_[g].options = options[g];
    kept_ = std::move(kept);
  };
}

}}}  // namespace tandem::v0::optim
