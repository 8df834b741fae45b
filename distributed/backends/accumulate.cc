#include <tandem/distributed/backends/accumulate.h>
#include <tandem/tensor/reduce.h>

#include <algorithm>
#include <cstring>
#include <type_traits>

namespace tandem { inline namespace v0 { namespace distributed {

ReduceOp partial_op(ReduceOp op) { return op == ReduceOp::kAvg ? ReduceOp::kSum : op; }

DType partial_dtype(ReduceOp op, DType dtype) {
  const bool rounds = op == ReduceOp::kSum || op == ReduceOp::kAvg || op == ReduceOp::kProduct;
  return rounds && (dtype == kFloat16 || dtype == kBFloat16) ? kFloat32 : dtype;
}

void widen(DType dtype, const std::byte* in, int64_t count, std::byte* out) {
  visit_dtype(dtype, [&]<class T>() {
    if constexpr (kIsHalf<T>) {
      std::copy_n(reinterpret_cast<const T*>(in), count, reinterpret_cast<float*>(out));
    }
  });
}

void finish_partial(ReduceOp op, DType dtype, int num_ranks, const std::byte* in, int64_t count, std::byte* out) {
  const bool is_partial = partial_dtype(op, dtype) != dtype;
  if (!is_partial && op != ReduceOp::kAvg) {
    if (in != out) std::memcpy(out, in, static_cast<size_t>(count * size_of(dtype)));
    return;
  }
  const size_t divisor = op == ReduceOp::kAvg ? static_cast<size_t>(num_ranks) : 1;
  visit_dtype(dtype, [&]<class T>() {
    if constexpr (is_floating_point(dtype_of<T>())) {
      const auto* const from = reinterpret_cast<const std::conditional_t<kIsHalf<T>, float, T>*>(in);
      T* const to = reinterpret_cast<T*>(out);
      // ivdep: `out` may be `in` itself.
      TANDEM_IVDEP
      for (int64_t i = 0; i < count; ++i) to[i] = static_cast<T>(primitives::mean_of(from[i], divisor));
    }
  });
}

void reduce_by_hosts(const HostLayout& layout, ReduceOp op, DType dtype, std::span<const std::byte* const> inputs,
                     int64_t count, std::vector<std::byte>& scratch, std::byte* out) {
  const DType partial = partial_dtype(op, dtype);
  const size_t stride = static_cast<size_t>((count * size_of(partial) + 63) / 64 * 64);
  size_t most = 0;
  for (const auto& host : layout.hosts) most = std::max(most, host.size());
  scratch.resize(stride * (layout.hosts.size() + most));
  const auto slot = [&](size_t index) { return scratch.data() + index * stride; };

  std::vector<const std::byte*> results;
  std::vector<const std::byte*> of_host;
  for (const auto& host : layout.hosts) {
    of_host.clear();
    for (const int rank : host) {
      of_host.push_back(inputs[static_cast<size_t>(rank)]);
      if (partial == dtype) continue;
      std::byte* const wide = slot(layout.hosts.size() + of_host.size() - 1);
      widen(dtype, of_host.back(), count, wide);
      of_host.back() = wide;
    }
    std::byte* const result = slot(results.size());
    primitives::reduce(partial_op(op), partial, of_host, count, result);
    results.push_back(result);
  }
  primitives::reduce(partial_op(op), partial, results, count, slot(0));
  finish_partial(op, dtype, static_cast<int>(inputs.size()), slot(0), count, out);
}

}}}  // namespace tandem::v0::distributed
