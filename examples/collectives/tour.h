// The stops of the tour, by topic.  Each is collective: all ranks of the group call it.
#pragma once

#include <cstdint>
#include <string>

#include <tandem/distributed/context.h>
#include <tandem/distributed/process_group.h>
#include <tandem/examples/collectives/stop.h>

namespace examples {

using tandem::distributed::ProcessGroup;
using tandem::distributed::Store;

// reductions.cc: numbers of all ranks become one.
Stop all_reduce(ProcessGroup& group);
Stop all_reduce_bits(ProcessGroup& group);
Stop all_reduce_bfloat16(ProcessGroup& group);
Stop all_reduce_coalesced(ProcessGroup& group);
Stop reduce(ProcessGroup& group);
Stop reduce_scatter(ProcessGroup& group);
Stop reduce_scatter_coalesced(ProcessGroup& group);
Stop reduce_mean(ProcessGroup& group);

// moves.cc: numbers of one rank come to others.
Stop broadcast(ProcessGroup& group);
Stop broadcast_coalesced(ProcessGroup& group);
Stop broadcast_large(ProcessGroup& group, int64_t side);
Stop scatter(ProcessGroup& group);
Stop gather(ProcessGroup& group);
Stop all_gather(ProcessGroup& group);
Stop all_gather_unequal(ProcessGroup& group);
Stop all_gather_coalesced(ProcessGroup& group);
Stop all_to_all(ProcessGroup& group);
Stop all_to_all_uneven(ProcessGroup& group);

// messages.cc: from one rank to one other.
Stop send_recv(ProcessGroup& group);
Stop ring_shift(ProcessGroup& group);

// meetings.cc: waiting for each other, groups of some ranks, mistakes.
Stop barrier(ProcessGroup& group, Store& store);
Stop monitored_barrier(ProcessGroup& group);
Stop sub_groups(ProcessGroup& group, const std::string& backend);
Stop mismatched_dtypes(ProcessGroup& group, const std::string& backend);
Stop mismatched_sizes(ProcessGroup& group, const std::string& backend);
Stop mismatched_gather(ProcessGroup& group, const std::string& backend);
Stop wrong_device(ProcessGroup& group, const std::string& backend);

// asynchronous.cc: going on while numbers travel.
Stop all_reduce_async(ProcessGroup& group, const std::string& trace_path);
Stop then(ProcessGroup& group);
Stop groups_in_flight(ProcessGroup& group, const std::string& backend);

}  // namespace examples
