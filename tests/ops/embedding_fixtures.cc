#include <tandem/ops/embedding.h>
#include <tandem/tests/ops/fixtures.h>

namespace tandem::testing {

TANDEM_FIXTURES(embedding) {
  fixtures.op("nn.functional.embedding",
              [](const Arguments& a) { return embedding(a.tensor("input"), a.tensor("weight")); });
}

}  // namespace tandem::testing
