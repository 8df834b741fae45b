// Defines an optimizer by its rule. The file of an optimizer includes this header, and is compiled for the CPU and,
// with define_optimizer_cuda.h included before, for GPUs.
#pragma once

#include <algorithm>
#include <bit>
#include <iterator>
#include <tuple>
#include <utility>

#include <tandem/base/parallel_for.h>
#include <tandem/optim/rule.h>

namespace tandem { inline namespace v0 { namespace optim {

template <class Rule>
inline constexpr size_t kNumState = std::size(Rule::kState);

template <class Rule>
inline constexpr size_t kNumFactors = sizeof(typename Rule::template Factors<double>) / sizeof(double);

/// The factors in the parameters' dtype.
template <class Rule, class T>
TANDEM_HOST_DEVICE inline auto factors_as(const double* values) {
  std::array<T, kNumFactors<Rule>> rounded{};
  for (size_t i = 0; i < rounded.size(); ++i) rounded[i] = static_cast<T>(values[i]);
  return std::bit_cast<typename Rule::template Factors<T>>(rounded);
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

inline constexpr int64_t kStepGrain = 1 << 15;  // 128 KiB of float32, much more than the overhead of a task needs

template <class Rule, bool... cases, class T, class... State>
void update_range(int64_t begin, int64_t end, const typename Rule::template Factors<T>& by,
                  const T* __restrict gradient, T* __restrict parameter, State* __restrict... state) {
  const auto factors = by;  // a copy that the loop's stores cannot alias
  for (int64_t i = begin; i < end; ++i)
    Rule::template update<cases...>(factors, gradient[i], parameter[i], state[i]...);
}

template <class Rule>
void update(const KernelContext&, const StepCall& call) {
  visit_call<Rule>(call, [&]<class T, bool... cases>() {
    const auto factors = factors_as<Rule, T>(call.factors.data());
    for (const StepTensors& t : call.tensors) {
      parallel_for(t.n, kStepGrain, [&](int64_t begin, int64_t end) {
        [&]<size_t... s>(std::index_sequence<s...>) {
          update_range<Rule, cases...>(begin, end, factors, static_cast<const T*>(t.gradient),
                                       static_cast<T*>(t.parameter), static_cast<T*>(t.state[s])...);
        }
        (std::make_index_sequence<kNumState<Rule>>());
      });
    }
  });
}

}  // namespace cpu

#ifdef TANDEM_WITH_CUDA
namespace cuda {
template <class Rule>
void update(const KernelContext& context, const StepCall& call);
}
#endif

template <class Rule>
const OptimizerRule& rule() {
  using Options = typename Rule::Options;
  static_assert(kNumState<Rule> <= kMaxStateTensors && kNumFactors<Rule> <= kMaxFactors);
  static const OptimizerRule made = {
      .name = Rule::kName,
      .counts_steps = Rule::kCountsSteps,
      .state =
          [] {
            std::vector<OptimizerRule::StateInfo> state;
            for (const auto& tensor : Rule::kState) state.push_back({tensor.name, tensor.is_used == nullptr});
            return state;
          }(),
      .num_factors = kNumFactors<Rule>,
      .options = [](void* options) { return Rule::options(*static_cast<Options*>(options)); },
      .problem =
          [](const void* options) {
            if constexpr (requires(const Options& o) { Rule::problem(o); })
              return Rule::problem(*static_cast<const Options*>(options));
            return std::string();
          },
      .default_options = []() -> std::shared_ptr<void> { return std::make_shared<Options>(); },
      .used_state =
          [](const void* options) {
            unsigned bits = 0, bit = 1;
            for (const auto& tensor : Rule::kState) {
              if (tensor.is_used == nullptr || tensor.is_used(*static_cast<const Options*>(options))) bits |= bit;
              bit <<= 1;
            }
            return bits;
          },
      .cases =
          [](const void* options, bool is_first) {
            unsigned bits = 0, bit = 1;
            for (const bool one : Rule::cases(*static_cast<const Options*>(options), is_first)) {
              if (one) bits |= bit;
              bit <<= 1;
            }
            return bits;
          },
      .factors =
          [](const void* options, int64_t step) {
            const auto values = std::bit_cast<std::array<double, kNumFactors<Rule>>>(
                Rule::factors(*static_cast<const Options*>(options), step));
            std::array<double, kMaxFactors> all{};
            std::copy(values.begin(), values.end(), all.begin());
            return all;
          },
      .cpu = &cpu::update<Rule>,
#ifdef TANDEM_WITH_CUDA
      .cuda = &cuda::update<Rule>,
#else
      .cuda = nullptr,
#endif
  };
  return made;
}

}}}  // namespace tandem::v0::optim

/// Defines the constructors of `Class`, a GroupedOptimizer<Rule::Options>.
#ifndef TANDEM_DEFINE_OPTIMIZER
#define TANDEM_DEFINE_OPTIMIZER(Class, Rule)                                                                         \
  Class::Class(std::vector<Tensor> parameters, Rule::Options options) : Class({{std::move(parameters), options}}) {} \
  Class::Class(std::vector<ParameterGroup<Rule::Options>> groups)                                                    \
      : GroupedOptimizer(::tandem::optim::rule<Rule>(), std::move(groups)) {}
#endif
