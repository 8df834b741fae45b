// What kernels find wrong in the data they are given.  For *.cu files and tensor/cuda.
//
// A kernel cannot throw.  It leaves a complaint in a place of the host's memory, once, and goes on with a value that does no harm;
// the next synchronisation throws it (cuda::synchronize, a copy to the CPU, item), and the GPU stays usable.
#pragma once

#include <cstdint>
#include <exception>
#include <string>

#include <tandem/tensor/cuda/runtime.h>

namespace tandem { inline namespace v0 { namespace cuda {

/// An index outside its range, "<op>: <what> <value> at position <position> is outside [0, <size>)", unless `raise` says
/// otherwise.
struct Complaint {
  int32_t raised = 0;
  const char* op = nullptr;  ///< string literals of the host
  const char* what = nullptr;
  int64_t value = 0;
  int64_t position = 0;
  int64_t size = 0;
  double number = 0;
  /// A function of the host that throws another error, of the numbers above; its text ends with `told`.
  void (*raise)(const Complaint& found, const std::string& told) = nullptr;
  int32_t ready = 0;  ///< all of the above is there; `raised` only says whose place it is
};

/// The device's place, which its kernels may write.
Complaint* complaint_of(Device device);
/// Throws if there is one, IndexError or what it says, and removes it.  After the work that may have left it.
void throw_complaint(Device device);
/// What the host has found wrong in values on their way, to be thrown there too; the first alone.
void leave_error(Device device, const void* owner, std::exception_ptr error);
/// Takes back what `owner` has left there, if it still is.
void take_error_back(Device device, const void* owner);

#if defined(__CUDACC__) || defined(TANDEM_CUDA_EMULATED)
__device__ inline void complain(Complaint* place, const Complaint& found) {
  if (atomicCAS(&place->raised, 0, 1) != 0) return;
  place->op = found.op;
  place->what = found.what;
  place->value = found.value;
  place->position = found.position;
  place->size = found.size;
  place->number = found.number;
  place->raise = found.raise;
  __threadfence_system();
  *static_cast<volatile int32_t*>(&place->ready) = 1;
}
__device__ inline void complain(Complaint* place, const char* op, const char* what, int64_t value, int64_t position,
                                int64_t size) {
  complain(place, Complaint{0, op, what, value, position, size});
}
#endif

}}}  // namespace tandem::v0::cuda
