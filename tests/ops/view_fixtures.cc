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
  fixtures.op("narrow", [](const Arguments& a) {
    return narrow(a.tensor("input"), a.integer("dim"), a.integer("start"), a.integer("length"));
  });
  fixtures.op("unbind", [](const Arguments& a) { return unbind(a.tensor("input"), a.integer("dim", 0)); });
  fixtures.op("tensor_split", [](const Arguments& a) {
    const char* name = "indices_or_sections";
    const int64_t dim = a.integer("dim", 0);
    return a.is_list(name) ? tensor_split(a.tensor("input"), a.shape(name), dim)
                           : tensor_split(a.tensor("input"), a.integer(name), dim);
  });
  fixtures.op("unflatten",
              [](const Arguments& a) { return unflatten(a.tensor("input"), a.integer("dim"), a.shape("sizes")); });
  fixtures.op("movedim",
              [](const Arguments& a) { return movedim(a.tensor("input"), a.shape("source"), a.shape("destination")); });
  fixtures.op("broadcast_to", [](const Arguments& a) { return broadcast_to(a.tensor("input"), a.shape("size")); });
  fixtures.op("expand_as", [](const Arguments& a) { return a.tensor("input").expand_as(a.tensor("other")); });
  fixtures.op("meshgrid.list_of_tensors", [](const Arguments& a) {
    return meshgrid(a.tensors("tensors"), a.text("indexing", "ij") == "xy" ? MeshIndexing::kXY : MeshIndexing::kIJ);
  });
  fixtures.op("diagonal", [](const Arguments& a) {
    return diagonal(a.tensor("input"), a.integer("offset", 0), a.integer("dim1", 0), a.integer("dim2", 1));
  });
  fixtures.op("diag_embed", [](const Arguments& a) {
    return diag_embed(a.tensor("input"), a.integer("offset", 0), a.integer("dim1", -2), a.integer("dim2", -1));
  });
  fixtures.op("diag", [](const Arguments& a) { return diag(a.tensor("input"), a.integer("diagonal", 0)); });
  fixtures.unary("trace", trace);
  fixtures.op("unfold", [](const Arguments& a) {
    return unfold(a.tensor("input"), a.integer("dimension"), a.integer("size"), a.integer("step"));
  });
  fixtures.op("repeat", [](const Arguments& a) { return repeat(a.tensor("input"), a.shape("repeats")); });
  fixtures.op("tile", [](const Arguments& a) { return tile(a.tensor("input"), a.shape("dims")); });
  fixtures.op("repeat_interleave", [](const Arguments& a) {
    const auto dim = a.has("dim") ? std::optional(a.integer("dim")) : std::nullopt;
    return a.is_tensor("repeats") ? repeat_interleave(a.tensor("input"), a.tensor("repeats"), dim)
                                  : repeat_interleave(a.tensor("input"), a.integer("repeats"), dim);
  });
  fixtures.op("flip", [](const Arguments& a) { return flip(a.tensor("input"), a.shape("dims")); });
  fixtures.op("roll", [](const Arguments& a) { return roll(a.tensor("input"), a.shape("shifts"), a.shape("dims")); });
}

}  // namespace tandem::testing
