#include <tandem/optim/adam_kernels.h>
#include <tandem/optim/tensor_table_cuda.h>

namespace tandem { inline namespace v0 { namespace optim::cuda {

namespace {

using Table = TensorTable<4>;

template <class T, Decay decay, bool is_first>
struct Adam {
  AdamFactors<T> of_launch;
  const AdamFactors<double>* of_step;

  void begin_at(int64_t) {}
  __device__ void operator()(const Table::Entry& entry, int64_t begin, int64_t end, int64_t) const {
    const AdamFactors<T> factors = of_step == nullptr ? of_launch : AdamFactors<T>(*of_step);
    const T* gradient = static_cast<const T*>(entry.data[0]);
    T* parameter = static_cast<T*>(entry.data[1]);
    T* mean = static_cast<T*>(entry.data[2]);
    T* square = static_cast<T*>(entry.data[3]);
    for (int64_t i = begin + threadIdx.x; i < end; i += blockDim.x) {
      adam_element<decay, is_first>(factors, gradient[i], parameter[i], mean[i], square[i]);
    }
  }
};

template <class T, Decay decay>
void run(const KernelContext& context, const AdamStep& step, std::span<const AdamTensors> tensors) {
  const auto entry = [&](size_t i) {
    const AdamTensors& t = tensors[i];
    return Table::Entry{{const_cast<void*>(t.gradient), t.parameter, t.mean, t.square}, t.n, 0};
  };
  const AdamFactors<T> factors(step);
  if (step.number == 1) {
    for_each_chunk<4>(context, tensors.size(), entry, Adam<T, decay, true>{factors, step.of_step});
  } else {
    for_each_chunk<4>(context, tensors.size(), entry, Adam<T, decay, false>{factors, step.of_step});
  }
}

template <class T>
void run(const KernelContext& context, const AdamStep& step, std::span<const AdamTensors> tensors) {
  switch (decay_of(step)) {
    case Decay::kNone: return run<T, Decay::kNone>(context, step, tensors);
    case Decay::kIntoGradient: return run<T, Decay::kIntoGradient>(context, step, tensors);
    case Decay::kDecoupled: return run<T, Decay::kDecoupled>(context, step, tensors);
  }
}

}  // namespace

void adam(const KernelContext& context, DType dtype, const AdamStep& step, std::span<const AdamTensors> tensors) {
  dtype == kFloat64 ? run<double>(context, step, tensors) : run<float>(context, step, tensors);
}

}}}  // namespace tandem::v0::optim::cuda
