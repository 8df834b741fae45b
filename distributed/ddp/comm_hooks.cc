#include <tandem/distributed/comm_hooks.h>

#include <algorithm>
#include <utility>

#include <tandem/base/error.h>
#include <tandem/base/format.h>
#include <tandem/tensor/factories.h>
#include <tandem/tensor/primitives.h>

namespace tandem { inline namespace v0 { namespace distributed {

namespace {

/// Sends gradients as `dtype` if their elements are larger (or smaller) than those of `dtype`.
class CastHook final : public CommHook {
 public:
  enum class Casts { kLarger, kSmaller };
  CastHook(DType dtype, Casts casts, const char* name) : dtype_(dtype), casts_(casts), name_(name) {}

  std::string describe() const override { return name_; }

  void average(const GradBucket& bucket, const AllReduceMean& all_reduce, std::function<void()> done) override {
    const Tensor& values = bucket.values;
    const int64_t size = size_of(values.dtype()), sent_size = size_of(dtype_);
    if (casts_ == Casts::kLarger ? size <= sent_size : size >= sent_size) return all_reduce(values, std::move(done));
    const Tensor sent = empty(values.shape(), {dtype_, values.device()});
    primitives::copy(values, sent);
    all_reduce(sent, [values, sent, done = std::move(done)] {
      primitives::copy(sent, values);
      done();
    });
  }

 private:
  const DType dtype_;
  const Casts casts_;
  const char* const name_;
};

}  // namespace

std::shared_ptr<CommHook> fp16_compress() {
  return std::make_shared<CastHook>(kFloat16, CastHook::Casts::kLarger, "fp16_compress");
}
std::shared_ptr<CommHook> bf16_compress() {
  return std::make_shared<CastHook>(kBFloat16, CastHook::Casts::kLarger, "bf16_compress");
}
std::shared_ptr<CommHook> fp32_upcast() {
  return std::make_shared<CastHook>(kFloat32, CastHook::Casts::kSmaller, "fp32_upcast");
}

std::string to_string(const HookReport& report) {
  if (report.buckets.empty()) return "no step yet";
  const auto worst = std::max_element(report.buckets.begin(), report.buckets.end(),
                                      [](const auto& a, const auto& b) { return a.relative_error < b.relative_error; });
  std::string text =
      str("step ", report.step, ": relative error ", format_general(report.relative_error, 3), ", cosine ",
          format_fixed(report.cosine, 5), "; worst ", format_general(worst->relative_error, 3), ", ",
          format_fixed(worst->cosine, 5), " in ", worst->name);
  if (report.hooks.size() < 2) return text;
  for (const HookReport::Hook& hook : report.hooks) {
    text += str(&hook == &report.hooks.front() ? "; by hook: " : ", ", hook.name, " ",
                format_general(hook.relative_error, 3));
  }
  return text;
}

}}}  // namespace tandem::v0::distributed
