#include <tandem/tests/ops/fixtures.h>

namespace tandem::testing {

TANDEM_FIXTURES(attention) {
  fixtures.op("nn.functional.scaled_dot_product_attention", 64, [](const Arguments& a) {
    AttentionOptions options = {
        .attn_mask = a.tensor("attn_mask"), .is_causal = a.flag("is_causal"), .enable_gqa = a.flag("enable_gqa")};
    if (a.has("scale")) options.scale = a.real("scale", 1);
    return scaled_dot_product_attention(a.tensor("query"), a.tensor("key"), a.tensor("value"), options);
  });
}

}  // namespace tandem::testing
