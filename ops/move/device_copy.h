// What moves and sums between devices share: their memory, their chunks, their copies.  Private to ops/.
#pragma once

#include <atomic>
#include <cstdint>
#include <exception>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include <tandem/base/chunked_work.h>
#include <tandem/ops/move.h>
#include <tandem/tensor/tensor.h>

namespace tandem { inline namespace v0 { namespace ops {

/// The same cut through tensors of one shape: chunks of at most so many bytes, in row-major order, of nearly equal size.
class ChunkGrid {
 public:
  /// `flat`: all tensors are row-major and are cut as if they had one dimension.
  ChunkGrid(const Shape& shape, bool flat, int64_t element_size, int64_t chunk_bytes);

  int64_t size() const { return num_outer_ * parts_; }
  int64_t chunk_bytes() const { return rows_ * inner_ * element_size_; }  ///< of the largest
  /// The k-th chunk, a view.
  Tensor slice(const Tensor& tensor, int64_t k) const;

 private:
  Shape shape_;
  bool flat_;
  size_t dim_ = 0;         // the dimension that is cut; those before it are gone through one by one
  int64_t num_outer_ = 1;  // the product of those before it
  int64_t inner_ = 1;      // and of those behind it
  int64_t rows_ = 0;       // of dim_ in one chunk
  int64_t parts_ = 0;      // chunks along dim_
  int64_t element_size_;
};

class PackingSpace;

/// A transfer from its plan to its end: `expect` everything, `check_memory`, make the results, `add` the same steps, then `run`
/// or `start`.
class Transfer {
 public:
  /// `op`: a string literal.  Throws ValueError for options that make no sense.
  Transfer(const char* op, const TransferOptions& options);

  /// A result of that size will be made on `device`.
  void expect_result(Device device, int64_t num_bytes);
  /// `input` will be copied to `device` as a whole, by the calling thread.
  void expect_copy(const Tensor& input, Device device);
  /// A step will be added, with outputs on these devices that are row-major or not.
  void expect(std::span<const Tensor> inputs, std::span<const Device> devices, bool row_major);
  /// What was expected; its time only if asked for, as that may have to be measured.
  MovePlan plan(bool with_time) const;
  /// Throws OutOfMemory with the plan's numbers where a device has too little.
  void check_memory() const;

  /// outputs[i] = inputs[0] + inputs[1] + ... in this order, half types in float32, rounded once; a single input is copied.  All
  /// of one shape and dtype; outputs[0] is row-major where there are several inputs.
  void add(std::vector<Tensor> inputs, std::vector<Tensor> outputs);
  /// Does the steps, chunks of all of them by turns; rethrows the first failure.  Throws OutOfMemory.
  void run();
  /// Starts them; `finish` as in ChunkWork.  Throws OutOfMemory, for all that the chunks will need.
  std::shared_ptr<RunningChunks> start(std::function<void(std::exception_ptr)> finish);

 private:
  struct Step {
    std::vector<Tensor> inputs;
    std::vector<Tensor> outputs;
    ChunkGrid grid;
    int64_t num_bytes;  // of one output
    void run(int64_t chunk, PackingSpace& space) const;
  };
  struct Way {
    Device from, to;
    int64_t num_bytes;
  };

  ChunkGrid grid_of(const Tensor& tensor, bool flat) const;
  MemoryNeed& need(Device device);
  std::vector<MemoryNeed> needs() const;
  int64_t num_spaces() const;  // for packing: chunks that can be in flight
  ChunkWork work();

  const char* op_;
  TransferOptions options_;
  std::vector<MemoryNeed> needs_;  // staging_bytes: of one chunk, not rounded up
  std::vector<Way> ways_;
  int64_t num_chunks_ = 0;
  std::vector<Step> steps_;
};

/// The name "tensors[2]" as an operand of error texts.
std::string nth(const char* name, size_t i);
/// Throws ValueError where there are none, StateError naming the undefined.
void check_tensors(const char* op, const std::vector<Tensor>& tensors);
/// The same, and ShapeError or DTypeError where two differ in shape or dtype.
void check_alike(const char* op, const std::vector<Tensor>& tensors);

/// Makes `output` the result of a move of `input`, for backward.
Tensor record_move(const char* op, const Tensor& input, const Tensor& output);
/// What move_each will take.
void expect_moves(Transfer& transfer, const std::vector<Tensor>& tensors, std::span<const Device> devices);
/// Each tensor on the device of the same number, recorded; those that are there as they are.
std::vector<Tensor> move_each(const char* op, const std::vector<Tensor>& tensors, std::span<const Device> devices,
                              const TransferOptions& options);

}}}  // namespace tandem::v0::ops
