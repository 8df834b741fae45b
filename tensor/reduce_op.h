// Operators of reductions over ranks or devices.
#pragma once

#include <cstdint>

#include <tandem/base/macros.h>

namespace tandem { inline namespace v0 {

/// kAvg takes floating dtypes; bitwise operators take integers and bool.
enum class ReduceOp : uint8_t { kSum, kAvg, kProduct, kMin, kMax, kBitAnd, kBitOr, kBitXor };

/// "sum", "avg", "product", "min", "max", "bitand", "bitor", "bitxor".
TANDEM_API const char* to_string(ReduceOp op);

}}  // namespace tandem::v0
