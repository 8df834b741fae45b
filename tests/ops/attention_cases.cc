#include <tandem/tests/ops/attention_reference.h>
#include <tandem/tests/ops/op_cases.h>

namespace tandem::testing {

namespace {

using namespace attention;

OpCase attention_case(const Sizes& sizes) {
  OpCase op;
  op.name = "scaled_dot_product_attention";
  op.inputs = {{"query", with(sizes.batch, sizes.queries, sizes.head_dim)},
               {"key", with(sizes.batch, sizes.keys, sizes.head_dim)},
               {"value", with(sizes.batch, sizes.keys, sizes.value_dim)}};
  const double scale = 0.3;
  op.run = [=](const std::vector<Tensor>& in) {
    return scaled_dot_product_attention(in[0], in[1], in[2], {.is_causal = sizes.is_causal, .scale = scale});
  };
  op.reference = [=](const std::vector<Dense>& in) {
    return reference(in[0], in[1], in[2], scale,
                     [=](int64_t, int64_t t, int64_t s) { return sizes.is_causal ? causal_mask(t, s) : 0; });
  };
  op.terms = static_cast<double>(sizes.keys + sizes.head_dim);
  return op;
}

/// Dropout of a generator of its own, so that each call draws the same numbers.
constexpr uint64_t kSeed = 7;
constexpr double kDropout = 0.3;

double dropout_factor(int64_t i) {
  const auto block = Generator(kSeed).reserve(0).block(static_cast<uint64_t>(i / 4));
  return block[static_cast<size_t>(i % 4)] >= kDropout * 0x1p32 ? 1 / (1 - kDropout) : 0;
}

/// Four heads of queries with two heads of keys and values, a window, an offset and dropout.
OpCase all_options_case(int64_t queries, int64_t keys, bool has_mask) {
  OpCase op;
  op.name = "scaled_dot_product_attention";
  op.inputs = {{"query", {2, 4, queries, 5}}, {"key", {2, 2, keys, 5}}, {"value", {2, 2, keys, 3}}};
  if (has_mask) op.inputs.push_back(optional(keeps_dtype({"attn_mask", {4, 1, keys}})));
  const AttentionWindow window = {3, 1};
  op.run = [=](const std::vector<Tensor>& in) {
    Generator generator(kSeed);
    return scaled_dot_product_attention(in[0], in[1], in[2],
                                        {.attn_mask = has_mask ? in[3] : Tensor(),
                                         .dropout_p = kDropout,
                                         .scale = 0.3,
                                         .enable_gqa = true,
                                         .window = window,
                                         .query_offset = 2,
                                         .generator = &generator});
  };
  op.reference = [=](const std::vector<Dense>& in) {
    const auto mask = [&](int64_t batch, int64_t t, int64_t s) {
      return window_mask(window, t + 2, s) + (has_mask ? in[3][batch % 4 * keys + s] : 0);
    };
    return reference(in[0], in[1], in[2], 0.3, mask, 2, dropout_factor);
  };
  op.terms = static_cast<double>(keys + 5);
  return op;
}

OpCase qkv_case(const Shape& batch, int64_t size, int64_t num_heads, int64_t head_dim, bool is_causal) {
  OpCase op;
  op.name = "qkv_attention";
  op.inputs = {{"qkv", with(batch, size, 3 * num_heads * head_dim)}};
  op.run = [=](const std::vector<Tensor>& in) {
    return qkv_attention(in[0], num_heads, {.is_causal = is_causal, .scale = 0.3});
  };
  op.reference = [=](const std::vector<Dense>& in) {
    const int64_t rows = num_elements(batch) * size, width = num_heads * head_dim;
    Dense out = dense_zeros(with(batch, size, width));
    for (int64_t h = 0; h < num_heads; ++h) {
      Dense parts[3];
      for (int64_t part = 0; part < 3; ++part) {
        parts[part] = dense_zeros(with(batch, size, head_dim));
        for (int64_t i = 0; i < rows * head_dim; ++i) {
          parts[part][i] = in[0][i / head_dim * 3 * width + part * width + h * head_dim + i % head_dim];
        }
      }
      const Dense head = reference(parts[0], parts[1], parts[2], 0.3,
                                   [=](int64_t, int64_t t, int64_t s) { return is_causal ? causal_mask(t, s) : 0; });
      for (int64_t i = 0; i < rows * head_dim; ++i) out[i / head_dim * width + h * head_dim + i % head_dim] = head[i];
    }
    return out;
  };
  op.terms = static_cast<double>(size + head_dim);
  return op;
}

OpCase rotary_case(const Shape& batch, int64_t length, int64_t head_dim, bool interleaved) {
  OpCase op;
  op.name = "rotary_embedding";
  const int64_t half = head_dim / 2;
  op.inputs = {
      {"x", with(batch, length, head_dim)}, constant({"cos", {length, half}}), constant({"sin", {length, half}})};
  op.run = [=](const std::vector<Tensor>& in) { return rotary_embedding(in[0], in[1], in[2], interleaved); };
  op.reference = [=](const std::vector<Dense>& in) {
    Dense out = dense_zeros(in[0].shape);
    for (int64_t i = 0; i < out.numel() / 2; ++i) {
      const int64_t row = i / half, pair = i % half, angle = row % length * half + pair;
      const int64_t a = row * head_dim + (interleaved ? 2 * pair : pair), b = a + (interleaved ? 1 : half);
      out[a] = in[0][a] * in[1][angle] - in[0][b] * in[2][angle];
      out[b] = in[0][b] * in[1][angle] + in[0][a] * in[2][angle];
    }
    return out;
  };
  op.terms = 2;
  return op;
}

// The attention of the training cases, and a long sequence.
struct Heads {
  int64_t batch, length, heads, head_dim;
};
constexpr Heads kHeads[] = {{16, 128, 4, 32}, {4, 256, 6, 64}, {1, 1024, 8, 64}};

double flops(const Heads& h, bool is_causal) {
  return 4.0 * static_cast<double>(h.batch * h.heads * h.length * h.length * h.head_dim) / (is_causal ? 2 : 1);
}

}  // namespace

TANDEM_OP_CASES(attention) {
  const auto attend = [](bool is_causal) {
    return [=](const Tensors& x) {
      return scaled_dot_product_attention(x[0], x[1], x[2], {.attn_mask = x[3], .is_causal = is_causal});
    };
  };
  const auto attend_qkv = [](const Tensors& x) {
    return qkv_attention(x[0], 2, {.attn_mask = x[1], .is_causal = true});
  };
  const Input query = {"query", {2, 3, 5}}, key = {"key", {2, 7, 5}}, value = {"value", {2, 7, 4}};
  cases.op(
      "Tensor scaled_dot_product_attention(const Tensor& query, const Tensor& key, const Tensor& value, const "
      "AttentionOptions& options = {})",
      CastPolicy::kLowPrecision,
      {{.inputs = {query, key, value, optional(constant(keeps_dtype({"attn_mask", {3, 7}})))}, .run = attend(true)},
       {.inputs = {query, key, value, bools("attn_mask", {2, 1, 7})}, .run = attend(false)},
       {.inputs = {query, key, value, keeps_dtype({"attn_mask", {}})}, .run = attend(false)},
       {.inputs = {{"query", {2, 4, 3}, 0.5, 2}, {"key", {2, 5, 3}, 0.5, 2}, {"value", {2, 5, 6}, 0.5, 2}},
        .run = [](const Tensors& x) { return scaled_dot_product_attention(x[0], x[1], x[2]); },
        .terms = 25}});
  cases.op(
      "Tensor qkv_attention(const Tensor& qkv, int64_t num_heads, const AttentionOptions& options = {})",
      CastPolicy::kLowPrecision,
      {{.inputs = {{"qkv", {2, 3, 18}}, optional(constant(keeps_dtype({"attn_mask", {3, 3}})))}, .run = attend_qkv},
       {.inputs = {{"qkv", {2, 3, 18}}, bools("attn_mask", {3, 3})}, .run = attend_qkv},
       {.inputs = {{"qkv", {2, 3, 18}}, keeps_dtype({"attn_mask", {}})}, .run = attend_qkv},
       {.inputs = {{"qkv", {2, 4, 12}, 0.5, 2}},
        .run = [](const Tensors& x) { return qkv_attention(x[0], 2, {.is_causal = true}); },
        .terms = 16}});

  cases.op("Tensor rotary_embedding(const Tensor& x, const Tensor& cos, const Tensor& sin, bool interleaved = false)",
           std::nullopt, {rotary_case({2}, 3, 6, false), rotary_case({2}, 3, 6, true)});
  cases.add(rotary_case({}, 1, 2, true));
  cases.add(rotary_case({2, 1}, 5, 4, false));
  cases.add(rotary_case({3}, 300, 64, false), kThreads);

  for (const bool is_causal : {false, true}) {
    // Second derivatives are composed of other operations, for which an emulated GPU takes minutes.
    const unsigned checks = test_device().is_cpu() ? kAllChecks : kValues;
    cases.add(attention_case({{2}, 3, 3, 3, 3, is_causal}), checks);
    cases.add(attention_case({{}, 1, 7, 1, 2, is_causal}), checks);
    cases.add(attention_case({{2, 1}, 7, 2, 8, 1, is_causal}), checks);
  }
  if (!test_device().is_cpu()) cases.add(attention_case({{2}, 2, 3, 2, 1, true}));

  for (const bool is_causal : {false, true}) {
    cases.add(attention_case({{19}, 70, 300, 8, 8, is_causal}), kThreads);
    cases.add(attention_case({{1}, 300, 300, 8, 8, is_causal}), kThreads);
  }

  {
    OpCase op = attention_case({{2}, 3, 5, 3, 2, true});
    op.inputs.push_back({.name = "attn_mask", .shape = {3, 5}, .optional = true});
    op.run = [](const std::vector<Tensor>& in) {
      return scaled_dot_product_attention(in[0], in[1], in[2], {.attn_mask = in[3], .is_causal = true, .scale = 0.3});
    };
    op.reference = [](const std::vector<Dense>& in) {
      return reference(in[0], in[1], in[2], 0.3,
                       [&](int64_t, int64_t t, int64_t s) { return in[3][t * 5 + s] + causal_mask(t, s); });
    };
    cases.add(op, test_device().is_cpu() ? kAllChecks : kValues);  // composed of operations that have their own tests
  }

  // A query offset and a window that leave the last queries without keys.
  cases.add(all_options_case(7, 4, false), test_device().is_cpu() ? kAllChecks : kValues);
  cases.add(all_options_case(3, 6, true), test_device().is_cpu() ? kAllChecks : kValues);
  cases.add(all_options_case(150, 70, false), kThreads);
  {
    OpCase op;
    op.name = "scaled_dot_product_attention";
    op.inputs = {{"query", {2, 1, 3, 5}}, {"key", {3, 4, 5}}, {"value", {2, 1, 4, 2}}};
    op.run = [](const std::vector<Tensor>& in) {
      return scaled_dot_product_attention(in[0], in[1], in[2], {.scale = 0.3});
    };
    op.reference = [](const std::vector<Dense>& in) {
      const auto expanded = [&](size_t i, int64_t rows, int64_t columns) {
        return dense_map({2, 3, rows, columns}, {in[i]}, [](const std::vector<double>& x) { return x[0]; });
      };
      return reference(expanded(0, 3, 5), expanded(1, 4, 5), expanded(2, 4, 2), 0.3,
                       [](int64_t, int64_t, int64_t) { return 0.0; });
    };
    op.terms = 60;  // gradients of half types are rounded before they are summed over the broadcast dimensions
    cases.add(op, test_device().is_cpu() ? kAllChecks : kValues);
  }

  cases.add(qkv_case({2}, 3, 2, 3, true));
  cases.add(qkv_case({}, 7, 1, 2, false));
  cases.add(qkv_case({1, 2}, 2, 3, 1, true));
  cases.add(qkv_case({2}, 65, 3, 8, true), kValues);
  cases.add(qkv_case({2}, 5, 2, 16, false));  // of half types on GPUs by cuDNN
  cases.add(qkv_case({3}, 65, 7, 8, true), kThreads);

  cases.benchmark(
      "scaled_dot_product_attention grouped", {{1, 8, 512, 64}, {1, 2, 512, 64}, {1, 2, 512, 64}},
      [](const TensorList& in) {
        return scaled_dot_product_attention(in[0], in[1], in[2], {.is_causal = true, .enable_gqa = true});
      },
      {.flops = flops({1, 512, 8, 64}, true)},
      "F.scaled_dot_product_attention(a, b, c, is_causal=True, enable_gqa=True)");
  cases.benchmark(
      "scaled_dot_product_attention masked", {{1, 8, 512, 64}, {1, 8, 512, 64}, {1, 8, 512, 64}, {1, 1, 512, 512}},
      [](const TensorList& in) {
        return scaled_dot_product_attention(in[0], in[1], in[2], {.attn_mask = in[3].detach()});
      },
      {.flops = flops({1, 512, 8, 64}, false)}, "F.scaled_dot_product_attention(a, b, c, attn_mask=d.detach())");
  cases.benchmark(
      "scaled_dot_product_attention dropout", {{1, 8, 512, 64}, {1, 8, 512, 64}, {1, 8, 512, 64}},
      [](const TensorList& in) {
        return scaled_dot_product_attention(in[0], in[1], in[2], {.dropout_p = 0.1, .is_causal = true});
      },
      {.flops = flops({1, 512, 8, 64}, true)},
      "F.scaled_dot_product_attention(a, b, c, dropout_p=0.1, is_causal=True)");
  cases.benchmark("rotary_embedding", {{4, 8, 512, 64}}, [](const TensorList& in) {
    static const RotaryTables tables = rotary_tables(512, 64);
    return rotary_embedding(in[0], tables.cos, tables.sin);
  });
  for (const Heads& h : kHeads) {
    for (const bool is_causal : {true, false}) {
      const std::string word = is_causal ? " causal" : " full";
      cases.benchmark(
          "scaled_dot_product_attention" + word,
          [&h] {
            const Shape shape = {h.batch, h.heads, h.length, h.head_dim};
            return TensorList{randn(shape), randn(shape), randn(shape)};
          },
          [is_causal](const TensorList& in) {
            return scaled_dot_product_attention(in[0], in[1], in[2], {.is_causal = is_causal});
          },
          {.flops = flops(h, is_causal)});
      cases.benchmark(
          "qkv_attention" + word,
          [&h] {
            return TensorList{randn({h.batch, h.length, 3 * h.heads * h.head_dim})};
          },
          [&h, is_causal](const TensorList& in) { return qkv_attention(in[0], h.heads, {.is_causal = is_causal}); },
          {.flops = flops(h, is_causal)});
    }
  }
}

}  // namespace tandem::testing
