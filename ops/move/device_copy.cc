#include <tandem/ops/move/device_copy.h>

#include <algorithm>
#include <mutex>
#include <utility>

#include <tandem/base/format.h>
#include <tandem/ops/common/common.h>
#include <tandem/tensor/allocator.h>
#include <tandem/tensor/bandwidth.h>
#include <tandem/tensor/cuda.h>

namespace tandem { inline namespace v0 { namespace ops {

ChunkGrid::ChunkGrid(const Shape& shape, bool flat, int64_t element_size, int64_t chunk_bytes)
    : shape_(flat ? Shape{num_elements(shape)} : shape), flat_(flat), element_size_(element_size) {
  const int64_t wanted = std::max<int64_t>(1, chunk_bytes / element_size);
  if (num_elements(shape_) == 0) return;  // no elements: parts_ is 0
  if (shape_.empty()) {
    rows_ = parts_ = 1;
    return;
  }
  // Finds the first dimension of which at least one index fits in a chunk.
  for (size_t d = 1; d < shape_.size(); ++d) inner_ *= shape_[d];
  while (dim_ + 1 < shape_.size() && inner_ > wanted) {
    num_outer_ *= shape_[dim_];
    inner_ /= shape_[++dim_];
  }
  const int64_t size = shape_[dim_];
  parts_ = (size - 1) / std::clamp<int64_t>(wanted / inner_, 1, size) + 1;
  rows_ = (size - 1) / parts_ + 1;
  parts_ = (size - 1) / rows_ + 1;
}

Tensor ChunkGrid::slice(const Tensor& tensor, int64_t k) const {
  Shape strides = flat_ ? Shape{1} : tensor.strides();
  Shape sizes = shape_;
  int64_t offset = tensor.impl().offset;
  if (!shape_.empty()) {
    const int64_t begin = k % parts_ * rows_;
    int64_t outer = k / parts_;
    offset += begin * strides[dim_];
    sizes[dim_] = std::min(rows_, shape_[dim_] - begin);
    for (size_t d = dim_; d-- > 0; outer /= shape_[d]) {
      offset += outer % shape_[d] * strides[d];
      sizes[d] = 1;
    }
  }
  return make_view(tensor.storage(), tensor.dtype(), sizes, strides, offset);
}

/// Scratch memory of one chunk in flight, on each device on which it is packed or staged, and streams of the GPUs.
class StagingBuffer {
 public:
  /// Event after the work that was queued on a GPU's current stream when the transfer began.
  struct Ready {
    Device device;
    cuda::Event event;
  };

  /// Bytes of scratch memory for a part of num_bytes.
  static int64_t bytes_of(int64_t num_bytes) { return (num_bytes + kAlignment - 1) / kAlignment * kAlignment; }

  explicit StagingBuffer(const std::vector<MemoryRequirement>& requirements) {
    for (const MemoryRequirement& requirement : requirements) {
      if (requirement.staging_bytes > 0)
        memories_.push_back({empty({requirement.staging_bytes}, {kUInt8, requirement.device})});
    }
  }
  /// Takes a side stream of each GPU and makes it wait for the GPU's event. The events must be recorded after all
  /// scratch memory was allocated, so that earlier work that used this memory is complete too.
  void take_streams(const std::vector<Ready>& ready) {
    static std::atomic<unsigned> num_taken{0};
    const int number = static_cast<int>(num_taken++ % static_cast<unsigned>(cuda::kSideStreams));
    for (const Ready& gpu : ready) {
      streams_.push_back(cuda::side_stream(gpu.device, number));
      gpu.event.make_wait(streams_.back());
    }
  }
  /// Runs f, which may queue work on the GPUs, and waits for that work even if f or the work fails, because the memory
  /// is freed afterwards. Device errors of the program's kernels are kept for the program's own synchronization.
  template <class F>
  void run(const F& f) {
    if (streams_.empty()) return f();
    std::exception_ptr error;
    const auto attempt = [&](const auto& step) {
      try {
        step();
      } catch (...) {
        if (!error) error = std::current_exception();
      }
    };
    const cuda::StreamGuard guard(streams_);
    attempt(f);
    for (const cuda::Stream& stream : streams_) {
      attempt([&] {
        const cuda::Event done(stream.device());
        done.record(stream);
        done.synchronize();
      });
    }
    if (error) std::rethrow_exception(error);
  }
  /// Scratch memory for a row-major tensor of like's shape and dtype on `device`.
  Tensor take(const Tensor& like, Device device) {
    const auto on_device = [&](const Memory& memory) { return memory.bytes.device() == device; };
    Memory& memory = *std::find_if(memories_.begin(), memories_.end(), on_device);
    const int64_t begin = std::exchange(memory.num_taken, memory.num_taken + bytes_of(like.num_bytes()));
    return make_view(memory.bytes.storage(), like.dtype(), like.shape(), row_major_strides(like.shape()),
                     begin / size_of(like.dtype()));
  }
  void clear() {
    for (Memory& memory : memories_) memory.num_taken = 0;
  }

