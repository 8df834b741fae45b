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
    return both(
        topk(a.tensor("input"), a.integer("k"), a.integer("dim", -1), a.flag("largest", true), a.flag("sorted", true)));
  });
  fixtures.op("masked_fill",
              [](const Arguments& a) { return masked_fill(a.tensor("input"), a.tensor("mask"), a.number("value")); });
  fixtures.op("tril", [](const Arguments& a) { return tril(a.tensor("input"), a.integer("diagonal", 0)); });
  fixtures.op("triu", [](const Arguments& a) { return triu(a.tensor("input"), a.integer("diagonal", 0)); });
  fixtures.op("take_along_dim", [](const Arguments& a) {
    const auto dim = a.has("dim") ? std::optional(a.integer("dim")) : std::nullopt;
    return take_along_dim(a.tensor("input"), a.tensor("indices"), dim);
  });
  fixtures.op("take", [](const Arguments& a) { return take(a.tensor("input"), a.tensor("index")); });
  fixtures.op("put", [](const Arguments& a) {
    return put(a.tensor("input"), a.tensor("index"), a.tensor("source"), a.flag("accumulate"));
  });
  fixtures.op("index_put", [](const Arguments& a) {
    return index_put(a.tensor("input"), a.indices("indices"), a.tensor("values"), a.flag("accumulate"));
  });
  fixtures.op("__getitem__", [](const Arguments& a) { return index(a.tensor("input"), a.indices("indices")); });
  fixtures.op("scatter", [](const Arguments& a) {
    const Tensor input = a.tensor("input"), index = a.tensor("index");
    const int64_t dim = a.integer("dim");
    return a.is_tensor("src") ? scatter(input, dim, index, a.tensor("src"))
                              : scatter(input, dim, index, a.number("src"));
  });
  fixtures.op("scatter_add", [](const Arguments& a) {
    return scatter_add(a.tensor("input"), a.integer("dim"), a.tensor("index"), a.tensor("src"));
  });
  const std::map<std::string, ScatterReduce> reductions = {{"sum", ScatterReduce::kSum},
                                                           {"prod", ScatterReduce::kProd},
                                                           {"mean", ScatterReduce::kMean},
                                                           {"amax", ScatterReduce::kAmax},
                                                           {"amin", ScatterReduce::kAmin}};
  for (const auto& [name, reduce] : reductions) {
    fixtures.op("scatter_reduce." + name, [reduce](const Arguments& a) {
      return scatter_reduce(a.tensor("input"), a.integer("dim"), a.tensor("index"), a.tensor("src"), reduce,
                            a.flag("include_self", true));
    });
  }
  fixtures.op("index_add", [](const Arguments& a) {
    return index_add(a.tensor("input"), a.integer("dim"), a.tensor("index"), a.tensor("source"), a.number("alpha", 1));
  });
  fixtures.op("index_copy", [](const Arguments& a) {
    return index_copy(a.tensor("input"), a.integer("dim"), a.tensor("index"), a.tensor("source"));
  });
  fixtures.op("index_fill", [](const Arguments& a) {
    return index_fill(a.tensor("input"), a.integer("dim"), a.tensor("index"), a.number("value"));
  });
  fixtures.op("nonzero", [](const Arguments& a) -> Results {
    if (a.flag("as_tuple")) return where(a.tensor("input"));
    return nonzero(a.tensor("input"));
  });
  fixtures.op("masked_select", [](const Arguments& a) { return masked_select(a.tensor("input"), a.tensor("mask")); });
  fixtures.op("masked_scatter", [](const Arguments& a) {
    return masked_scatter(a.tensor("input"), a.tensor("mask"), a.tensor("source"));
  });
}

}  // namespace tandem::testing
