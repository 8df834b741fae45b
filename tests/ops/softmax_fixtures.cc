#include <tandem/tests/ops/fixtures.h>

namespace tandem::testing {

namespace {

std::optional<DType> given_dtype(const Arguments& a) {
  if (!a.has("dtype")) return {};
  return a.dtype("dtype");
}

}  // namespace

TANDEM_FIXTURES(softmax) {
  for (const char* key : {"softmax", "softmax.with_dtype"}) {
    fixtures.op(key, [](const Arguments& a) { return softmax(a.tensor("input"), a.integer("dim"), given_dtype(a)); });
  }
  for (const char* key : {"log_softmax", "log_softmax.with_dtype"}) {
    fixtures.op(key,
                [](const Arguments& a) { return log_softmax(a.tensor("input"), a.integer("dim"), given_dtype(a)); });
  }
}

}  // namespace tandem::testing