 private:
  static constexpr int64_t kAlignment = 64;
  struct Memory {
    Tensor bytes;
    int64_t num_taken = 0;
  };
  std::vector<Memory> memories_;
  std::vector<cuda::Stream> streams_;
};

namespace {

/// The scratch memory of all chunks in flight, allocated before the first chunk, so that a running transfer cannot run
/// out of memory.
class StagingBuffers {
 public:
  StagingBuffers(const std::vector<MemoryRequirement>& requirements, int64_t count) {
    for (int64_t i = 0; i < count; ++i) free_.push_back(std::make_unique<StagingBuffer>(requirements));
  }
  void take_streams(const std::vector<StagingBuffer::Ready>& ready) {
    for (const auto& buffer : free_) buffer->take_streams(ready);
  }
  /// Calls f with scratch memory that no other thread uses meanwhile. At most `count` calls may run concurrently.
  template <class F>
  void lend(F f) {
    std::unique_lock lock(mutex_);
    std::unique_ptr<StagingBuffer> buffer = std::move(free_.back());
    free_.pop_back();
    lock.unlock();
    const auto give_back = [&] {
      buffer->clear();
      lock.lock();
      free_.push_back(std::move(buffer));
    };
    try {
      f(*buffer);
    } catch (...) {
      give_back();
      throw;
    }
    give_back();
  }

