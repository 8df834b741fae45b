#include <tandem/distributed/gradient_hooks.h>

#include <algorithm>
#include <cstdio>
#include <utility>

#include <tandem/base/error.h>
#include <tandem/tensor/chores.h>
#include <tandem/tensor/factories.h>

namespace tandem { inline namespace v0 { namespace distributed {

namespace {

/// Sends as `dtype` what is larger, or what is smaller.
class CastHook final : public GradientHook {
 public:
  enum class Of { kLarger, kSmaller };
  CastHook(DType dtype, Of of, const char* name) : dtype_(dtype), of_(of), name_(name) {}

  std::string describe() const override { return name_; }

  void average(const GradientBucket& bucket, const Exchange& next, std::function<void()> done) override {
    const Tensor& values = bucket.values;
    const int64_t size = size_of(values.dtype()), sent_size = size_of(dtype_);
    if (of_ == Of::kLarger ? size <= sent_size : size >= sent_size) return next(values, std::move(done));
    const Tensor sent = empty(values.shape(), {dtype_, values.device()});
    chores::copy(values, sent);
    next(sent, [values, sent, done = std::move(done)] {
      chores::copy(sent, values);
      done();
    });
  }

 private:
  const DType dtype_;
  const Of of_;
  const char* const name_;
};

}  // namespace

std::shared_ptr<GradientHook> fp16() { return std::make_shared<CastHook>(kFloat16, CastHook::Of::kLarger, "fp16"); }
std::shared_ptr<GradientHook> bf16() { return std::make_shared<CastHook>(kBFloat16, CastHook::Of::kLarger, "bf16"); }
std::shared_ptr<GradientHook> fp32() { return std::make_shared<CastHook>(kFloat32, CastHook::Of::kSmaller, "fp32"); }

std::string to_string(const HookReport& report) {
  if (report.buckets.empty()) return "no step yet";
  const auto worst = std::max_element(report.buckets.begin(), report.buckets.end(),
                                      [](const auto& a, const auto& b) { return a.relative_error < b.relative_error; });
  char numbers[160];
  std::snprintf(numbers, sizeof numbers, "relative error %.3g, cosine %.5f; worst %.3g, %.5f", report.relative_error,
                report.cosine, worst->relative_error, worst->cosine);
  std::string text = str("step ", report.step, ": ", numbers, " in ", worst->name);
  if (report.hooks.size() < 2) return text;
  for (const HookReport::Hook& hook : report.hooks) {
    std::snprintf(numbers, sizeof numbers, " %.3g", hook.relative_error);
    text += str(&hook == &report.hooks.front() ? "; by hook: " : ", ", hook.name, numbers);
  }
  return text;
}

}}}  // namespace tandem::v0::distributed
