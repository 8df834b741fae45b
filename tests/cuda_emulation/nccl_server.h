// The server of an emulated NCCL communicator: a thread of the process that created the id, at a socket of that name.
//
// A rank has a connection for data and one for barriers, and sends its requests on each connection one after the other.
// The server answers a collective when all ranks have sent theirs, and a barrier (a barrier of all ranks or of two)
// when its ranks have arrived. Calls that do not match are never answered. Private to the emulation.
#pragma once

#include <compare>
#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include <nccl.h>

namespace cuda_emulation {

struct NcclRequest {
  enum class Kind : uint32_t { kBarrier, kAllReduce, kReduce, kBroadcast, kAllGather, kReduceScatter, kSend, kRecv };
  Kind kind = Kind::kBarrier;
  int32_t rank = 0;
  int32_t num_ranks = 0;
  int32_t type = 0;
  int32_t op = 0;
  int32_t peer = -1;       // root, or the other side of a message
  uint64_t count = 0;      // elements of the call's count argument
  uint64_t num_bytes = 0;  // size of the payload; for kBarrier the payload is a list of NcclBarrier
  uint64_t captured = 0;   // number of the captured call of the communicator; 0 if the call was not captured
};

/// A barrier of all ranks, or of two.
struct NcclBarrier {
  static constexpr int32_t kAll = -1;
  int32_t from = kAll;  // the rank that sends to `to`
  int32_t to = 0;       // with kAll: the number of the barrier
  auto operator<=>(const NcclBarrier&) const = default;

  static NcclBarrier hello() { return {kAll, -1}; }
  static NcclBarrier goodbye() { return {kAll, -2}; }  // exited ranks count as arrived
};

/// Starts the server of a new communicator; returns the name of its socket.
std::string start_nccl_server();
/// Connects to the server; returns the socket, or -1 if there is no server.
int connect_to_nccl_server(const std::string& name);

/// Transfers all bytes; false if the connection is closed.
bool write_all(int fd, const void* bytes, size_t count);
bool read_all(int fd, void* bytes, size_t count);

size_t size_of(ncclDataType_t type);
/// sum = op(sum, term) for `count` elements, rounded to the type.
void reduce_into(ncclDataType_t type, ncclRedOp_t op, size_t count, void* sum, const void* term);
/// Divides `count` elements by `n`.
void divide(ncclDataType_t type, size_t count, int n, void* values);

}  // namespace cuda_emulation
