// How fast devices copy.
#pragma once

#include <tandem/base/macros.h>
#include <tandem/tensor/device.h>

namespace tandem { inline namespace v0 {

/// Bytes per second of a large copy from one device to another, or within one.
///
/// Measured on the first call for these two, with the rank's threads, and remembered: the best of some copies of 64 MiB, or of
/// what is free on both; takes some tens of milliseconds.  0 where less than 3 MiB is free on either.  For reports and plans: nothing that
/// tandem computes depends on it.  Throws DeviceError.
TANDEM_API double device_bandwidth(Device from, Device to);

}}  // namespace tandem::v0
