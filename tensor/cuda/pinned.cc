#include <tandem/tensor/cuda/pinned.h>

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstring>
#include <memory>
#include <mutex>
#include <vector>

#include <tandem/base/math.h>
#include <tandem/base/parallel_for.h>
#include <tandem/tensor/cuda.h>
#include <tandem/tensor/cuda_capture.h>

namespace tandem { inline namespace v0 { namespace cuda {

namespace {

constexpr int64_t kPieceBytes = int64_t{4} << 20;
constexpr int64_t kMinStaged = int64_t{1} << 20;     // smaller copies are as fast by the driver's own staging
constexpr int64_t kGrainBytes = int64_t{512} << 10;  // of parallel CPU copies

/// Pinned blocks of kPieceBytes, cached for the next copy of any GPU. Never freed: at most two blocks per concurrent
/// copy.
class PinnedPool {
 public:
  struct GiveBack {
    PinnedPool* pool;
    void operator()(std::byte* block) const noexcept {
      std::lock_guard lock(pool->mutex_);
      pool->free_.push_back(block);
    }
  };
  using Block = std::unique_ptr<std::byte, GiveBack>;

  /// Null if no more memory can be pinned.
  Block take() {
    std::lock_guard lock(mutex_);
    if (free_.empty()) {
      free_.reserve(
          static_cast<size_t>(num_blocks_ + 1));  // capacity for all blocks, so that GiveBack does not allocate
      void* block = nullptr;
      if (cudaHostAlloc(&block, kPieceBytes, cudaHostAllocPortable) != cudaSuccess) {
        static_cast<void>(cudaGetLastError());  // clear: not an error of the next call
        return Block(nullptr, {this});
      }
      ++num_blocks_;
      return Block(static_cast<std::byte*>(block), {this});
    }
    std::byte* const block = free_.back();
    free_.pop_back();
    return Block(block, {this});
  }
  int64_t num_bytes() {
    std::lock_guard lock(mutex_);
    return num_blocks_ * kPieceBytes;
  }

 private:
  std::mutex mutex_;  // guards the members below
  std::vector<std::byte*> free_;
  int64_t num_blocks_ = 0;
};

PinnedPool& pool() {
  static PinnedPool* const instance = new PinnedPool;
  return *instance;
}

/// Two pinned blocks, each with an event after its last copy.
class Staging {
 public:
  explicit Staging(const Stream& stream)
      : stream_(stream),
        passed_{Event(stream.device()), Event(stream.device())},
        blocks_{pool().take(), pool().take()} {}
  ~Staging() { cudaStreamSynchronize(handle()); }  // for running copies after an exception
  Staging(const Staging&) = delete;
  Staging& operator=(const Staging&) = delete;

  bool has_blocks() const { return blocks_[0] != nullptr && blocks_[1] != nullptr; }
  std::byte* block(int64_t piece) const { return blocks_[static_cast<size_t>(piece % 2)].get(); }

  void copy(void* out, const void* src, int64_t num_bytes, cudaMemcpyKind kind, int64_t piece) {
    TANDEM_CUDA_CHECK(cudaMemcpyAsync(out, src, static_cast<size_t>(num_bytes), kind, handle()));
    passed_[static_cast<size_t>(piece % 2)].record(stream_);
  }
  void wait(int64_t piece) const { passed_[static_cast<size_t>(piece % 2)].synchronize(); }

 private:
  cudaStream_t handle() const { return static_cast<cudaStream_t>(stream_.handle()); }

  const Stream stream_;
  std::array<Event, 2> passed_;
  std::array<PinnedPool::Block, 2> blocks_;
};

void copy_on_cpu(std::byte* out, const std::byte* src, int64_t num_bytes) {
  parallel_for(num_bytes, kGrainBytes, [&](int64_t begin, int64_t end) {
    std::memcpy(out + begin, src + begin, static_cast<size_t>(end - begin));
  });
}

}  // namespace

void copy_pageable(Device gpu, void* out, const void* src, int64_t num_bytes, bool to_gpu) {
  check_not_capturing("a copy between the CPU and a GPU (item, to, printing)");
  const DeviceGuard guard(gpu);
  const cudaStream_t stream = stream_of(gpu);
  const cudaMemcpyKind kind = to_gpu ? cudaMemcpyHostToDevice : cudaMemcpyDeviceToHost;
  const auto copy_at_once = [&] {
    TANDEM_CUDA_CHECK(cudaMemcpyAsync(out, src, static_cast<size_t>(num_bytes), kind, stream));
    TANDEM_CUDA_CHECK(cudaStreamSynchronize(stream));
  };
  if (num_bytes < kMinStaged) return copy_at_once();
  Staging staging(current_stream(gpu));
  if (!staging.has_blocks()) return copy_at_once();
  auto* const to = static_cast<std::byte*>(out);
  const auto* const from = static_cast<const std::byte*>(src);
  const int64_t num_pieces = ceil_div(num_bytes, kPieceBytes);
  const auto size_of_piece = [&](int64_t k) { return std::min(kPieceBytes, num_bytes - k * kPieceBytes); };
  const auto fetch = [&](int64_t k) {
    if (k < num_pieces) staging.copy(staging.block(k), from + k * kPieceBytes, size_of_piece(k), kind, k);
  };
  if (!to_gpu) fetch(0);
  for (int64_t k = 0; k < num_pieces; ++k) {
    if (to_gpu) {
      if (k >= 2) staging.wait(k);
      copy_on_cpu(staging.block(k), from + k * kPieceBytes, size_of_piece(k));
      staging.copy(to + k * kPieceBytes, staging.block(k), size_of_piece(k), kind, k);
    } else {
      fetch(k + 1);
      staging.wait(k);
      copy_on_cpu(to + k * kPieceBytes, staging.block(k), size_of_piece(k));
    }
  }
  TANDEM_CUDA_CHECK(cudaStreamSynchronize(stream));
}

int64_t pinned_bytes() { return pool().num_bytes(); }

}}}  // namespace tandem::v0::cuda
