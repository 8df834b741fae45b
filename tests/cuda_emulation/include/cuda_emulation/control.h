// What tests ask of the emulated runtime and CUDA does not offer.
#pragma once

#include <functional>
#include <string>

#include <cuda_runtime.h>

namespace cuda_emulation {

/// The text of the newest failure inside a kernel or of a refused call; empty after reset().
std::string last_report();

/// Ends the failed state of all devices and forgets the report.  Tasks of failed devices are dropped; memory, streams and events
/// stay valid.
void reset();

/// Fails a device as a kernel's illegal access does; last_report() is the text.
void fail(int device, const std::string& text);

/// "lazy", "eager" or "random:SEED", as TANDEM_EMULATED_ORDER gives it at the start; returns whether the text is one of them.
bool set_order(const std::string& order);

/// Whether accesses of instrumented kernels are checked, as TANDEM_EMULATED_CHECKS=0 says at the start.
void set_checks(bool on);

/// Bytes in live blocks of a device; -1 is pinned host memory.
size_t live_bytes(int device);

/// Queues what a library would do on the GPU: work() runs on the CPU, in the stream's order, with its device's memory open.
void run_on_device(cudaStream_t stream, std::function<void()> work);

/// Tasks that wait in all streams.
size_t num_queued_tasks();

}  // namespace cuda_emulation
