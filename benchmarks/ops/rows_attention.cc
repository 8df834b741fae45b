#include <tandem/benchmarks/ops/rows.h>

using namespace tandem;

namespace {

// The attention of the training cases, and a long one.
struct Heads {
  int64_t batch, length, heads, head_dim;
};
constexpr Heads kHeads[] = {{16, 128, 4, 32}, {4, 256, 6, 64}, {1, 1024, 8, 64}};

double flops(const Heads& h, bool is_causal) {
  return 4.0 * static_cast<double>(h.batch * h.heads * h.length * h.length * h.head_dim) / (is_causal ? 2 : 1);
}

}  // namespace

TANDEM_BENCHMARK_ROWS(attention) {
  for (const Heads& h : kHeads) {
    for (const bool is_causal : {true, false}) {
      const std::string word = is_causal ? " causal" : " full";
      rows.add(
          "scaled_dot_product_attention" + word,
          [&h] {
            const Shape shape = {h.batch, h.heads, h.length, h.head_dim};
            return TensorList{randn(shape), randn(shape), randn(shape)};
          },
          [is_causal](const TensorList& in) {
            return scaled_dot_product_attention(in[0], in[1], in[2], {.is_causal = is_causal});
          },
          {.flops = flops(h, is_causal)});
      rows.add(
          "qkv_attention" + word,
          [&h] {
            return TensorList{randn({h.batch, h.length, 3 * h.heads * h.head_dim})};
          },
          [&h, is_causal](const TensorList& in) { return qkv_attention(in[0], h.heads, {.is_causal = is_causal}); },
          {.flops = flops(h, is_causal)});
    }
  }
}
