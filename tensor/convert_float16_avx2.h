// Conversion between float and float16 by the instructions of F16C. Private to tensor/.
#pragma once

#include <cstddef>
#include <cstdint>

namespace tandem { inline namespace v0 { namespace primitives {

/// Rounds n floats to float16, to nearest, ties to even.
void to_float16_avx2(const float* src, uint16_t* out, size_t n);
/// Converts n elements of float16; signaling NaNs become quiet.
void from_float16_avx2(const uint16_t* src, float* out, size_t n);

}}}  // namespace tandem::v0::primitives
