// Instantiates the GPU kernels of an optimizer's rule. The BUILD file includes this header before the optimizer's file.
#pragma once

#define TANDEM_DEFINE_OPTIMIZER(Class, Rule) template void cuda::update<Rule>(const KernelContext&, const StepCall&);

#include <tandem/optim/define_optimizer.h>
#include <tandem/optim/tensor_table_cuda.h>

namespace tandem { inline namespace v0 { namespace optim::cuda {

template <class Rule, class T, bool... cases>
struct UpdateChunk {
  using Factors = typename Rule::template Factors<T>;

  Factors launch_factors;
  const double* replay_factors;

  void begin_at(int64_t) {}
  template <class Entry>
  __device__ void operator()(const Entry& entry, int64_t begin, int64_t end, int64_t) const {
    const Factors factors = replay_factors == nullptr ? launch_factors : factors_as<Rule, T>(replay_factors);
    update(factors, begin, end, static_cast<const T*>(entry.data[0]), static_cast<T*>(entry.data[1]), entry,
           std::make_index_sequence<kNumState<Rule>>());
  }

 private:
  template <class Entry, size_t... s>
  __device__ static void update(const Factors& factors, int64_t begin, int64_t end, const T* gradient, T* parameter,
                                const Entry& entry, std::index_sequence<s...>) {
    update(factors, begin, end, gradient, parameter, static_cast<T*>(entry.data[2 + s])...);
  }
  template <class... State>
  __device__ static void update(const Factors& factors, int64_t begin, int64_t end, const T* gradient, T* parameter,
                                State*... state) {
    for (int64_t i = begin + threadIdx.x; i < end; i += blockDim.x)
      Rule::template update<cases...>(factors, gradient[i], parameter[i], state[i]...);
  }
};

template <class Rule>
void update(const KernelContext& context, const StepCall& call) {
  constexpr int kPointers = static_cast<int>(2 + kNumState<Rule>);
  const auto entry = [&](size_t i) {
    const StepTensors& t = call.tensors[i];
    typename TensorTable<kPointers>::Entry made = {{const_cast<void*>(t.gradient), t.parameter}, t.n, 0};
    for (size_t s = 0; s < kNumState<Rule>; ++s) made.data[2 + s] = t.state[s];
    return made;
  };
  visit_call<Rule>(call, [&]<class T, bool... cases>() {
    for_each_chunk<kPointers>(
        context, call.tensors.size(), entry,
        UpdateChunk<Rule, T, cases...>{factors_as<Rule, T>(call.factors.data()), call.replay_factors});
  });
}

}}}  // namespace tandem::v0::optim::cuda
