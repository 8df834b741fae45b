// Copies of float32 parameters in a half type, for autocast on GPUs.
//
// The first cast of a parameter makes its copy. Later casts return it without a kernel while the parameter is
// unchanged. Optimizers write the copy together with the parameter; every other change of the parameter makes the copy
// *stale*, and the next cast rewrites it in place, because a cuda::Graph reads it at its address.
#pragma once

#include <cstdint>
#include <mutex>
#include <optional>

#include <tandem/base/macros.h>
#include <tandem/tensor/cuda.h>
#include <tandem/tensor/tensor.h>

namespace tandem { inline namespace v0 { namespace autograd {

/// The copy of one leaf. Thread-safe.
class RoundedCopy {
 public:
  /// `parameter` in `dtype`. Undefined if a cuda::Graph is being captured and the copy is not current: a cast in the
  /// graph runs in each replay.
  Tensor get(const Tensor& parameter, DType dtype);
  /// The copy, current or stale; undefined before the first cast.
  Tensor existing() const;
  /// After a step that has changed the parameter once, and existing() with it; a stale copy stays stale.
  void end_step(const Tensor& parameter);
  /// Releases the copy, because the parameter was moved.
  void remove();

 private:
  bool is_current(const Tensor& parameter) const { return version_ == parameter.storage()->version() && !is_stale_; }
  /// Writes the copy if it is not current, and lets the current stream wait until it is written.
  void update(const Tensor& parameter);

  mutable std::mutex mutex_;
  Tensor copy_;
  std::optional<cuda::Event> written_;  ///< recorded after the last cast, for other streams
  uint64_t stream_id_ = 0;              ///< of the last cast
  uint32_t version_ = 0;                ///< of the parameter when the copy was written
  bool is_stale_ = false;               ///< not written yet, or by a capture that has failed
};

/// Whether autocast uses copies of `tensor`: it is a float32 leaf on a GPU that requires grad.
TANDEM_API bool is_copied_by_autocast(const Tensor& tensor);

}}}  // namespace tandem::v0::autograd
