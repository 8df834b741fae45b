// One launch over many tensors. For *.cu files of optim/.
//
// The argument of a launch is a table of the tensors; each block processes one chunk of one tensor. One launch for a
// hundred parameters saves the launch time of the other 99.
#pragma once

#include <cstdint>

#include <tandem/tensor/cuda/launch.h>

namespace tandem { inline namespace v0 { namespace optim::cuda {

inline constexpr int64_t kChunk = 1 << 14;  // elements per block

inline int64_t num_chunks(int64_t n) { return (n + kChunk - 1) / kChunk; }

/// Tensors with `kPointers` arrays of n elements each. The arguments of a kernel are limited to 32764 bytes.
template <int kPointers>
struct TensorTable {
  struct Entry {
    void* data[kPointers];
    int64_t n;
    int64_t first_chunk;  // index in the launch
  };
  static constexpr int kMaxEntries = static_cast<int>(28672 / sizeof(Entry));

  int num_entries = 0;
  int64_t num_chunks = 0;
  Entry entries[kMaxEntries];

  /// The entry that contains the chunk.
  __device__ const Entry& entry_of(int64_t chunk) const {
    int begin = 0, end = num_entries;
    while (end - begin > 1) {
      const int middle = (begin + end) / 2;
      if (entries[middle].first_chunk <= chunk) {
        begin = middle;
      } else {
        end = middle;
      }
    }
    return entries[begin];
  }
};

/// For each chunk c: f(entry, begin, end, c) for elements [begin, end) of the entry that contains the chunk.
template <int kPointers, class F>
__global__ void for_each_chunk_kernel(const __grid_constant__ TensorTable<kPointers> table, F f) {
  for (int64_t chunk = blockIdx.x; chunk < table.num_chunks; chunk += gridDim.x) {
    const auto& entry = table.entry_of(chunk);
    const int64_t begin = (chunk - entry.first_chunk) * kChunk;
    f(entry, begin, ::min(entry.n, begin + kChunk), chunk);
  }
}

/// Launches f for all chunks of the tensors; make_entry(i) returns the pointers and n of tensor i of `count`. Before
/// each launch, f.begin_at(n) is called with the number of chunks of the earlier launches.
template <int kPointers, class MakeEntry, class F>
void for_each_chunk(const KernelContext& context, size_t count, MakeEntry make_entry, F f) {
  using tandem::cuda::blocks_for, tandem::cuda::kBlock, tandem::cuda::launch_kernel;
  TensorTable<kPointers> table;
  int64_t chunks_before = 0;
  const auto launch = [&] {
    if (table.num_chunks == 0) return;
    f.begin_at(chunks_before);
    launch_kernel(context, for_each_chunk_kernel<kPointers, F>, blocks_for(table.num_chunks, 1), kBlock, 0, table, f);
    chunks_before += table.num_chunks;
    table.num_entries = 0;
    table.num_chunks = 0;
  };
  for (size_t i = 0; i < count; ++i) {
    auto entry = make_entry(i);
    if (entry.n == 0) continue;
    entry.first_chunk = table.num_chunks;
    table.num_chunks += num_chunks(entry.n);
    table.entries[table.num_entries++] = entry;
    if (table.num_entries == TensorTable<kPointers>::kMaxEntries) launch();
  }
  launch();
}

}}}  // namespace tandem::v0::optim::cuda
