// One operation as ProcessGroup passes it to a backend, its description in errors, and how messages are matched.
// Private to distributed/.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <functional>
#include <source_location>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <tandem/tensor/device.h>
#include <tandem/tensor/dtype.h>
#include <tandem/tensor/reduce_op.h>
#include <tandem/tensor/shape.h>
#include <tandem/tensor/tensor.h>

namespace tandem { inline namespace v0 { namespace distributed {

enum class CollectiveKind : uint8_t {
  kAllReduce,
  kReduce,
  kBroadcast,
  kGather,
  kAllGather,
  kScatter,
  kReduceScatter,
  kAllToAll,
  kBarrier,
};

/// "all_reduce", "broadcast", ...
const char* to_string(CollectiveKind kind);
using v0::to_string;

/// Whether the results are combined from the data of all ranks, by a ReduceOp.
inline bool is_reduction(CollectiveKind kind) {
  return kind == CollectiveKind::kAllReduce || kind == CollectiveKind::kReduce ||
         kind == CollectiveKind::kReduceScatter;
}

/// Data that one rank sends to, or receives from, one rank (possibly itself).
struct Part {
  std::byte* data = nullptr;
  int64_t num_elements = 0;
  Shape shape = {};  ///< only for all_to_all, which compares the shapes of both sides
};

inline constexpr size_t kMaxShownDims = 16;
inline constexpr size_t kMaxShownTensors = 512;  ///< bytes of Collective::tensors

/// A shape for error messages.
struct ShownShape {
  int64_t dims = 0;
  int64_t sizes[kMaxShownDims] = {};  ///< the first kMaxShownDims sizes

  ShownShape() = default;
  ShownShape(const Shape& shape) { *this = shape; }
  ShownShape& operator=(const Shape& shape);
};

/// "[4, 3]"; of more than kMaxShownDims dimensions "[1, 2, ..., 20 dimensions]".
std::string to_string(const ShownShape& shape);

/// The fields that ranks compare before they use any data.
struct Signature {
  CollectiveKind kind = CollectiveKind::kBarrier;
  ReduceOp op = ReduceOp::kSum;  ///< only of reductions
  DType dtype = kFloat32;
  int root = -1;             ///< -1: the collective has no root
  int64_t num_elements = 0;  ///< of the input or of each part; all_gather: of all parts; all_to_all: 0
  uint64_t name_hash = 0;    ///< of the name, and of the shapes of a list whose elements differ
  uint64_t shape_hash = 0;   ///< of the shape that is equal on all ranks: of the input or of each part; else 0
  bool on_gpu = false;       ///< the tensors are on a GPU
  bool in_list = false;      ///< on a GPU: all_gather or reduce_scatter of a list, which uses separate NCCL calls

  bool operator==(const Signature&) const = default;
};

/// A collective on row-major memory. Each kind uses these fields:
///
///     all_reduce      input, output (may be the same), num_elements
///     reduce          input; on root: output (may be the same)
///     broadcast       output == input
///     gather          input; on root: outputs by rank, all of num_elements
///     all_gather      input, as large as outputs[rank]; outputs by rank, of sizes that may differ
///     scatter         on root: inputs by rank; output, num_elements
///     reduce_scatter  inputs by rank, all of num_elements; output
///     all_to_all      inputs and outputs by rank, of sizes that may differ
///
/// `outputs[rank].data` may be `input`, and `output` may be `inputs[rank].data`; no other memory may overlap. Parts
/// with zero elements may have null data.
struct Collective : Signature {
  int64_t seq = 0;     ///< number in its group, from 1
  Device device = {};  ///< of all memory; a backend gets CPU memory, or a collective that moves no data
  const std::byte* input = nullptr;
  std::byte* output = nullptr;
  std::vector<Part> inputs = {};
  std::vector<Part> outputs = {};
  Shape shape = {};          ///< of the input, for messages
  std::string tensors = {};  ///< shown in place of dtype and shape where not empty: "float32 [2, 3], [4], int32 [5]"
  std::string name = {};     ///< CollectiveOptions::name
  std::source_location where = {};   ///< shown, never compared
  bool moves_data = true;            ///< false: only signatures are compared
  const TensorList* kept = nullptr;  ///< owners of all this memory, for a backend that uses it longer than the call

  int64_t num_bytes() const { return num_elements * size_of(dtype); }

