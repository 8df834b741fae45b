// One operation on tensors of one size, with the values that it must leave.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include <tandem/distributed/process_group.h>
#include <tandem/tensor/tensor.h>

namespace tandem::benchmarks {

/// What the benchmark knows of an operation.
struct OpInfo {
  std::string name;
  bool reduces = false;
  bool has_parts = false;  ///< the larger of its tensors has a row per rank: sizes count that one
  bool in_place = true;    ///< which forms it has
  bool out_of_place = true;
  bool has_root = false;
};
const std::vector<OpInfo>& all_ops();
const OpInfo& op_info(const std::string& name);

/// Elements of one rank's row, or of the tensor, for a size of `bytes`: at least one.
int64_t row_elements(const OpInfo& op, int64_t bytes, int64_t bytes_of_element, int world);
/// Bytes that each link must carry at least, over the bytes of the operation: what nccl-tests multiplies by for "busbw".
double bus_factor(const OpInfo& op, int world);

/// Rank r begins with (i + 3 r) mod 7 + 1 at element i: sums over up to 36 ranks are exact in bfloat16.
class CollectiveCase {
 public:
  CollectiveCase(distributed::ProcessGroup& group, const OpInfo& op, DType dtype, int64_t bytes, bool in_place,
                 Device device);

  /// "sendrecv" is a message from rank 0 to 1 and one back.
  void call() const;
  /// Elements that a call leaves with another value than they should have, on this rank.
  int64_t count_wrong() const;
  int64_t num_elements() const { return elements_; }
  int64_t num_bytes() const;

 private:
  Tensor make(int64_t rows) const;

  distributed::ProcessGroup& group_;
  const OpInfo& op_;
  DType dtype_;
  Device device_;
  int64_t row_;       ///< elements
  int64_t elements_;  ///< of the larger tensor
  Tensor input_;
  Tensor output_;
};

}  // namespace tandem::benchmarks
