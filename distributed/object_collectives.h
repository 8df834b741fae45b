// Collectives of strings and states, as torch.distributed's object collectives.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include <tandem/base/macros.h>
#include <tandem/distributed/process_group.h>
#include <tandem/tensor/state.h>

namespace tandem { inline namespace v0 { namespace distributed {

/// Largest object, in bytes. Send larger data as tensors, or in files.
constexpr int64_t kMaxObjectBytes = int64_t{1} << 30;

// An object is a string of any bytes, or a State, which is sent as the bytes of io::state_to_bytes: its tensors (any
// device, dtype and strides) arrive row-major on the CPU, tied tensors stay tied, and doubles keep their bits. `group`
// null: the default group (see init.h).
//
// Each function runs two collectives of CPU tensors: the first exchanges the sizes, so that no rank allocates memory
// for an object that is too large, and the second the bytes. The kind of object is part of their consistency check.
//
// Errors: ValueError on all ranks, naming the rank, if an object is larger than kMaxObjectBytes; ValueError for a root
// that is not in the group; StateError or ValueError for a State that cannot be written (see io::save_state), before
// anything is sent; the errors of collectives.

/// object = the object of root, in place, as torch.distributed.broadcast_object_list.
TANDEM_API void broadcast_object(std::string& object, int root, const std::shared_ptr<ProcessGroup>& group = nullptr,
                                 CollectiveOptions options = {});
TANDEM_API void broadcast_object(State& object, int root, const std::shared_ptr<ProcessGroup>& group = nullptr,
                                 CollectiveOptions options = {});

/// The objects of all ranks, indexed by rank of the group, as torch.distributed.all_gather_object.
TANDEM_API std::vector<std::string> all_gather_object(std::string_view object,
                                                      const std::shared_ptr<ProcessGroup>& group = nullptr,
                                                      CollectiveOptions options = {});
TANDEM_API std::vector<State> all_gather_object(const State& object,
                                                const std::shared_ptr<ProcessGroup>& group = nullptr,
                                                CollectiveOptions options = {});

/// On root: the objects of all ranks, indexed by rank of the group; on other ranks an empty list. As
/// torch.distributed.gather_object.
TANDEM_API std::vector<std::string> gather_object(std::string_view object, int root,
                                                  const std::shared_ptr<ProcessGroup>& group = nullptr,
                                                  CollectiveOptions options = {});
TANDEM_API std::vector<State> gather_object(const State& object, int root,
                                            const std::shared_ptr<ProcessGroup>& group = nullptr,
                                            CollectiveOptions options = {});

}}}  // namespace tandem::v0::distributed
