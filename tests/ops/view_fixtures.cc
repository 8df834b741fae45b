#include <tandem/ops/view.h>
#include <tandem/tests/ops/fixtures.h>

namespace tandem::testing {

TANDEM_FIXTURES(view) {
  fixtures.op("view", [](const Arguments& a) { return view(a.tensor("input"), a.shape("shape")); });
  fixtures.op("reshape", [](const Arguments& a) { return reshape(a.tensor("input"), a.shape("shape")); });
  fixtures.op("flatten", [](const Arguments& a) {
    return flatten(a.tensor("input"), a.integer("start_dim", 0), a.integer("end_dim", -1));
  });
  fixtures.op("transpose",
              [](const Arguments& a) { return transpose(a.tensor("input"), a.integer("dim0"), a.integer("dim1")); });
  fixtures.op("t", [](const Arguments& a) { return t(a.tensor("input")); });
  fixtures.op("T", [](const Arguments& a) { return t(a.tensor("input")); });
  fixtures.op("permute", [](const Arguments& a) { return permute(a.tensor("input"), a.shape("dims")); });
  fixtures.op("slice", [](const Arguments& a) {
    return slice(a.tensor("input"), a.integer("dim"), a.integer("start"), a.integer("end"), a.integer("step", 1));
  });
  fixtures.op("select",
              [](const Arguments& a) { return select(a.tensor("input"), a.integer("dim"), a.integer("index")); });
  fixtures.op("expand", [](const Arguments& a) { return expand(a.tensor("input"), a.shape("shape")); });
  fixtures.op("squeeze", [](const Arguments& a) {
    return a.has("dim") ? squeeze(a.tensor("input"), a.integer("dim")) : squeeze(a.tensor("input"));
  });
  fixtures.op("unsqueeze", [](const Arguments& a) { return unsqueeze(a.tensor("input"), a.integer("dim")); });
  for (const char* key : {"split", "split.list_args", "split_with_sizes"}) {
    fixtures.op(key, [](const Arguments& a) -> Results {
      const int64_t dim = a.integer("dim", 0);
      if (a.is_list("split_size")) return split(a.tensor("input"), a.shape("split_size"), dim);
      return split(a.tensor("input"), a.integer("split_size"), dim);
    });
  }
  fixtures.op("chunk", [](const Arguments& a) -> Results {
    return chunk(a.tensor("input"), a.integer("chunks"), a.integer("dim", 0));
  });
  fixtures.op("cat", [](const Arguments& a) { return cat(a.tensors("tensors"), a.integer("dim", 0)); });
  fixtures.op("stack", [](const Arguments& a) { return stack(a.tensors("tensors"), a.integer("dim", 0)); });
}

}  // namespace tandem::testing
