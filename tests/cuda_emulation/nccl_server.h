// Where the ranks of an emulated NCCL communicator meet: a thread of the process that made the id, at a socket of that name.
//
// A rank has a connection for data and one for meetings, and sends one request after the other on each.  Collectives are answered
// when all ranks have sent theirs, meetings when enough have come to each; calls that do not fit each other are never answered.
// Private to the emulation.
#pragma once

#include <compare>
#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include <nccl.h>

namespace cuda_emulation {

struct NcclRequest {
  enum class Kind : uint32_t { kMeet, kAllReduce, kReduce, kBroadcast, kAllGather, kReduceScatter, kSend, kRecv };
  Kind kind = Kind::kMeet;
  int32_t rank = 0;
  int32_t num_ranks = 0;
  int32_t type = 0;
  int32_t op = 0;
  int32_t peer = -1;       // root, or the other side of a message
  uint64_t count = 0;      // elements of the call's count argument
  uint64_t num_bytes = 0;  // that follow; kMeet: NcclMeetings
};

/// Where ranks wait for each other: all of them, or two.
struct NcclMeeting {
  static constexpr int32_t kAll = -1;
  int32_t from = kAll;  // the rank that sends to `to`
  int32_t to = 0;       // kAll: a number for the occasion
  auto operator<=>(const NcclMeeting&) const = default;

  static NcclMeeting hello() { return {kAll, -1}; }
  static NcclMeeting goodbye() { return {kAll, -2}; }  // a rank that is gone counts too
};

/// Begins to serve a new communicator; the socket's name.
std::string start_nccl_server();
/// A connection to it; -1 where there is none.
int connect_to_nccl_server(const std::string& name);

/// All of these bytes; false where the connection has ended.
bool write_all(int fd, const void* bytes, size_t count);
bool read_all(int fd, void* bytes, size_t count);

size_t size_of(ncclDataType_t type);
/// sum = op(sum, term) for `count` elements, rounded to the type.
void reduce_into(ncclDataType_t type, ncclRedOp_t op, size_t count, void* sum, const void* term);
/// Divides by `n`.
void divide(ncclDataType_t type, size_t count, int n, void* values);

}  // namespace cuda_emulation