  /// Whether the results depend on data of that rank.
  bool contributes(int rank) const {
    const bool from_root = kind == CollectiveKind::kBroadcast || kind == CollectiveKind::kScatter;
    return kind != CollectiveKind::kBarrier && (!from_root || rank == root);
  }
  /// Whether that rank gets a result. The root of a broadcast has it already.
  bool takes(int rank) const {
    if (kind == CollectiveKind::kReduce || kind == CollectiveKind::kGather) return rank == root;
    return kind != CollectiveKind::kBarrier && (kind != CollectiveKind::kBroadcast || rank != root);
  }
  /// This rank's data for rank `to`, if this rank contributes.
  const std::byte* data_to(int to) const { return inputs.empty() ? input : inputs[static_cast<size_t>(to)].data; }
  /// This rank's memory for the data of rank `from`, or for the result of a reduction, if this rank takes it.
  std::byte* data_from(int from) const { return outputs.empty() ? output : outputs[static_cast<size_t>(from)].data; }
};

/// The arguments of a message that its two ranks compare.
struct MessageSignature {
  int tag = 0;
  DType dtype = kFloat32;
  int64_t num_elements = 0;
  uint64_t name_hash = 0;
  uint64_t shape_hash = 0;

  bool operator==(const MessageSignature&) const = default;
  int64_t num_bytes() const { return num_elements * size_of(dtype); }
};

/// A message from one rank to another on row-major memory.
///
/// A message between two GPUs is direct: the backend matches it, compares its arguments and sets `direct`; other code
/// transfers the data. If only one side's tensor is on a GPU, or both are on the same GPU, the backend transfers the
/// data and first calls `stage` on the sides whose tensor is on a GPU.
struct P2pRequest : MessageSignature {
  bool sends = false;
  int peer = 0;               ///< rank of the group
  std::byte* data = nullptr;  ///< only read if this rank sends
  /// Identity of the GPU of this side's tensor. 0: the tensor is in host memory, or has no elements. kNotDirect: it is
  /// on a GPU, but the message cannot be direct.
  uint64_t gpu = 0;
  /// Only if `gpu` is not 0: called at most once, when the message is known not to be direct. Sets `data` to host
  /// memory; if this rank sends, that may happen later, on the thread that calls the backend.
  std::function<void()> stage = {};
  int64_t number = 0;  ///< among the messages from its sender to its receiver, from 1; set by the backend
  int64_t seq = 0;     ///< number among this rank's transfers, from 1
  Shape shape = {};
  std::string name = {};
  std::source_location where = {};
  bool done = false;    ///< set by the backend
  bool direct = false;  ///< set by the backend before `done`: both sides are on different GPUs
  bool failed = false;  ///< set by the backend if this message caused the error that it throws next
};

inline constexpr uint64_t kNotDirect = 1;  ///< value of P2pRequest::gpu

/// Whether a message between tensors with these values of P2pRequest::gpu is direct.
inline bool is_direct(uint64_t sender, uint64_t receiver) {
  return sender > kNotDirect && receiver > kNotDirect && sender != receiver;
}

/// Calls accept(receive, offer) for each posted receive, oldest first, for which there is an offer: the first one with
/// its tag. Removes both before. Returns whether there was any.
template <class Offers, class TagOf, class Accept>
bool match_messages(std::deque<P2pRequest*>& posted, Offers& offers, const TagOf& tag_of, const Accept& accept) {
  bool any = false;
  for (size_t i = 0; i < posted.size() && !offers.empty();) {
    P2pRequest& receive = *posted[i];
    const auto found =
        std::find_if(offers.begin(), offers.end(), [&](const auto& offer) { return tag_of(offer) == receive.tag; });
    if (found == offers.end()) {
      ++i;
      continue;
    }
    const auto offer = std::move(*found);
    offers.erase(found);
    posted.erase(posted.begin() + static_cast<std::ptrdiff_t>(i));
    accept(receive, offer);
    any = true;
  }
  return any;
}

/// Describes a rank's call for mismatch errors: "all_reduce sum float32 [4, 3], 'fc1.weight', train.cc:12". `tensors`
/// is as in Collective.
std::string describe_call(const Signature& signature, const ShownShape& shape, std::string_view tensors,
                          std::string_view name, std::string_view file, uint32_t line);
/// "send float32 [4, 3] to rank 2 tag 7, 'x', train.cc:12".
std::string describe_call(const MessageSignature& signature, bool sends, int shown_peer, const ShownShape& shape,
                          std::string_view name, std::string_view file, uint32_t line);

/// 64-bit hash of `name`; 0 if it is empty.
uint64_t hash_name(std::string_view name);

/// 64-bit hash of a shape, for signatures. Shapes with equally many dimensions that differ in one size never collide.
/// Any other two shapes collide with a probability of about 2^-64. Then a mismatch is not detected if the element
/// counts are equal. Memory access stays safe, because counts are compared directly.
uint64_t hash_shape(const Shape& shape);

}}}  // namespace tandem::v0::distributed
