// Use of other GPUs by a rank's process.
#pragma once

#include <tandem/base/error.h>
#include <tandem/tensor/cuda.h>
#include <tandem/tensor/cuda/runtime.h>

namespace tandem { inline namespace v0 { namespace distributed {

/// Fails the rank if its process uses another GPU than its own: contexts of all ranks on the first GPU would cost some
/// hundred megabytes per rank there.
inline void check_no_other_gpu(Device own) {
  for (int i = 0; i < cuda::device_count(); ++i) {
    const Device device = Device::cuda(i);
    if (cuda::has_context(device) != (device == own))
      throw StateError(str("a context on ", device, " of a rank of ", own));
  }
}

}}}  // namespace tandem::v0::distributed
