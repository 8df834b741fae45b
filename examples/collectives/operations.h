// The demonstrated operations. Each function is collective: all ranks of the group must call it.
#pragma once

#include <cstdint>
#include <string>

#include <tandem/distributed/context.h>
#include <tandem/distributed/process_group.h>
#include <tandem/examples/collectives/operation_report.h>
#include <tandem/tensor/device.h>

namespace examples {

using tandem::distributed::ProcessGroup;
using tandem::distributed::Store;

/// Arguments of all operations.
struct Setup {
  ProcessGroup& group;
  tandem::Device device;  ///< of the tensors: the rank's GPU, or the CPU
  std::string backend;    ///< of new groups

  bool is_on_gpu() const { return !device.is_cpu(); }
};

// reductions.cc
OperationReport all_reduce(const Setup& setup);
OperationReport all_reduce_bits(const Setup& setup);
OperationReport all_reduce_bfloat16(const Setup& setup);
OperationReport all_reduce_coalesced(const Setup& setup);
OperationReport reduce(const Setup& setup);
OperationReport reduce_scatter(const Setup& setup);
OperationReport reduce_scatter_coalesced(const Setup& setup);
OperationReport reduce_mean(const Setup& setup);

// data_movement.cc
OperationReport broadcast(const Setup& setup);
OperationReport broadcast_coalesced(const Setup& setup);
OperationReport broadcast_large(const Setup& setup, int64_t side);
OperationReport scatter(const Setup& setup);
OperationReport gather(const Setup& setup);
OperationReport all_gather(const Setup& setup);
OperationReport all_gather_unequal(const Setup& setup);
OperationReport all_gather_coalesced(const Setup& setup);
OperationReport all_to_all(const Setup& setup);
OperationReport all_to_all_uneven(const Setup& setup);

// point_to_point.cc
OperationReport send_recv(const Setup& setup);
OperationReport ring_shift(const Setup& setup);

// synchronization.cc
OperationReport barrier(const Setup& setup, Store& store);
OperationReport monitored_barrier(const Setup& setup);
OperationReport sub_groups(const Setup& setup);
OperationReport mismatched_dtypes(const Setup& setup);
OperationReport mismatched_sizes(const Setup& setup);
OperationReport mismatched_gather(const Setup& setup);
OperationReport wrong_device(const Setup& setup);

// asynchronous.cc
OperationReport all_reduce_async(const Setup& setup, const std::string& trace_path);
OperationReport then(const Setup& setup);
OperationReport groups_in_flight(const Setup& setup);

}  // namespace examples
