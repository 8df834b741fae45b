#include <tandem/optim/sgd_kernels.h>
#include <tandem/optim/tensor_table_cuda.h>

namespace tandem { inline namespace v0 { namespace optim::cuda {

namespace {

using Table = TensorTable<3>;

template <class T, bool has_decay, Momentum kind, bool is_nesterov>
struct Sgd {
  SgdFactors<T> of_launch;
  const SgdFactors<double>* of_step;

  void begin_at(int64_t) {}
  __device__ void operator()(const Table::Entry& entry, int64_t begin, int64_t end, int64_t) const {
    const SgdFactors<T> factors = of_step == nullptr ? of_launch : SgdFactors<T>(*of_step);
    const T* gradient = static_cast<const T*>(entry.data[0]);
    T* parameter = static_cast<T*>(entry.data[1]);
    T* buffer = static_cast<T*>(entry.data[2]);
    for (int64_t i = begin + threadIdx.x; i < end; i += blockDim.x) {
      sgd_element<has_decay, kind, is_nesterov>(factors, gradient[i], parameter[i],
                                                buffer + (kind == Momentum::kNone ? 0 : i));
    }
  }
};

template <class T>
void run(const KernelContext& context, const SgdStep& step, std::span<const SgdTensors> tensors) {
  const auto entry = [&](size_t i) {
    const SgdTensors& t = tensors[i];
    return Table::Entry{{const_cast<void*>(t.gradient), t.parameter, t.buffer}, t.n, 0};
  };
  visit_sgd(step, [&]<bool has_decay, Momentum kind, bool is_nesterov>() {
    for_each_chunk<3>(context, tensors.size(), entry,
                      Sgd<T, has_decay, kind, is_nesterov>{SgdFactors<T>(step), step.of_step});
  });
}

}  // namespace

void sgd(const KernelContext& context, DType dtype, const SgdStep& step, std::span<const SgdTensors> tensors) {
  dtype == kFloat64 ? run<double>(context, step, tensors) : run<float>(context, step, tensors);
}

}}}  // namespace tandem::v0::optim::cuda
