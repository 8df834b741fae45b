#include <tandem/tests/ops/fixtures.h>

namespace tandem::testing {

TANDEM_FIXTURES(sort) {
  fixtures.op("sort", [](const Arguments& a) {
    return both(sort(a.tensor("input"), a.integer("dim", -1), a.flag("descending")));
  });
  fixtures.op("argsort", [](const Arguments& a) {
    return argsort(a.tensor("input"), a.integer("dim", -1), a.flag("descending"));
  });
  fixtures.op("kthvalue", [](const Arguments& a) {
    return both(kthvalue(a.tensor("input"), a.integer("k"), a.integer("dim", -1), a.flag("keepdim")));
  });
  fixtures.op("median", [](const Arguments& a) -> Results {
    if (!a.has("dim")) return median(a.tensor("input"));
    return both(median(a.tensor("input"), a.integer("dim"), a.flag("keepdim")));
  });
  fixtures.op("nanmedian", [](const Arguments& a) -> Results {
    if (!a.has("dim")) return nanmedian(a.tensor("input"));
    return both(nanmedian(a.tensor("input"), a.integer("dim"), a.flag("keepdim")));
  });
  fixtures.op("unique", [](const Arguments& a) {
    const Unique unique =
        tandem::unique(a.tensor("input"), a.flag("sorted", true), a.flag("return_inverse"), a.flag("return_counts"));
    Tensors results = {unique.output};
    if (a.flag("return_inverse")) results.push_back(unique.inverse_indices);
    if (a.flag("return_counts")) results.push_back(unique.counts);
    return Results(results);
  });
  fixtures.op("searchsorted", [](const Arguments& a) {
    return searchsorted(a.tensor("sorted_sequence"), a.tensor("values"), a.flag("right"));
  });
  fixtures.op("bucketize",
              [](const Arguments& a) { return bucketize(a.tensor("input"), a.tensor("boundaries"), a.flag("right")); });
}

}  // namespace tandem::testing