 private:
  std::mutex mutex_;
  std::vector<std::unique_ptr<StagingBuffer>> free_;
};

}  // namespace

DeviceCopy::DeviceCopy(const char* op, const TransferOptions& options) : op_(op), options_(options) {
  TANDEM_CHECK(ValueError, options.chunk_bytes > 0, op, ": chunk_bytes is ", options.chunk_bytes, ", must be positive");
  TANDEM_CHECK(ValueError, options.max_in_flight > 0, op, ": max_in_flight is ", options.max_in_flight,
               ", must be positive");
}

ChunkGrid DeviceCopy::grid_of(const Tensor& tensor, bool flat) const {
  return ChunkGrid(tensor.shape(), flat, size_of(tensor.dtype()), options_.chunk_bytes);
}

namespace {

/// Whether chunks of `input`, one of num_inputs inputs of a step, are packed on their own device first, so that
/// transfers and sums read contiguous memory.
bool is_packed(const Tensor& input, Device target, size_t num_inputs) {
  return !input.is_contiguous() && (input.device() != target || num_inputs > 1);
}

/// Whether chunks of `input` are staged on the target before they are added or copied to their final position.
bool is_staged(const Tensor& input, Device target, size_t num_inputs, bool is_row_major) {
  return (num_inputs > 1 || !is_row_major) && !primitives::can_read(target, input.device());
}

bool all_contiguous(std::span<const Tensor> tensors) {
  return std::all_of(tensors.begin(), tensors.end(), [](const Tensor& t) { return t.is_contiguous(); });
}

}  // namespace

MemoryRequirement& DeviceCopy::requirement(Device device) {
  for (MemoryRequirement& requirement : requirements_) {
    if (requirement.device == device) return requirement;
  }
  requirements_.push_back({device, 0, 0, free_memory(device)});
  return requirements_.back();
}

void DeviceCopy::expect_result(Device device, int64_t num_bytes) {
  requirement(device).result_bytes += block_bytes(num_bytes);
}

void DeviceCopy::expect_copy(const Tensor& input, Device device) {
  expect_result(device, input.num_bytes());
  ways_.push_back({input.device(), device, input.num_bytes()});
  ++num_chunks_;
}

void DeviceCopy::expect(std::span<const Tensor> inputs, std::span<const Device> devices, bool row_major) {
  const Device device = devices[0];  // the other outputs are copied from this one
  TANDEM_CHECK(ValueError, device.is_cpu() || inputs.size() <= primitives::kMaxGpuSumInputs, op_, ": ", inputs.size(),
               " tensors, but a GPU sums at most ", primitives::kMaxGpuSumInputs);
  const ChunkGrid grid = grid_of(inputs[0], row_major && all_contiguous(inputs));
  num_chunks_ += grid.size();
  std::vector<MemoryRequirement> staged;  // for one chunk of this step
  const auto stage = [&](Device there) {
    auto found =
        std::find_if(staged.begin(), staged.end(), [&](const MemoryRequirement& n) { return n.device == there; });
    if (found == staged.end()) found = staged.insert(staged.end(), {there, 0, 0, 0});
    found->staging_bytes += StagingBuffer::bytes_of(grid.chunk_bytes());
  };
  for (const Tensor& input : inputs) {
    if (input.device() != device) ways_.push_back({input.device(), device, input.num_bytes()});
    if (is_packed(input, device, inputs.size())) stage(input.device());
    if (is_staged(input, device, inputs.size(), row_major)) stage(device);
  }
  for (const MemoryRequirement& step : staged) {
    int64_t& bytes = requirement(step.device).staging_bytes;
    bytes = std::max(bytes, step.staging_bytes);
  }
  for (const Device other : devices.subspan(1)) {
    if (other != device) ways_.push_back({device, other, inputs[0].num_bytes()});
  }
}

int64_t DeviceCopy::num_buffers() const { return std::min<int64_t>(options_.max_in_flight, num_chunks_); }

std::vector<MemoryRequirement> DeviceCopy::requirements() const {
  std::vector<MemoryRequirement> requirements = requirements_;
  int64_t num_shared_bytes = 0;  // of memory shared by several devices, taken by earlier requirements
  for (MemoryRequirement& requirement : requirements) {
    requirement.staging_bytes = num_buffers() * block_bytes(requirement.staging_bytes);
    if (!shares_free_memory(requirement.device)) continue;
    requirement.free_bytes = std::max<int64_t>(0, requirement.free_bytes - num_shared_bytes);
    num_shared_bytes += requirement.result_bytes + requirement.staging_bytes;
  }
  return requirements;
}

MovePlan DeviceCopy::plan(bool with_time) const {
  MovePlan plan;
  plan.num_chunks = num_chunks_;
  plan.requirements = requirements();
  for (const Way& way : ways_) {
    plan.num_bytes += way.num_bytes;
    const double bandwidth = with_time && way.num_bytes > 0 ? device_bandwidth(way.from, way.to) : 0;
    if (bandwidth == 0) continue;
    const std::chrono::duration<double> time(static_cast<double>(way.num_bytes) / bandwidth);
    plan.expected_time += std::chrono::duration_cast<std::chrono::nanoseconds>(time);
  }
  return plan;
}

void DeviceCopy::check_memory() const {
  const std::vector<MemoryRequirement> all = requirements();
  if (std::all_of(all.begin(), all.end(), [](const MemoryRequirement& requirement) { return requirement.fits(); }))
    return;
  throw OutOfMemory(with_module_scope(str(op_, ": too little memory, nothing was moved\n  ", to_string(plan(false)))));
}

void DeviceCopy::add(std::vector<Tensor> inputs, std::vector<Tensor> outputs) {
  const ChunkGrid grid = grid_of(inputs[0], all_contiguous(inputs) && all_contiguous(outputs));
  const int64_t num_bytes = outputs[0].num_bytes();
  steps_.push_back({std::move(inputs), std::move(outputs), grid, num_bytes});
}

void DeviceCopy::Step::run(int64_t chunk, StagingBuffer& buffer) const {
  const Tensor out = grid.slice(outputs[0], chunk);
  const auto part_of = [&](const Tensor& input) {
    Tensor part = grid.slice(input, chunk);
    const auto copy_to = [&](Device device) {
      const Tensor copy = buffer.take(part, device);
      primitives::copy(part, copy);
      part = copy;
    };
    if (!part.is_contiguous() && is_packed(input, out.device(), inputs.size())) copy_to(input.device());
    if (is_staged(input, out.device(), inputs.size(), out.is_contiguous())) copy_to(out.device());
    return part;
  };
  if (inputs.size() == 1) {
    primitives::copy(part_of(inputs[0]), out, num_bytes);
  } else {
    std::vector<Tensor> parts;
    for (const Tensor& input : inputs) parts.push_back(part_of(input));
    // Cached stores, because the other outputs are copied from this one.
    primitives::sum(parts, out, outputs.size() > 1 ? 0 : num_bytes);
  }
  for (size_t i = 1; i < outputs.size(); ++i) primitives::copy(out, grid.slice(outputs[i], chunk), num_bytes);
}

namespace {

std::vector<StagingBuffer::Ready> gpus_ready(const std::vector<Tensor>& tensors) {
  std::vector<StagingBuffer::Ready> ready;
  for (const Tensor& tensor : tensors) {
    const Device device = tensor.device();
    if (device.is_cpu() || std::any_of(ready.begin(), ready.end(), [&](const auto& r) { return r.device == device; }))
      continue;
    ready.push_back({device, cuda::Event(device)});
    ready.back().event.record(cuda::current_stream(device));
  }
  return ready;
}

}  // namespace

ChunkWork DeviceCopy::work() {
  struct Chunk {
    size_t step;
    int64_t number;
    double place;  // within its step, from 0 to 1
  };
  std::vector<Chunk> chunks;
  int64_t total_bytes = 0;
  for (size_t s = 0; s < steps_.size(); ++s) {
    const int64_t n = steps_[s].grid.size();
    for (int64_t k = 0; k < n; ++k) chunks.push_back({s, k, static_cast<double>(k) / static_cast<double>(n)});
    total_bytes += steps_[s].num_bytes;
  }
  std::stable_sort(chunks.begin(), chunks.end(), [](const Chunk& a, const Chunk& b) { return a.place < b.place; });

  const auto num_done = std::make_shared<std::atomic<int64_t>>(0);  // in bytes
  ChunkWork work{
      .name = op_, .num_chunks = static_cast<int64_t>(chunks.size()), .max_in_flight = options_.max_in_flight};
  if (options_.progress) {
    work.progress = [f = options_.progress, num_done, total_bytes](int64_t) { f(num_done->load(), total_bytes); };
  }
  std::vector<Tensor> touched;
  for (const Step& step : steps_) {
    touched.insert(touched.end(), step.inputs.begin(), step.inputs.end());
    touched.insert(touched.end(), step.outputs.begin(), step.outputs.end());
  }
  const auto buffers = std::make_shared<StagingBuffers>(requirements_, num_buffers());
  buffers->take_streams(gpus_ready(touched));
  work.run = [steps = std::move(steps_), list = std::move(chunks), num_done, buffers](int64_t i) {
    const Chunk& chunk = list[static_cast<size_t>(i)];
    const Step& step = steps[chunk.step];
    buffers->lend([&](StagingBuffer& buffer) { buffer.run([&] { step.run(chunk.number, buffer); }); });
    *num_done += step.grid.slice(step.outputs[0], chunk.number).num_bytes();
  };
  return work;
}

void DeviceCopy::run() {
  ChunkWork all = work();
  if (all.num_chunks > 0) run_chunks(std::move(all));
}

std::shared_ptr<RunningChunks> DeviceCopy::start(std::function<void(std::exception_ptr)> finish) {
  ChunkWork all = work();
  if (all.num_chunks == 0) {
    finish(nullptr);
    return nullptr;
  }
  all.finish = std::move(finish);
  return start_chunks(std::move(all));
}

std::string nth(const char* name, size_t i) { return str(name, "[", i, "]"); }

void check_tensors(const char* op, const std::vector<Tensor>& tensors) {
  TANDEM_CHECK(ValueError, !tensors.empty(), op, ": no tensors");
  for (size_t i = 0; i < tensors.size(); ++i) {
    TANDEM_CHECK(StateError, tensors[i].defined(), op, ": ", nth("tensors", i), " is undefined");
  }
}

void check_alike(const char* op, const std::vector<Tensor>& tensors) {
  check_tensors(op, tensors);
  for (size_t i = 1; i < tensors.size(); ++i) {
    const std::string name = nth("tensors", i);
    const Operands pair = {{"tensors[0]", tensors[0]}, {name.c_str(), tensors[i]}};
    TANDEM_CHECK(ShapeError, tensors[i].shape() == tensors[0].shape(), operand_error(op, "shapes differ", pair));
    check_same_dtype(op, pair);
  }
}

Tensor record_move(const char* op, const Tensor& input, const Tensor& output) {
  record_gradient(op, output, {&input}, [device = input.device()](const Tensor& grad) { return to(grad, device); });
  return output;
}

std::vector<Tensor> move_each(const char* op, const std::vector<Tensor>& tensors, std::span<const Device> devices,
                              const TransferOptions& options) {
  DeviceCopy transfer(op, options);
  expect_moves(transfer, tensors, devices);
  transfer.check_memory();
  std::vector<Tensor> outputs = tensors;
  for (size_t i = 0; i < tensors.size(); ++i) {
    if (tensors[i].device() == devices[i]) continue;
    outputs[i] = empty(tensors[i].shape(), {tensors[i].dtype(), devices[i]});
    transfer.add({tensors[i]}, {outputs[i]});
  }
  transfer.run();
  for (size_t i = 0; i < tensors.size(); ++i) {
    if (!outputs[i].is_same(tensors[i])) record_move(op, tensors[i], outputs[i]);
  }
  return outputs;
}

void expect_moves(DeviceCopy& transfer, const std::vector<Tensor>& tensors, std::span<const Device> devices) {
  for (size_t i = 0; i < tensors.size(); ++i) {
    if (tensors[i].device() == devices[i]) continue;
    transfer.expect_result(devices[i], tensors[i].num_bytes());
    transfer.expect({&tensors[i], 1}, {&devices[i], 1}, true);
  }
}

}}}  // namespace tandem::v0::ops
