// Grad mode: whether operations are recorded for backward.
#pragma once

#include <tandem/base/rank_context.h>

namespace tandem { inline namespace v0 {

/// Whether operations of the calling thread are recorded for backward (torch.is_grad_enabled).
inline bool is_grad_enabled() { return RankContext::current().grad_enabled; }

namespace detail {
class GradMode {
 public:
  explicit GradMode(bool on) : context_(RankContext::current()), previous_(context_.grad_enabled) {
    context_.grad_enabled = on;
  }
  ~GradMode() { context_.grad_enabled = previous_; }
  GradMode(const GradMode&) = delete;
  GradMode& operator=(const GradMode&) = delete;

 private:
  RankContext& context_;
  bool previous_;
};
}  // namespace detail

/// Disables recording on the calling thread while in scope (torch.no_grad).
struct NoGradGuard : detail::GradMode {
  NoGradGuard() : GradMode(false) {}
};

/// Enables recording on the calling thread while in scope, also inside a NoGradGuard (torch.enable_grad).
struct EnableGradGuard : detail::GradMode {
  EnableGradGuard() : GradMode(true) {}
};

}}  // namespace tandem::v0
