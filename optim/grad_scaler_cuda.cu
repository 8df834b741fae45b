#include <tandem/optim/grad_scaler_kernels.h>
#include <tandem/optim/tensor_table_cuda.h>

namespace tandem { inline namespace v0 { namespace optim::cuda {

namespace {

using Table = TensorTable<1>;

template <class T>
struct Unscale {
  double launch_factor;
  const double* replay_factor;
  int32_t* found;

  void begin_at(int64_t) {}
  __device__ void operator()(const Table::Entry& entry, int64_t begin, int64_t end, int64_t) const {
    const auto factor = static_cast<Accumulator<T>>(replay_factor == nullptr ? launch_factor : *replay_factor);
    T* values = static_cast<T*>(entry.data[0]);
    bool finite = true;
    for (int64_t i = begin + threadIdx.x; i < end; i += blockDim.x) {
      const Accumulator<T> value = values[i];
      finite = finite && value * 0 == 0;
      values[i] = T(value * factor);
    }
    if (!finite) atomicExch(found, 1);
  }
};

}  // namespace

void unscale(const KernelContext& context, DType dtype, std::span<const Values> tensors, double factor,
             const double* replay_factor, int32_t* found) {
  const auto entry = [&](size_t i) { return Table::Entry{{tensors[i].data}, tensors[i].n, 0}; };
  visit_floating_dtype(dtype, [&]<class T>() {
    for_each_chunk<1>(context, tensors.size(), entry, Unscale<T>{factor, replay_factor, found});
  });
}

}}}  // namespace tandem::v0::optim::cuda
