#include <tandem/ops/common/wide.h>

#include <tandem/base/env.h>
#include <tandem/base/error.h>

namespace tandem { inline namespace v0 {

namespace {

/// Limits of TANDEM_CPU_CAPABILITY, the highest last.
enum class Capability { kAvx2, kAvx512, kUnlimited };

Capability limit() {
  constexpr const char* kVariable = "TANDEM_CPU_CAPABILITY";
  const auto value = env_string(kVariable);
  if (!value) return Capability::kUnlimited;
  TANDEM_CHECK(ValueError, *value == "avx2" || *value == "avx512", kVariable, " is '", *value,
               "', expected 'avx2', 'avx512' or no value");
  return *value == "avx2" ? Capability::kAvx2 : Capability::kAvx512;
}

}  // namespace

bool has_avx512() {
  static const bool has = limit() >= Capability::kAvx512 && __builtin_cpu_supports("x86-64-v4");
  return has;
}

bool has_avx512_bf16() {
  static const bool has = limit() == Capability::kUnlimited && has_avx512() && __builtin_cpu_supports("avx512bf16");
  return has;
}

}}  // namespace tandem::v0
