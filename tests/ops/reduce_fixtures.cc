#include <tandem/tests/ops/fixtures.h>

namespace tandem::testing {

namespace {

/// f of one dimension, or of all.
template <class Dim, class All>
void by_dim(Fixtures& fixtures, const char* key, Dim dim, All all) {
  fixtures.op(key, [=](const Arguments& a) -> Results {
    if (a.has("dim")) return dim(a.tensor("input"), a.integer("dim"), a.flag("keepdim"));
    return all(a.tensor("input"));
  });
}

template <class Run>
void by_dims(Fixtures& fixtures, const char* key, Run run) {
  fixtures.op(key, 16, [=](const Arguments& a) { return run(a.tensor("input"), a.shape("dim"), a.flag("keepdim")); });
}

}  // namespace

TANDEM_FIXTURES(reduce) {
  using In = const Tensor&;
  using Dims = const Shape&;
  by_dims(fixtures, "sum", [](In x, Dims dims, bool keepdim) { return sum(x, dims, keepdim); });
  by_dims(fixtures, "mean", [](In x, Dims dims, bool keepdim) { return mean(x, dims, keepdim); });
  by_dims(fixtures, "amax", amax);
  by_dims(fixtures, "amin", amin);
  by_dims(fixtures, "any", any);
  by_dims(fixtures, "all", all);
  by_dims(fixtures, "nansum", nansum);
  by_dims(fixtures, "nanmean", nanmean);
  by_dims(fixtures, "logsumexp", logsumexp);
  const auto correction = [](const Arguments& a) { return a.real("correction", 1); };
  fixtures.op("var", 16, [=](const Arguments& a) {
    return var(a.tensor("input"), a.shape("dim"), correction(a), a.flag("keepdim"));
  });
  fixtures.op("std", 16, [=](const Arguments& a) {
    return std(a.tensor("input"), a.shape("dim"), correction(a), a.flag("keepdim"));
  });
  fixtures.op("var_mean", 16, [=](const Arguments& a) {
    return both(var_mean(a.tensor("input"), a.shape("dim"), correction(a), a.flag("keepdim")));
  });
  fixtures.op("std_mean", 16, [=](const Arguments& a) {
    return both(std_mean(a.tensor("input"), a.shape("dim"), correction(a), a.flag("keepdim")));
  });
  fixtures.op("max.reduction_no_dim", [](const Arguments& a) { return max(a.tensor("input")); });
  fixtures.op("min.reduction_no_dim", [](const Arguments& a) { return min(a.tensor("input")); });
  fixtures.op("max.reduction_with_dim",
              [](const Arguments& a) { return both(max(a.tensor("input"), a.integer("dim"), a.flag("keepdim"))); });
  fixtures.op("min.reduction_with_dim",
              [](const Arguments& a) { return both(min(a.tensor("input"), a.integer("dim"), a.flag("keepdim"))); });
  by_dim(
      fixtures, "argmax", [](In x, int64_t dim, bool keepdim) { return argmax(x, dim, keepdim); },
      [](In x) { return argmax(x); });
  by_dim(
      fixtures, "argmin", [](In x, int64_t dim, bool keepdim) { return argmin(x, dim, keepdim); },
      [](In x) { return argmin(x); });
  by_dim(
      fixtures, "prod", [](In x, int64_t dim, bool keepdim) { return prod(x, dim, keepdim); },
      [](In x) { return prod(x); });
  for (const char* key : {"norm", "norm.inf"}) {
    fixtures.op(key, 16, [](const Arguments& a) {
      return norm(a.tensor("input"), a.real("p", 2), a.shape("dim"), a.flag("keepdim"));
    });
  }
  fixtures.op("linalg.vector_norm", 16, [](const Arguments& a) {
    return norm(a.tensor("input"), a.real("ord", 2), a.shape("dim"), a.flag("keepdim"));
  });
  fixtures.op("count_nonzero", [](const Arguments& a) { return count_nonzero(a.tensor("input"), a.shape("dim")); });
  fixtures.op("bincount", [](const Arguments& a) {
    return bincount(a.tensor("input"), a.tensor("weights"), a.integer("minlength", 0));
  });
}

}  // namespace tandem::testing
