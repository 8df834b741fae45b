// Options of attention: bands, groups of heads, dropout.
#include <tandem/tests/ops/attention_composed_reference.h>
#include <tandem/tests/ops/attention_reference.h>

namespace tandem::testing { namespace {

using namespace attention;

/// Which keys each query attends to, bool [queries, keys].
Tensor band_mask(int64_t queries, int64_t keys, const AttentionOptions& options) {
  Dense allowed = dense_zeros({queries, keys});
  for (int64_t t = 0; t < queries; ++t) {
    for (int64_t s = 0; s < keys; ++s) {
      const int64_t position = t + options.query_offset;
      const bool is_later = options.is_causal && s > position;
      allowed[t * keys + s] = !is_later && window_mask(options.window, position, s) == 0;
    }
  }
  return make_tensor(allowed, kBool);
}

TEST(Attention, BandsMatchBoolMasks) {
  // Sizes around blocks of 64 queries and 64 or 256 keys; the last windows leave queries without keys.
  struct Band {
    int64_t queries, keys;
    AttentionWindow window;
    int64_t query_offset;
    bool is_causal;
  };
  constexpr int64_t kLast = std::numeric_limits<int64_t>::max();
  const Band bands[] = {{130, 300, {3, 5}, 0, false}, {130, 600, {-1, 0}, 300, false}, {70, 330, {20, -1}, 260, true},
                        {300, 300, {0, 0}, 0, false}, {300, 300, {100, -1}, 0, true},  {65, 600, {-1, -1}, 535, true},
                        {1, 70, {-1, -1}, 69, true},  {5, 70, {64, 10}, 30, false},    {300, 65, {2, 1}, 0, false},
                        {200, 5, {70, 3}, 0, true},   {70, 70, {63, 64}, 1, false},    {3, 600, {-1, 400}, 2, false},
                        {40, 60, {7, -1}, 0, true},   {40, 60, {7, 0}, 20, false},     {40, 60, {-1, -1}, 20, true},
                        {40, 60, {7, -1}, 0, false},  {1, 70, {-1, -1}, kLast, true},  {1, 70, {9, -1}, kLast, false}};
  const int64_t most_scores = test_device().is_cpu() ? std::numeric_limits<int64_t>::max() : 15000;
  for (const Band& band : bands) {
    if (band.queries * band.keys > most_scores) continue;
    for (const DType dtype : {kFloat32, kFloat64, kBFloat16}) {
      if (!test_device().is_cpu() && dtype == kFloat64) continue;
      SCOPED_TRACE(str(dtype, " ", band.queries, " x ", band.keys, ", window ", band.window.left, " ",
                       band.window.right, ", offset ", band.query_offset, band.is_causal ? ", causal" : ""));
      const AttentionOptions options = {
          .is_causal = band.is_causal, .scale = 0.4, .window = band.window, .query_offset = band.query_offset};
      const Tensor mask = band_mask(band.queries, band.keys, options);
      expect_same([&](const Tensors& in) { return scaled_dot_product_attention(in[0], in[1], in[2], options); },
                  [&](const Tensors& in) {
                    return scaled_dot_product_attention(in[0], in[1], in[2], {.attn_mask = mask, .scale = 0.4});
                  },
                  {random_here({2, band.queries, 8}, 1, dtype), random_here({2, band.keys, 8}, 2, dtype),
                   random_here({2, band.keys, 16}, 3, dtype)},
                  static_cast<double>(band.keys));
    }
  }
}

TEST(Attention, GroupedHeadsMatchRepeatedHeads) {
  const int64_t queries = 67, keys = test_device().is_cpu() ? 300 : 70;
  for (const DType dtype : floating_dtypes()) {
    for (const bool has_mask : {false, true}) {
      SCOPED_TRACE(str(dtype, has_mask));
      const Tensor mask = random_here({6, queries, 1}, 4);
      const auto options = [&](bool is_exact) {
        return AttentionOptions{.attn_mask = !has_mask  ? Tensor()
                                             : is_exact ? mask.cpu().to(kFloat64)
                                                        : mask,
                                .is_causal = true,
                                .enable_gqa = !is_exact};
      };
      expect_same([&](const Tensors& in) { return scaled_dot_product_attention(in[0], in[1], in[2], options(false)); },
                  [&](const Tensors& in) {
                    return scaled_dot_product_attention(in[0], in[1].repeat_interleave(3, 1),
                                                        in[2].repeat_interleave(3, 1), options(true));
                  },
                  {random_here({2, queries, 6, 8}, 1, dtype).transpose(1, 2), random_here({2, 2, keys, 8}, 2, dtype),
                   random_here({2, keys, 2, 16}, 3, dtype).transpose(1, 2)},
                  static_cast<double>(3 * keys));
    }
  }
}

TEST(Attention, DropoutMatchesDropoutOfComposedWeights) {
  const int64_t queries = test_device().is_cpu() ? 130 : 67, keys = test_device().is_cpu() ? 333 : 67;
  for (const DType dtype : floating_dtypes()) {
    for (const bool is_grouped : {false, true}) {
      SCOPED_TRACE(str(dtype, " ", is_grouped));
      const int64_t heads = is_grouped ? 2 : 4;
      const Tensor added = is_grouped ? added_causal_mask(queries, keys) : zeros({1}, {kFloat64});
      const auto repeated = [&](const Tensor& x) { return is_grouped ? x.repeat_interleave(2, 0) : x; };
      expect_same(
          [&](const Tensors& in) {
            Generator generator(5);
            return scaled_dot_product_attention(in[0], in[1], in[2],
                                                {.dropout_p = 0.4,
                                                 .is_causal = is_grouped,
                                                 .scale = 0.2,
                                                 .enable_gqa = is_grouped,
                                                 .generator = &generator});
          },
          [&](const Tensors& in) {
            Generator generator(5);
            const Tensor scores = add(mul(matmul(in[0], repeated(in[1]).transpose(-2, -1)), 0.2), added);
            return matmul(dropout(softmax(scores, -1), 0.4, true, &generator), repeated(in[2]));
          },
          {random_here({4, queries, 8}, 1, dtype), random_here({heads, keys, 8}, 2, dtype),
           random_here({heads, keys, 72}, 3, dtype)},
          static_cast<double>(2 * keys));
    }
  }
}

TEST(Attention, DropoutDrawsNewNumbersInEachCall) {
  const Tensor x = random_here({40, 4}, 1), value = random_here({40, 3}, 2);
  const auto attend = [&](double p) { return scaled_dot_product_attention(x, x, value, {.dropout_p = p}); };
  manual_seed(1);
  const Tensor first = attend(0.5), second = attend(0.5);
  EXPECT_FALSE(same_bits(first, second));
  manual_seed(1);
  EXPECT_TRUE(same_bits(attend(0.5), first));
  EXPECT_EQ(attend(1).to_vector<float>(), std::vector<float>(120, 0));
  const Tensor qkv = random_here({7, 24}, 3);
  manual_seed(2);
  const Tensor packed = qkv_attention(qkv, 2, {.dropout_p = 0.3});
  manual_seed(2);
  const auto part = [&](int64_t i) { return qkv.slice(-1, 8 * i, 8 * i + 8).view({7, 2, 4}).transpose(0, 1); };
  const Tensor split = scaled_dot_product_attention(part(0), part(1), part(2), {.dropout_p = 0.3});
  EXPECT_TRUE(same_bits(packed.contiguous(), split.transpose(0, 1).flatten(1).contiguous()));
}

TEST(Attention, DropoutWithMaskGradientUsesTheSameNumbers) {
  const auto run = [](const Tensors& in) {
    Generator generator(3);
    return scaled_dot_product_attention(in[0], in[1], in[2],
                                        {.attn_mask = in[3], .dropout_p = 0.4, .generator = &generator});
  };
  const Tensors in = {leaf(random_here({3, 2}, 1, kFloat64)), leaf(random_here({5, 2}, 2, kFloat64)),
                      leaf(random_here({5, 2}, 3, kFloat64)), leaf(random_here({3, 5}, 4, kFloat64))};
  const Tensor composed = run(in);
  EXPECT_TRUE(close(run({in[0], in[1], in[2], in[3].detach()}), dense(composed), 1e-14));
  EXPECT_NO_THROW(autograd::gradcheck(run, in));
}

TEST(Attention, InvalidOptionsAreNamedInErrors) {
  const Tensor x = ones({3, 4});
  const auto text = [&](const AttentionOptions& options) {
    return error_text<ValueError>([&] { scaled_dot_product_attention(x, x, x, options); });
  };
  EXPECT_EQ(text({.dropout_p = 1.5}), "scaled_dot_product_attention: dropout_p is 1.5, expected 0 <= dropout_p <= 1");
  EXPECT_EQ(text({.window = {-2, 3}}),
            "scaled_dot_product_attention: window is {-2, 3}, expected limits of at least -1");
  EXPECT_EQ(text({.query_offset = -1}), "scaled_dot_product_attention: query_offset is -1, expected at least 0");
  EXPECT_ERROR(ValueError, qkv_attention(ones({3, 12}), 2, {.enable_gqa = true}),
               "qkv_attention: enable_gqa is set, but qkv has a key and a value for each head; pass them to "
               "scaled_dot_product_attention\n"
               "  qkv  cpu  float32 [3, 12]");
  const auto grouped = [&](const Shape& q, const Shape& k, const Shape& v) {
    return error_text<ShapeError>(
        [&] { scaled_dot_product_attention(empty(q), empty(k), empty(v), {.enable_gqa = true}); });
  };
  EXPECT_EQ(grouped({3, 4}, {5, 4}, {5, 4}),
            "scaled_dot_product_attention: query, key and value must have at least 3 dimensions\n"
            "  query  cpu  float32 [3, 4]\n"
            "  key    cpu  float32 [5, 4]\n"
            "  value  cpu  float32 [5, 4]");
  EXPECT_EQ(
      grouped({6, 3, 4}, {4, 5, 4}, {4, 5, 4}),
      "scaled_dot_product_attention: the heads of key and value, 4 and 4, must be equal and divide the 6 heads of "
      "query\n"
      "  query  cpu  float32 [6, 3, 4]\n"
      "  key    cpu  float32 [4, 5, 4]\n"
      "  value  cpu  float32 [4, 5, 4]");
}

}}  // namespace tandem::testing
