// The stops of the tour, by topic.  Each is collective: all ranks of the group call it.
#pragma once

#include <cstdint>
#include <string>

#include <tandem/distributed/context.h>
#include <tandem/distributed/process_group.h>
#include <tandem/examples/collectives/stop.h>
#include <tandem/tensor/device.h>

namespace examples {

using tandem::distributed::ProcessGroup;
using tandem::distributed::Store;

/// What all stops share.
struct Tour {
  ProcessGroup& group;
  tandem::Device device;  ///< of the tensors, unless a stop says otherwise: the rank's own GPU, or the CPU
  std::string backend;    ///< of further groups

  bool is_on_gpu() const { return !device.is_cpu(); }
};

// reductions.cc: numbers of all ranks become one.
Stop all_reduce(const Tour& tour);
Stop all_reduce_bits(const Tour& tour);
Stop all_reduce_bfloat16(const Tour& tour);
Stop all_reduce_coalesced(const Tour& tour);
Stop reduce(const Tour& tour);
Stop reduce_scatter(const Tour& tour);
Stop reduce_scatter_coalesced(const Tour& tour);
Stop reduce_mean(const Tour& tour);

// moves.cc: numbers of one rank come to others.
Stop broadcast(const Tour& tour);
Stop broadcast_coalesced(const Tour& tour);
Stop broadcast_large(const Tour& tour, int64_t side);
Stop scatter(const Tour& tour);
Stop gather(const Tour& tour);
Stop all_gather(const Tour& tour);
Stop all_gather_unequal(const Tour& tour);
Stop all_gather_coalesced(const Tour& tour);
Stop all_to_all(const Tour& tour);
Stop all_to_all_uneven(const Tour& tour);

// messages.cc: from one rank to one other.
Stop send_recv(const Tour& tour);
Stop ring_shift(const Tour& tour);

// meetings.cc: waiting for each other, groups of some ranks, mistakes.
Stop barrier(const Tour& tour, Store& store);
Stop monitored_barrier(const Tour& tour);
Stop sub_groups(const Tour& tour);
Stop mismatched_dtypes(const Tour& tour);
Stop mismatched_sizes(const Tour& tour);
Stop mismatched_gather(const Tour& tour);
Stop wrong_device(const Tour& tour);

// asynchronous.cc: going on while numbers travel.
Stop all_reduce_async(const Tour& tour, const std::string& trace_path);
Stop then(const Tour& tour);
Stop groups_in_flight(const Tour& tour);

}  // namespace examples
