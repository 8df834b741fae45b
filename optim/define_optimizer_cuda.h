// Instantiates the GPU kernels of an optimizer's rule: include this header, then the file with TANDEM_DEFINE_OPTIMIZER,
// in a *.cu file. optim/BUILD generates such a file for each optimizer.
#pragma once

#define TANDEM_DEFINE_OPTIMIZER(Class, Rule)               \
  [[gnu::used]] static void (*const instantiated_##Class)( \
      const ::tandem::KernelContext&, const ::tandem::optim::StepCall&) = &::tandem::optim::cuda::update<Rule>;

#include <tandem/optim/define_optimizer.h>
#include <tandem/optim/tensor_table_cuda.h>

namespace tandem { inline namespace v0 { namespace optim::cuda {

template <class Rule, class T, bool... cases>
struct UpdateChunk {
  using Factors = typename Rule::template Factors<T>;

  Factors launch_factors;
  T launch_sign;
  const double* replay_factors;
  const int32_t* skip;
  DType dtype;
  DType copy_dtype;

  void begin_at(int64_t) {}
  template <class Entry>
  __device__ void operator()(const Entry& entry, int64_t begin, int64_t end, int64_t) const {
    if (skip != nullptr && *skip != 0) return;
    const Factors factors = replay_factors == nullptr ? launch_factors : factors_as<Rule, T>(replay_factors);
    const T sign = replay_factors == nullptr ? launch_sign : static_cast<T>(replay_factors[kNumFactors<Rule>]);
    constexpr auto kState = std::make_index_sequence<kNumState<Rule>>();
    if constexpr (std::is_same_v<T, float>) {
      if (dtype == kFloat16) return update<Half>(factors, sign, begin, end, entry, kState);
      if (dtype == kBFloat16) return update<BFloat16>(factors, sign, begin, end, entry, kState);
    }
    update<T>(factors, sign, begin, end, entry, kState);
  }

 private:
  template <class G, class Entry, size_t... s>
  __device__ void update(const Factors& factors, T sign, int64_t begin, int64_t end, const Entry& entry,
                         std::index_sequence<s...>) const {
    update(factors, sign, begin, end, static_cast<const G*>(entry.data[0]), static_cast<T*>(entry.data[1]),
           entry.data[2], static_cast<T*>(entry.data[3 + s])...);
  }
  template <class G, class... State>
  __device__ void update(const Factors& factors, T sign, int64_t begin, int64_t end, const G* gradient, T* parameter,
                         void* rounded, State*... state) const {
    for (int64_t i = begin + threadIdx.x; i < end; i += blockDim.x) {
      T value = parameter[i];
      if constexpr (!std::is_same_v<T, G>) value = current_master(value, static_cast<const G*>(rounded)[i]);
      Rule::template update<cases...>(factors, sign * static_cast<T>(gradient[i]), value, state[i]...);
      parameter[i] = value;
      if constexpr (!std::is_same_v<T, G>) {
        static_cast<G*>(rounded)[i] = G(value);
      } else if constexpr (std::is_same_v<T, float>) {
        if (rounded == nullptr) continue;
        if (copy_dtype == kFloat16) {
          static_cast<Half*>(rounded)[i] = Half(value);
        } else {
          static_cast<BFloat16*>(rounded)[i] = BFloat16(value);
        }
      }
    }
  }
};

template <class Rule>
void update(const KernelContext& context, const StepCall& call) {
  constexpr int kPointers = static_cast<int>(3 + kNumState<Rule>);
  const auto entry = [&](size_t i) {
    const StepTensors& t = call.tensors[i];
    typename TensorTable<kPointers>::Entry made = {{const_cast<void*>(t.gradient), t.parameter, t.rounded}, t.n, 0};
    for (size_t s = 0; s < kNumState<Rule>; ++s) made.data[3 + s] = t.state[s];
    return made;
  };
  visit_call<Rule>(call, [&]<class T, bool... cases>() {
    for_each_chunk<kPointers>(
        context, call.tensors.size(), entry,
        UpdateChunk<Rule, T, cases...>{factors_as<Rule, T>(call.factors.data()),
                                       static_cast<T>(call.factors[kNumFactors<Rule>]), call.replay_factors, call.skip,
                                       call.dtype, call.copy_dtype});
  });
}

}}}  // namespace tandem::v0::optim::cuda
