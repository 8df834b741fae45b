// Masks and statistics of attention as kernels read them. Private to the *.cu files of ops/attention.
#pragma once

#include <cstdint>
#include <limits>
#include <span>

#include <tandem/base/half.h>
#include <tandem/ops/attention/attention_kernels.h>
#include <tandem/tensor/cuda/launch.h>

namespace tandem { inline namespace v0 { namespace cuda {

/// A mask. Its dtype is known only at run time; each element is read once.
struct MaskRows {
  static constexpr int kNoMask = -1;

  const void* data;  // null: there is no mask
  DType dtype;
  int64_t query_stride;
  int64_t key_stride;

  template <class C>
  __device__ C apply(C score, int64_t at) const {
    int type = data == nullptr ? kNoMask : static_cast<int>(dtype);
    asm volatile("" : "+r"(type));  // else the compiler makes a copy of the whole kernel for each dtype
    if (type == kNoMask) return score;
    switch (static_cast<DType>(type)) {
      case kBool: return static_cast<const bool*>(data)[at] ? score : -std::numeric_limits<C>::infinity();
      case kFloat16: return score + static_cast<C>(static_cast<float>(static_cast<const Half*>(data)[at]));
      case kBFloat16: return score + static_cast<C>(static_cast<float>(static_cast<const BFloat16*>(data)[at]));
      case kFloat32: return score + static_cast<C>(static_cast<const float*>(data)[at]);
      default: return score + static_cast<C>(static_cast<const double*>(data)[at]);
    }
  }
};

/// The mask. Without a mask its batch strides are not read, so the strides of another tensor are passed.
inline MaskRows mask_rows(const AttentionMask& mask) {
  if (mask.tensor.data == nullptr) return {nullptr, kBool, 0, 0};
  const auto strides = mask.tensor.strides.last(2);
  return {mask.tensor.data, mask.dtype, strides[0], strides[1]};
}
inline const AttentionTensor& mask_or(const AttentionMask& mask, const AttentionTensor& other) {
  return mask.tensor.data == nullptr ? other : mask.tensor;
}

/// See attention_statistics().
inline int statistics_of(const KernelContext& context, const AttentionCall& call) {
  return attention_statistics(context, call.dtype, call.mask.tensor.data != nullptr);
}

/// The strides of the leading dimensions.
inline std::span<const int64_t> batch_strides(const AttentionTensor& tensor) {
  return tensor.strides.first(tensor.strides.size() - 2);
}

}}}  // namespace tandem::v0::cuda
