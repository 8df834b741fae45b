// The kernels of bounds_check.h. Private to ops/.
#pragma once

#include <cstdint>
#include <optional>

#include <tandem/tensor/kernel_context.h>
#include <tandem/tensor/shape.h>

namespace tandem { inline namespace v0 {

TANDEM_KERNELS(
    /// IndexError if an element of the row-major `index` is neither in [0, size) nor `ignored`: thrown at once on CPUs,
    /// reported as a device error on GPUs. op, what: string literals.
    void check_indices(const KernelContext& context, const char* op, const char* what, const Shape& shape, int64_t size,
                       std::optional<int64_t> ignored, const int64_t* index);
    /// out[i] = index[i], plus size if negative; checked to be in [-size, size). Invalid elements give 0 on GPUs.
    void wrap_indices(const KernelContext& context, const char* op, const char* what, const Shape& shape, int64_t size,
                      const int64_t* index, int64_t* out);)

}}  // namespace tandem::v0
