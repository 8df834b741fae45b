#include <tandem/ops/index.h>
#include <tandem/tests/ops/fixtures.h>

namespace tandem::testing {

TANDEM_FIXTURES(index) {
  fixtures.op("gather",
              [](const Arguments& a) { return gather(a.tensor("input"), a.integer("dim"), a.tensor("index")); });
  fixtures.op("index_select",
              [](const Arguments& a) { return index_select(a.tensor("input"), a.integer("dim"), a.tensor("index")); });
  fixtures.op("nn.functional.one_hot",
              [](const Arguments& a) { return one_hot(a.tensor("input"), a.integer("num_classes")); });
  fixtures.op("topk", [](const Arguments& a) {
    return both(topk(a.tensor("input"), a.integer("k"), a.integer("dim", -1), a.flag("largest", true)));
  });
  fixtures.op("masked_fill",
              [](const Arguments& a) { return masked_fill(a.tensor("input"), a.tensor("mask"), a.number("value")); });
  fixtures.op("tril", [](const Arguments& a) { return tril(a.tensor("input"), a.integer("diagonal", 0)); });
}

}  // namespace tandem::testing
