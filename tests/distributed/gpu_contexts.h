// What a rank's process takes of other GPUs.
#pragma once

#include <tandem/base/error.h>
#include <tandem/tensor/cuda.h>
#include <tandem/tensor/cuda/runtime.h>

namespace tandem { inline namespace v0 { namespace distributed {

/// Fails the rank where its process uses another GPU than its own: a context of each rank on the first one costs that some hundred
/// megabytes for every rank.
inline void check_no_other_gpu(Device own) {
  for (int i = 0; i < cuda::device_count(); ++i) {
    const Device device = Device::cuda(i);
    if (cuda::has_context(device) != (device == own))
      throw StateError(str("a context on ", device, " of a rank of ", own));
  }
}

}}}  // namespace tandem::v0::distributed
