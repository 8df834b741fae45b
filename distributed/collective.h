// One collective as the front hands it to a backend, and how it is shown in errors.  Private to distributed/.
#pragma once

#include <cstddef>
#include <cstdint>
#include <source_location>
#include <string>
#include <string_view>

#include <tandem/distributed/process_group.h>
#include <tandem/tensor/dtype.h>
#include <tandem/tensor/shape.h>

namespace tandem::inline v0::distributed {

enum class CollectiveKind : uint8_t { kAllReduce, kBroadcast, kAllGather, kBarrier };

/// "all_reduce", "broadcast", ...
const char* to_string(CollectiveKind kind);
/// "sum", "avg", "product", "min", "max".
const char* to_string(ReduceOp op);

/// A collective on row-major memory.  `input` and `output` are the same where it works in place.
struct Collective {
  CollectiveKind kind = CollectiveKind::kBarrier;
  ReduceOp op = ReduceOp::kSum;
  DType dtype = kFloat32;
  int root = -1;             ///< broadcast only
  int64_t seq = 0;           ///< number in its group, from 1
  int64_t num_elements = 0;  ///< of the input
  uint64_t name_hash = 0;
  const std::byte* input = nullptr;
  std::byte* output = nullptr;
  Shape shape = {};                 ///< of the input; shown, never compared
  std::string name = {};            ///< CollectiveOptions::name
  std::source_location where = {};  ///< shown, never compared

  int64_t num_bytes() const { return num_elements * size_of(dtype); }
};

/// "[rank 2 of 4] all_reduce #1873".
std::string collective_label(int rank, int world_size, CollectiveKind kind, int64_t seq);

/// `headline`, then "  rank 2: reason" (without the rank where it is no rank's fault) on a line of its own.
std::string failure_text(const std::string& headline, int culprit, std::string_view reason);

/// What one rank passed, for mismatch errors: "all_reduce sum float32 [4, 3], 'fc1.weight', train.cc:12".
std::string describe_call(CollectiveKind kind, ReduceOp op, DType dtype, int root, const Shape& shape,
                          std::string_view name, std::string_view file, uint32_t line);

/// 64 bits of `name`; 0 for the empty one.
uint64_t hash_name(std::string_view name);

}  // namespace tandem::inline v0::distributed
