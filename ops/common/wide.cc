#include <tandem/ops/common/wide.h>

#include <tandem/base/env.h>
#include <tandem/base/error.h>

namespace tandem { inline namespace v0 {

bool has_avx512() {
  static const bool has = [] {
    constexpr const char* kVariable = "TANDEM_CPU_CAPABILITY";
    const auto limit = env_string(kVariable);
    TANDEM_CHECK(ValueError, !limit || *limit == "avx2", kVariable, " is '", *limit, "', expected 'avx2' or no value");
    return !limit && __builtin_cpu_supports("x86-64-v4");
  }();
  return has;
}

}}  // namespace tandem::v0
