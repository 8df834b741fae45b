// Copy bandwidth of devices.
#pragma once

#include <tandem/base/macros.h>
#include <tandem/tensor/device.h>

namespace tandem { inline namespace v0 {

/// Bytes per second of a large copy from one device to another, or within one device.
///
/// Measured at the first call for a pair, with the rank's threads, and cached: the best of several copies of 64 MiB, or
/// of a third of the free memory if that is less; takes some tens of milliseconds. Returns 0 if less than 3 MiB is free
/// on either device. For reports and estimates only: no result of tandem depends on it. Throws DeviceError.
TANDEM_API double device_bandwidth(Device from, Device to);

}}  // namespace tandem::v0
