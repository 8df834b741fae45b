// One collective on tensors of one size, and a check of its results.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include <tandem/distributed/process_group.h>
#include <tandem/tensor/tensor.h>

namespace tandem::benchmarks {

/// Properties of a collective.
struct OpInfo {
  std::string name;
  bool reduces = false;
  bool has_row_per_rank = false;  ///< the larger tensor has one row per rank; the size is that tensor's
  bool in_place = true;           ///< has an in-place form
  bool out_of_place = true;       ///< has an out-of-place form
  bool has_root = false;
};
const std::vector<OpInfo>& all_ops();
const OpInfo& op_info(const std::string& name);

/// Elements of one rank's row, or of the whole tensor without rows, for a size of `bytes`; at least 1.
int64_t row_elements(const OpInfo& op, int64_t bytes, int64_t bytes_of_element, int world);
/// The factor between "algbw" and "busbw" of nccl-tests: minimum bytes per link divided by the operation's bytes.
double bus_factor(const OpInfo& op, int world);

/// Element i of rank r's input is (i + 3 r) mod 7 + 1, so that sums over up to 36 ranks are exact in bfloat16.
class CollectiveCase {
 public:
  CollectiveCase(distributed::ProcessGroup& group, const OpInfo& op, DType dtype, int64_t bytes, bool in_place,
                 Device device);

  /// Runs the collective once. "sendrecv" sends from rank 0 to rank 1 and back.
  void call() const;
  /// Runs the collective once and returns the number of wrong elements of this rank's output.
  int64_t count_wrong() const;
  int64_t numel() const { return elements_; }
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
