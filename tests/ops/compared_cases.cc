// The operations used most, in two realistic sizes each, with the same call in PyTorch:
//
//     ./bazelw run //benchmarks/ops -- --python PYTHON_WITH_TORCH
#include <tandem/tests/ops/op_cases.h>

namespace tandem::testing {

namespace {

using In = const TensorList&;

struct Row {
  const char* name;
  Tensor (*run)(In);
  const char* torch;
  bool backward = true;
};

void add_rows(OpCases& cases, const std::vector<Row>& rows, const std::vector<std::function<TensorList()>>& inputs) {
  for (const Row& row : rows) {
    for (const auto& make : inputs) cases.benchmark(row.name, make, row.run, {.backward = row.backward}, row.torch);
  }
}

/// Inputs by randn, of two lists of shapes.
std::vector<std::function<TensorList()>> of_shapes(const std::vector<std::vector<Shape>>& lists) {
  std::vector<std::function<TensorList()>> result;
  for (const std::vector<Shape>& list : lists) {
    result.push_back([list] {
      TensorList inputs;
      for (const Shape& shape : list) inputs.push_back(randn(shape));
      return inputs;
    });
  }
  return result;
}

const Shape kSmall{64, 1024}, kLarge{4096, 1024};

/// Inputs of both sizes: f(shape).
std::vector<std::function<TensorList()>> sizes(TensorList (*f)(const Shape&)) {
  return {[f] { return f(kSmall); }, [f] { return f(kLarge); }};
}

void add_elementwise(OpCases& cases) {
  const auto one = sizes([](const Shape& s) { return TensorList{randn(s)}; });
  const auto positive = sizes([](const Shape& s) { return TensorList{add(rand(s), 0.1)}; });
  const auto two = sizes([](const Shape& s) { return TensorList{randn(s), randn(s)}; });
  const auto positive_two = sizes([](const Shape& s) { return TensorList{add(rand(s), 0.1), add(rand(s), 0.1)}; });
  add_rows(
      cases,
      {
          {"neg", [](In in) { return neg(in[0]); }, "torch.neg(a)"},
          {"mul number", [](In in) { return mul(in[0], 3); }, "a * 3"},
          {"exp", [](In in) { return exp(in[0]); }, "torch.exp(a)"},
          {"abs", [](In in) { return abs(in[0]); }, "torch.abs(a)"},
          {"tanh", [](In in) { return tanh(in[0]); }, "torch.tanh(a)"},
          {"erfc", [](In in) { return erfc(in[0]); }, "torch.erfc(a)"},
          {"sigmoid", [](In in) { return sigmoid(in[0]); }, "torch.sigmoid(a)"},
          {"relu", [](In in) { return relu(in[0]); }, "torch.relu(a)"},
          {"gelu", [](In in) { return gelu(in[0]); }, "F.gelu(a)"},
          {"gelu tanh", [](In in) { return gelu(in[0], GeluApproximation::kTanh); }, "F.gelu(a, approximate='tanh')"},
          {"silu", [](In in) { return silu(in[0]); }, "F.silu(a)"},
          {"leaky_relu", [](In in) { return leaky_relu(in[0]); }, "F.leaky_relu(a)"},
          {"elu", [](In in) { return elu(in[0]); }, "F.elu(a)"},
          {"softplus", [](In in) { return softplus(in[0]); }, "F.softplus(a)"},
          {"clamp", [](In in) { return clamp(in[0], -1, 1); }, "torch.clamp(a, -1, 1)"},
          {"sin", [](In in) { return sin(in[0]); }, "torch.sin(a)"},
          {"lt", [](In in) { return lt(in[0], 0.5); }, "a < 0.5", false},
          {"to bfloat16", [](In in) { return to(in[0], kBFloat16); }, "a.to(torch.bfloat16)"},
          {"to float16", [](In in) { return to(in[0], kFloat16); }, "a.to(torch.float16)"},
          {"dropout", [](In in) { return dropout(in[0], 0.1); }, "F.dropout(a, 0.1)"},
      },
      one);
  add_rows(cases,
           {
               {"log", [](In in) { return log(in[0]); }, "torch.log(a)"},
               {"sqrt", [](In in) { return sqrt(in[0]); }, "torch.sqrt(a)"},
               {"rsqrt", [](In in) { return rsqrt(in[0]); }, "torch.rsqrt(a)"},
               {"pow 2", [](In in) { return pow(in[0], 2); }, "torch.pow(a, 2)"},
               {"pow 1.7", [](In in) { return pow(in[0], 1.7); }, "torch.pow(a, 1.7)"},
           },
           positive);
  add_rows(cases,
           {
               {"add", [](In in) { return add(in[0], in[1]); }, "a + b"},
               {"sub", [](In in) { return sub(in[0], in[1]); }, "a - b"},
               {"mul", [](In in) { return mul(in[0], in[1]); }, "a * b"},
               {"maximum", [](In in) { return maximum(in[0], in[1]); }, "torch.maximum(a, b)"},
               {"eq", [](In in) { return eq(in[0], in[1]); }, "a == b", false},
           },
           two);
  add_rows(cases,
           {
               {"div", [](In in) { return div(in[0], in[1]); }, "a / b"},
               {"pow", [](In in) { return pow(in[0], in[1]); }, "torch.pow(a, b)"},
           },
           positive_two);
  add_rows(cases, {{"add bias", [](In in) { return add(in[0], in[1]); }, "a + b"}}, sizes([](const Shape& s) {
             return TensorList{randn(s), randn({s[1]})};
           }));
  add_rows(cases, {{"where", [](In in) { return where(in[0], in[1], in[2]); }, "torch.where(a, b, c)"}},
           sizes([](const Shape& s) {
             return TensorList{gt(randn(s), 0), randn(s), randn(s)};
           }));
  add_rows(cases,
           {
               {"masked_fill", [](In in) { return masked_fill(in[0], in[1], -1e9); }, "a.masked_fill(b, -1e9)"},
               {"masked_select", [](In in) { return masked_select(in[0], in[1]); }, "torch.masked_select(a, b)"},
           },
           sizes([](const Shape& s) {
             return TensorList{randn(s), gt(randn(s), 0)};
           }));
  add_rows(cases, {{"bfloat16 to float32", [](In in) { return to(in[0], kFloat32); }, "a.to(torch.float32)"}},
           sizes([](const Shape& s) { return TensorList{to(randn(s), kBFloat16)}; }));
  add_rows(cases, {{"float16 to float32", [](In in) { return to(in[0], kFloat32); }, "a.to(torch.float32)"}},
           sizes([](const Shape& s) { return TensorList{to(randn(s), kFloat16)}; }));
  add_rows(cases, {{"randn", [](In in) { return randn(in[0].shape()); }, "torch.randn(a.shape)", false}}, one);
}

void add_reductions(OpCases& cases) {
  const auto one = sizes([](const Shape& s) { return TensorList{randn(s)}; });
  add_rows(cases,
           {
               {"sum", [](In in) { return sum(in[0]); }, "torch.sum(a)"},
               {"sum rows", [](In in) { return sum(in[0], {1}); }, "torch.sum(a, 1)"},
               {"sum columns", [](In in) { return sum(in[0], {0}); }, "torch.sum(a, 0)"},
               {"mean", [](In in) { return mean(in[0]); }, "torch.mean(a)"},
               {"var", [](In in) { return var(in[0], {1}); }, "torch.var(a, 1)"},
               {"std", [](In in) { return std(in[0], {0}); }, "torch.std(a, 0)"},
               {"max", [](In in) { return max(in[0]); }, "torch.max(a)"},
               {"max rows", [](In in) { return max(in[0], 1).values; }, "torch.max(a, 1).values"},
               {"argmax", [](In in) { return argmax(in[0], 1); }, "torch.argmax(a, 1)", false},
               {"min", [](In in) { return min(in[0], 0).values; }, "torch.min(a, 0).values"},
               {"amax", [](In in) { return amax(in[0], {1}); }, "torch.amax(a, 1)"},
               {"norm", [](In in) { return norm(in[0]); }, "torch.linalg.vector_norm(a)"},
               {"norm rows", [](In in) { return norm(in[0], 2, {1}); }, "torch.linalg.vector_norm(a, 2, 1)"},
               {"logsumexp", [](In in) { return logsumexp(in[0], {1}); }, "torch.logsumexp(a, 1)"},
               {"prod", [](In in) { return prod(in[0], 1); }, "torch.prod(a, 1)"},
               {"cumsum", [](In in) { return cumsum(in[0], 1); }, "torch.cumsum(a, 1)"},
               {"cumsum columns", [](In in) { return cumsum(in[0], 0); }, "torch.cumsum(a, 0)"},
               {"softmax", [](In in) { return softmax(in[0], 1); }, "torch.softmax(a, 1)"},
               {"log_softmax", [](In in) { return log_softmax(in[0], 1); }, "torch.log_softmax(a, 1)"},
               {"topk", [](In in) { return topk(in[0], 10).values; }, "torch.topk(a, 10).values"},
               {"sort", [](In in) { return sort(in[0]).values; }, "torch.sort(a).values"},
           },
           one);
  add_rows(cases,
           {
               {"cross_entropy", [](In in) { return cross_entropy(in[0], in[1]); }, "F.cross_entropy(a, b)"},
               {"cross_entropy smoothed", [](In in) { return cross_entropy(in[0], in[1], {.label_smoothing = 0.1}); },
                "F.cross_entropy(a, b, label_smoothing=0.1)"},
               {"nll_loss", [](In in) { return nll_loss(in[0], in[1]); }, "F.nll_loss(a, b)"},
           },
           sizes([](const Shape& s) {
             return TensorList{randn(s), randint(0, s[1], {s[0]})};
           }));
  add_rows(cases,
           {
               {"mse_loss", [](In in) { return mse_loss(in[0], in[1]); }, "F.mse_loss(a, b)"},
               {"smooth_l1_loss", [](In in) { return smooth_l1_loss(in[0], in[1]); }, "F.smooth_l1_loss(a, b)"},
           },
           sizes([](const Shape& s) {
             return TensorList{randn(s), randn(s)};
           }));
  add_rows(cases,
           {
               {"binary_cross_entropy_with_logits",
                [](In in) { return binary_cross_entropy_with_logits(in[0], in[1].detach()); },
                "F.binary_cross_entropy_with_logits(a, b.detach())"},
           },
           sizes([](const Shape& s) {
             return TensorList{randn(s), rand(s)};
           }));
}

void add_moves(OpCases& cases) {
  const auto one = sizes([](const Shape& s) { return TensorList{randn(s)}; });
  add_rows(cases,
           {
               {"transpose contiguous", [](In in) { return in[0].t().contiguous(); }, "a.t().contiguous()"},
               {"flip", [](In in) { return flip(in[0], {1}); }, "torch.flip(a, [1])"},
               {"roll", [](In in) { return roll(in[0], {100}, {1}); }, "torch.roll(a, 100, 1)"},
               {"repeat",
                [](In in) {
                  return repeat(in[0], {1, 2});
                },
                "a.repeat(1, 2)"},
               {"clone", [](In in) { return clone(in[0]); }, "a.clone()"},
           },
           one);
  const auto heads = of_shapes({{{8, 128, 12, 64}}, {{32, 512, 12, 32}}});
  add_rows(cases,
           {{"permute heads",
             [](In in) {
               return in[0].permute({0, 2, 1, 3}).contiguous();
             },
             "a.permute(0, 2, 1, 3).contiguous()"},
            {"permute",
             [](In in) {
               return in[0].permute({0, 3, 1, 2}).contiguous();
             },
             "a.permute(0, 3, 1, 2).contiguous()"}},
           heads);
  add_rows(cases,
           {
               {"cat",
                [](In in) {
                  return cat({in[0], in[1]}, 1);
                },
                "torch.cat([a, b], 1)"},
               {"stack",
                [](In in) {
                  return stack({in[0], in[1]});
                },
                "torch.stack([a, b])"},
           },
           sizes([](const Shape& s) {
             return TensorList{randn(s), randn(s)};
           }));
  add_rows(
      cases,
      {
          {"gather", [](In in) { return gather(in[0], 1, in[1]); }, "torch.gather(a, 1, b)"},
          {"scatter_add", [](In in) { return scatter_add(in[0], 1, in[1], in[2]); }, "torch.scatter_add(a, 1, b, c)"},
      },
      sizes([](const Shape& s) {
        return TensorList{randn(s), randint(0, s[1], s), randn(s)};
      }));
  add_rows(cases,
           {{"index_select", [](In in) { return index_select(in[0], 0, in[1]); }, "torch.index_select(a, 0, b)"}},
           sizes([](const Shape& s) {
             return TensorList{randn(s), randint(0, s[0], {s[0]})};
           }));
  add_rows(cases, {{"embedding", [](In in) { return embedding(in[0], in[1]); }, "F.embedding(a, b)"}},
           {[] {
              return TensorList{randint(0, 1000, {8, 128}), randn({1000, 128})};
            },
            [] {
              return TensorList{randint(0, 16000, {8, 512}), randn({16000, 384})};
            }});
}

/// Images with [N, C, H, W] in memory.
void add_layers(OpCases& cases) {
  const auto images = of_shapes({{{16, 32, 28, 28}}, {{32, 64, 56, 56}}});
  add_rows(cases,
           {
               {"max_pool2d 2", [](In in) { return max_pool2d(in[0], 2); }, "F.max_pool2d(a, 2)"},
               {"max_pool2d 3 by 2", [](In in) { return max_pool2d(in[0], 3, {.stride = 2, .padding = 1}); },
                "F.max_pool2d(a, 3, 2, 1)"},
               {"avg_pool2d 2", [](In in) { return avg_pool2d(in[0], 2); }, "F.avg_pool2d(a, 2)"},
           },
           images);
  add_rows(cases,
           {{"batch_norm", [](In in) { return batch_norm(in[0], {}, {}, in[1], in[2], true); },
             "F.batch_norm(a, None, None, b, c, True)"}},
           of_shapes({{{16, 32, 28, 28}, {32}, {32}}, {{32, 64, 56, 56}, {64}, {64}}}));
  add_rows(cases,
           {{"conv2d 3x3", [](In in) { return conv2d(in[0], in[1], in[2], {.padding = 1}); },
             "F.conv2d(a, b, c, padding=1)"}},
           of_shapes({{{16, 32, 28, 28}, {64, 32, 3, 3}, {64}}, {{16, 64, 56, 56}, {64, 64, 3, 3}, {64}}}));
  add_rows(cases, {{"conv2d 1x1", [](In in) { return conv2d(in[0], in[1], in[2]); }, "F.conv2d(a, b, c)"}},
           of_shapes({{{16, 64, 28, 28}, {128, 64, 1, 1}, {128}}, {{16, 256, 28, 28}, {128, 256, 1, 1}, {128}}}));
  add_rows(
      cases,
      {{"layer_norm", [](In in) { return layer_norm(in[0], {768}, in[1], in[2]); }, "F.layer_norm(a, [768], b, c)"}},
      of_shapes({{{8, 128, 768}, {768}, {768}}, {{8, 512, 768}, {768}, {768}}}));
  add_rows(cases,
           {{"scaled_dot_product_attention",
             [](In in) { return scaled_dot_product_attention(in[0], in[1], in[2], {.is_causal = true}); },
             "F.scaled_dot_product_attention(a, b, c, is_causal=True)"}},
           of_shapes({{{8, 4, 128, 32}, {8, 4, 128, 32}, {8, 4, 128, 32}},
                      {{4, 12, 512, 64}, {4, 12, 512, 64}, {4, 12, 512, 64}}}));
}

void add_products(OpCases& cases) {
  add_rows(cases, {{"matmul", [](In in) { return matmul(in[0], in[1]); }, "torch.matmul(a, b)"}},
           of_shapes({{{256, 256}, {256, 256}}, {{8, 128, 768}, {768, 768}}}));
  add_rows(cases,
           {
               {"bmm", [](In in) { return bmm(in[0], in[1]); }, "torch.bmm(a, b)"},
               {"einsum",
                [](In in) {
                  return einsum("bij,bjk->bik", {in[0], in[1]});
                },
                "torch.einsum('bij,bjk->bik', a, b)"},
           },
           of_shapes({{{32, 128, 32}, {32, 32, 128}}, {{48, 256, 64}, {48, 64, 256}}}));
  add_rows(cases, {{"linear", [](In in) { return linear(in[0], in[1], in[2]); }, "F.linear(a, b, c)"}},
           of_shapes({{{64, 784}, {1024, 784}, {1024}}, {{8, 128, 768}, {3072, 768}, {3072}}}));
  add_rows(cases, {{"addmm", [](In in) { return addmm(in[0], in[1], in[2]); }, "torch.addmm(a, b, c)"}},
           of_shapes({{{256}, {128, 512}, {512, 256}}, {{1024}, {1024, 1024}, {1024, 1024}}}));
}

}  // namespace

TANDEM_OP_CASES(compared) {
  add_elementwise(cases);
  add_reductions(cases);
  add_moves(cases);
  add_layers(cases);
  add_products(cases);
}

}  // namespace tandem::testing
