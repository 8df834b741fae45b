#include <tandem/tests/ops/fixtures.h>

namespace tandem::testing {

TANDEM_FIXTURES(cast) {
  fixtures.op("to", [](const Arguments& a) { return to(a.tensor("input"), a.dtype("dtype")); });
  const std::map<std::string, DType> methods = {
      {"bfloat16", kBFloat16}, {"bool", kBool}, {"byte", kUInt8}, {"double", kFloat64}, {"float", kFloat32},
      {"half", kFloat16},      {"int", kInt32}, {"long", kInt64}, {"short", kInt16},    {"char", kInt8}};
  for (const auto& [name, dtype] : methods) {
    fixtures.op(name, [dtype](const Arguments& a) { return to(a.tensor("input"), dtype); });
  }
}

}  // namespace tandem::testing
