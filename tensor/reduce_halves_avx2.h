// Reduction of half types with AVX2. Private to tensor/.
#pragma once

#include <cstddef>
#include <cstdint>

#include <tandem/tensor/sum_order.h>

namespace tandem { inline namespace v0 { namespace primitives {

enum class HalfType : uint8_t { kFloat16, kBFloat16 };
/// kScaledSum and kDividedSum: the sum multiplied, or divided, by `number`.
enum class HalfOp : uint8_t { kSum, kScaledSum, kDividedSum, kProduct, kMin, kMax };

/// reduce_plain() with the same bits. Skips the last count % 16 elements and returns the number of reduced elements.
/// `out` may be one of the inputs.
size_t reduce_halves_avx2(HalfOp op, HalfType type, const std::byte* const* inputs, size_t num_inputs, size_t count,
                          float number, std::byte* out);

}}}  // namespace tandem::v0::primitives
