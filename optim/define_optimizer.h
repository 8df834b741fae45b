// Defines an optimizer by its rule. The file of an optimizer includes this header, and is compiled for the CPU and,
// with define_optimizer_cuda.h included before, for GPUs.
#pragma once

#include <algorithm>
#include <bit>
#include <iterator>
#include <memory>
#include <string>
#include <string_view>
#include <tuple>
#include <type_traits>
#include <utility>
#include <vector>

#include <tandem/autograd/grad_mode.h>
#include <tandem/base/half.h>
#include <tandem/base/parallel_for.h>
#include <tandem/optim/rule.h>

namespace tandem { inline namespace v0 { namespace optim {

template <class Rule>
inline constexpr size_t kNumState = std::size(Rule::kState);

template <class Rule>
inline constexpr size_t kNumFactors = sizeof(typename Rule::template Factors<double>) / sizeof(double);

/// Whether no state tensor has a name under which Optimizer saves something else.
template <class Rule>
consteval bool has_free_names() {
  for (const auto& tensor : Rule::kState) {
    const std::string_view name = tensor.name;
    if (name == "name" || name == "step" || name == "master") return false;
  }
  return true;
}

/// The factors in the dtype of the update.
template <class Rule, class T>
TANDEM_HOST_DEVICE inline auto factors_as(const double* values) {
  std::array<T, kNumFactors<Rule>> rounded{};
  for (size_t i = 0; i < rounded.size(); ++i) rounded[i] = static_cast<T>(values[i]);
  return std::bit_cast<typename Rule::template Factors<T>>(rounded);
}

/// The master of a 16-bit parameter; see StepCall.
template <class T, class G>
TANDEM_HOST_DEVICE inline T current_master(T master, G rounded) {
  return static_cast<float>(G(master)) == static_cast<float>(rounded) ? master : static_cast<T>(rounded);
}

/// Calls f.operator()<T, cases...>(). The cases are template parameters, so that loops over elements have no branches.
template <class T, size_t kCount, bool... cases, class F>
void visit_cases(unsigned bits, const F& f) {
  if constexpr (sizeof...(cases) == kCount) {
    f.template operator()<T, cases...>();
  } else if ((bits >> sizeof...(cases) & 1) != 0) {
    visit_cases<T, kCount, cases..., true>(bits, f);
  } else {
    visit_cases<T, kCount, cases..., false>(bits, f);
  }
}

template <class Rule, class F>
void visit_call(const StepCall& call, const F& f) {
  constexpr size_t kNumCases = std::tuple_size_v<decltype(Rule::cases({}, false))>;
  call.dtype == kFloat64 ? visit_cases<double, kNumCases>(call.cases, f) : visit_cases<float, kNumCases>(call.cases, f);
}

namespace cpu {

inline constexpr int64_t kStepGrain = 1 << 15;  // 128 KiB of float32: a task takes much longer than its overhead

template <class Rule, bool... cases, class T, class... State>
void update_values(int64_t n, const double* values, const T* __restrict gradient, T* __restrict parameter,
                   State* __restrict... state) {
  const auto factors = factors_as<Rule, T>(values);
  const T sign = static_cast<T>(values[kNumFactors<Rule>]);
  for (int64_t i = 0; i < n; ++i)
    Rule::template update<cases...>(factors, sign * gradient[i], parameter[i], state[i]...);
}

/// Calls f(first, last, gradients as T) for ranges that cover [begin, end). For 16-bit parameters, each range is a
/// block that stays in the cache; its values are converted before and after the call.
template <class T, class G, class F>
void for_each_range(const StepTensors& t, int64_t begin, int64_t end, const F& f) {
  if constexpr (std::is_same_v<T, G>) {
    f(begin, end, static_cast<const T*>(t.gradient) + begin);
  } else {
    constexpr int64_t kBlock = 1024;
    std::array<T, kBlock> gradients;
    G* const rounded = static_cast<G*>(t.rounded);
    T* const master = static_cast<T*>(t.parameter);
    for (int64_t first = begin; first < end; first += kBlock) {
      const int64_t last = std::min(end, first + kBlock);
      for (int64_t i = first; i < last; ++i) {
        gradients[static_cast<size_t>(i - first)] = static_cast<const G*>(t.gradient)[i];
        master[i] = current_master(master[i], rounded[i]);
      }
      f(first, last, gradients.data());
      for (int64_t i = first; i < last; ++i) rounded[i] = G(master[i]);
    }
  }
}

template <class Rule>
void update(const KernelContext&, const StepCall& call) {
  visit_call<Rule>(call, [&]<class T, bool... cases>() {
    for (const StepTensors& t : call.tensors) {
      const auto update = [&](int64_t begin, int64_t end, const T* gradient) {
        [&]<size_t... s>(std::index_sequence<s...>) {
          update_values<Rule, cases...>(end - begin, call.factors.data(), gradient,
                                        static_cast<T*>(t.parameter) + begin, static_cast<T*>(t.state[s]) + begin...);
        }
        (std::make_index_sequence<kNumState<Rule>>());
      };
      parallel_for(t.n, kStepGrain, [&](int64_t begin, int64_t end) {
        if constexpr (std::is_same_v<T, float>) {
          if (call.dtype == kFloat16) return for_each_range<T, Half>(t, begin, end, update);
          if (call.dtype == kBFloat16) return for_each_range<T, BFloat16>(t, begin, end, update);
        }
        for_each_range<T, T>(t, begin, end, update);
      });
    }
  });
}

}  // namespace cpu

/// The option `maximize`; false if the rule has no such option.
template <class Options>
bool is_maximizing(const Options& options) {
  if constexpr (requires { options.maximize; }) return options.maximize;
  return false;
}

/// Prepares a step as the kernels of elementwise rules do, and takes it. Uses members of Tensor that ops/ defines.
template <class Rule>
void update_tensor(const void* options, TensorStep step, const Tensor& rounded) {
  const NoGradGuard no_grad;
  const auto& own = *static_cast<const typename Rule::Options*>(options);
  if (rounded.defined()) {  // current_master; x + -0 is x, also if x is a zero
    const Tensor differs = step.parameter.to(rounded.dtype()).ne(rounded);
    const Tensor others = rounded.to(kFloat32).masked_fill(differs.eq(0), -0.0);
    step.parameter.masked_fill_(differs, -0.0).add_(others);
  }
  step.gradient = step.gradient.to(step.parameter.dtype());
  if (is_maximizing(own)) step.gradient = step.gradient.clone().neg_();
  Rule::update_tensor(own, step);
  if (rounded.defined()) rounded.copy_(step.parameter);
}

#ifdef TANDEM_WITH_CUDA
namespace cuda {
template <class Rule>
void update(const KernelContext& context, const StepCall& call);
}
#endif

/// The parts of an OptimizerRule that only elementwise rules have.
template <class Rule>
void set_elementwise(OptimizerRule& rule) {
  using Options = typename Rule::Options;
  static_assert(kNumFactors<Rule> < kMaxFactors);
  rule.num_factors = kNumFactors<Rule> + 1;
  rule.cases = [](const void* options, bool is_first) {
    unsigned bits = 0, bit = 1;
    for (const bool one : Rule::cases(*static_cast<const Options*>(options), is_first)) {
      if (one) bits |= bit;
      bit <<= 1;
    }
    return bits;
  };
  rule.factors = [](const void* options, int64_t step) {
    const auto values = std::bit_cast<std::array<double, kNumFactors<Rule>>>(
        Rule::factors(*static_cast<const Options*>(options), step));
    std::array<double, kMaxFactors> all{};
    std::copy(values.begin(), values.end(), all.begin());
    all[values.size()] = is_maximizing(*static_cast<const Options*>(options)) ? -1 : 1;
    return all;
  };
  rule.cpu = &cpu::update<Rule>;
#ifdef TANDEM_WITH_CUDA
  rule.cuda = &cuda::update<Rule>;
#endif
}

template <class Rule>
const OptimizerRule& rule() {
  using Options = typename Rule::Options;
  static_assert(kNumState<Rule> <= kMaxStateTensors);
  static_assert(has_free_names<Rule>(), "kState: name, step and master are names of the base class");
  static const OptimizerRule made = [] {
    OptimizerRule rule{};
    rule.name = Rule::kName;
    rule.num_dims = -1;
    if constexpr (requires { Rule::kNumDims; }) rule.num_dims = Rule::kNumDims;
    rule.counts_steps = Rule::kCountsSteps;
    for (const auto& tensor : Rule::kState) rule.state.push_back({tensor.name, tensor.is_used == nullptr});
    rule.options = [](void* options) { return Rule::options(*static_cast<Options*>(options)); };
    rule.problem = [](const void* options) {
      if constexpr (requires(const Options& o) { Rule::problem(o); })
        return Rule::problem(*static_cast<const Options*>(options));
      return std::string();
    };
    rule.copy_options = [](const void* options) -> std::shared_ptr<void> {
      return std::make_shared<Options>(*static_cast<const Options*>(options));
    };
    rule.assign_options = [](const void* from, void* to) {
      *static_cast<Options*>(to) = *static_cast<const Options*>(from);
    };
    rule.used_state = [](const void* options) {
      unsigned bits = 0, bit = 1;
      for (const auto& tensor : Rule::kState) {
        if (tensor.is_used == nullptr || tensor.is_used(*static_cast<const Options*>(options))) bits |= bit;
        bit <<= 1;
      }
      return bits;
    };
    if constexpr (requires(const Options& o, const TensorStep& step) { Rule::update_tensor(o, step); }) {
      rule.update_tensor = &update_tensor<Rule>;
    } else {
      set_elementwise<Rule>(rule);
    }
    return rule;
  }();
  return made;
}

}}}  // namespace tandem::v0::optim

/// Defines the constructors of `Class`, a GroupedOptimizer<Rule::Options>.
#ifndef TANDEM_DEFINE_OPTIMIZER
#define TANDEM_DEFINE_OPTIMIZER(Class, Rule)                                       \
  Class::Class(std::vector<::tandem::Tensor> parameters, Rule::Options options)    \
      : Class({{std::move(parameters), options}}) {}                               \
  Class::Class(std::vector<::tandem::optim::ParameterGroup<Rule::Options>> groups) \
      : GroupedOptimizer(::tandem::optim::rule<Rule>(), std::move(groups)) {}
#endif
