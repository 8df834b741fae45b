#include <tandem/tests/ops/fixtures.h>

namespace tandem::testing {

TANDEM_FIXTURES(embedding) {
  fixtures.op("nn.functional.embedding", [](const Arguments& a) {
    const auto padding_idx = a.has("padding_idx") ? std::optional(a.integer("padding_idx")) : std::nullopt;
    return embedding(a.tensor("input"), a.tensor("weight"), padding_idx);
  });
}

}  // namespace tandem::testing
