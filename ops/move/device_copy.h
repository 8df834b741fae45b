// Copies and sums between devices: memory checks, chunks, execution. Private to ops/.
#pragma once

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

/// Partition of tensors of one shape into chunks: at most chunk_bytes each, in row-major order, of nearly equal size.
class ChunkGrid {
 public:
  /// `flat`: all tensors are row-major, and are partitioned as if they had one dimension.
  ChunkGrid(const Shape& shape, bool flat, int64_t element_size, int64_t chunk_bytes);

  int64_t size() const { return num_outer_ * parts_; }
  int64_t chunk_bytes() const { return rows_ * inner_ * element_size_; }  ///< of the largest chunk
  /// The k-th chunk, a view.
  Tensor slice(const Tensor& tensor, int64_t k) const;

 private:
  Shape shape_;
  bool flat_;
  size_t dim_ = 0;         // the dimension that is divided
  int64_t num_outer_ = 1;  // product of the sizes before it
  int64_t inner_ = 1;      // product of the sizes after it
  int64_t rows_ = 0;       // indices of dim_ per chunk
  int64_t parts_ = 0;      // chunks along dim_
  int64_t element_size_;
};

class StagingBuffer;

/// Copies and sums of tensors between devices. Use: `expect` all steps, `check_memory`, allocate the results, `add` the
/// same steps, then `run` or `start`.
class DeviceCopy {
 public:
  /// `op`: a string literal. Throws ValueError for invalid options.
  DeviceCopy(const char* op, const TransferOptions& options);

  /// Announces a result of num_bytes on `device`.
  void expect_result(Device device, int64_t num_bytes);
  /// Announces that the calling thread will copy all of `input` to `device`.
  void expect_copy(const Tensor& input, Device device);
  /// Announces a step with outputs on these devices; `row_major`: whether the outputs are row-major.
  void expect(std::span<const Tensor> inputs, std::span<const Device> devices, bool row_major);
  /// The cost of the announced steps; the time only if requested, because it may have to be measured.
  MovePlan plan(bool with_time) const;
  /// Throws OutOfMemory, with the bytes of the plan, if a device has too little memory.
  void check_memory() const;

  /// Adds a step: outputs[i] = inputs[0] + inputs[1] + ..., in this order, half types in float32, rounded once; a
  /// single input is copied. All tensors have one shape and dtype; outputs[0] is row-major if there are several inputs.
  void add(std::vector<Tensor> inputs, std::vector<Tensor> outputs);
  /// Runs the chunks of all steps in turn; rethrows the first failure. Throws OutOfMemory.
  void run();
  /// Runs the steps in the background; `finish` as in ChunkWork. Throws OutOfMemory, before anything starts, for the
  /// scratch memory.
  std::shared_ptr<RunningChunks> start(std::function<void(std::exception_ptr)> finish);

 private:
  struct Step {
    std::vector<Tensor> inputs;
    std::vector<Tensor> outputs;
    ChunkGrid grid;
    int64_t num_bytes;  // of one output
    void run(int64_t chunk, StagingBuffer& buffer) const;
  };
  struct Way {
    Device from, to;
    int64_t num_bytes;
  };

  ChunkGrid grid_of(const Tensor& tensor, bool flat) const;
  MemoryRequirement& requirement(Device device);
  std::vector<MemoryRequirement> requirements() const;
  int64_t num_buffers() const;  // number of chunks in flight that need scratch memory
  ChunkWork work();

  const char* op_;
  TransferOptions options_;
  std::vector<MemoryRequirement> requirements_;  // staging_bytes: of one chunk, not rounded up
  std::vector<Way> ways_;
  int64_t num_chunks_ = 0;
  std::vector<Step> steps_;
};

/// The name "tensors[2]" of an operand in error texts.
std::string nth(const char* name, size_t i);
/// Throws ValueError for an empty list, StateError naming an undefined tensor.
void check_tensors(const char* op, const std::vector<Tensor>& tensors);
/// check_tensors, and ShapeError or DTypeError if two tensors differ in shape or dtype.
void check_alike(const char* op, const std::vector<Tensor>& tensors);

/// Records `output` as the copy of `input`, for backward.
Tensor record_move(const char* op, const Tensor& input, const Tensor& output);
/// Announces the copies of move_each.
void expect_moves(DeviceCopy& transfer, const std::vector<Tensor>& tensors, std::span<const Device> devices);
/// tensors[i] on devices[i], recorded; a tensor that is on its device is returned as it is.
std::vector<Tensor> move_each(const char* op, const std::vector<Tensor>& tensors, std::span<const Device> devices,
                              const TransferOptions& options);

}}}  // namespace tandem::v0::ops
