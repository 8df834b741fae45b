#include <tandem/ops/attention/attention_kernels.h>
#include <tandem/tests/ops/attention_composed_reference.h>
#include <tandem/tests/ops/attention_reference.h>

namespace tandem::testing { namespace {

using namespace attention;

class AttentionBlocks : public ::testing::TestWithParam<std::tuple<DType, bool>> {};
INSTANTIATE_TEST_SUITE_P(, AttentionBlocks,
                         ::testing::Combine(::testing::ValuesIn(floating_dtypes()), ::testing::Bool()),
                         [](const auto& parameter) {
                           return str(std::get<0>(parameter.param), std::get<1>(parameter.param) ? "Causal" : "");
                         });

TEST_P(AttentionBlocks, ValuesAndGradientsMatchFloat64) {
  const auto [dtype, is_causal] = GetParam();
  // Sizes around blocks of 64 queries and 256 keys; head dimensions around the tile widths, and larger than the limit
  // of the GPU kernels.
  const Sizes all[] = {{{2}, 31, 31, 33, 8},    {{3}, 33, 33, 32, 32},  {{1}, 65, 65, 64, 64}, {{2}, 130, 130, 1, 80},
                       {{1}, 65, 300, 8, 3},    {{1}, 300, 65, 3, 17},  {{1}, 3, 600, 8, 8},   {{17}, 70, 66, 8, 8},
                       {{2}, 300, 300, 80, 33}, {{1}, 5, 70, 130, 200}, {{2}, 67, 5, 3, 129}};
  // As many scores as an emulated GPU computes in a minute.
  const int64_t most_scores = test_device().is_cpu() ? std::numeric_limits<int64_t>::max() : 20000;
  for (const Sizes& sizes : all) {
    if (num_elements(sizes.batch) * sizes.queries * sizes.keys > most_scores) continue;
    SCOPED_TRACE(str(sizes.queries, " x ", sizes.keys, ", ", sizes.head_dim, ", ", sizes.value_dim));
    const double scale = 0.2;
    const Tensor mask = is_causal ? added_causal_mask(sizes.queries, sizes.keys) : zeros({1}, {kFloat64});
    for (const Layout layout : {Layout::kContiguous, Layout::kSliced}) {
      const auto input = [&](int64_t rows, int64_t columns, uint64_t seed) {
        return make_tensor(random_dense(with(sizes.batch, rows, columns), seed), dtype, layout, test_device());
      };
      expect_same(
          [&, causal = is_causal](const std::vector<Tensor>& in) {
            return scaled_dot_product_attention(in[0], in[1], in[2], {.is_causal = causal, .scale = scale});
          },
          [&](const std::vector<Tensor>& in) { return composed(in[0], in[1], in[2], scale, mask); },
          {input(sizes.queries, sizes.head_dim, 1), input(sizes.keys, sizes.head_dim, 2),
           input(sizes.keys, sizes.value_dim, 3)},
          static_cast<double>(sizes.keys + sizes.head_dim));
    }
  }
}

TEST(Attention, EmptySizesGiveDefinedResultsAndGradients) {
  const TensorOptions options{kFloat32, test_device()};
  const auto shape_of = [&](const Shape& q, const Shape& k, const Shape& v) {
    return scaled_dot_product_attention(empty(q, options), empty(k, options), empty(v, options)).shape();
  };
  EXPECT_EQ(shape_of({0, 3, 4}, {0, 5, 4}, {0, 5, 2}), Shape({0, 3, 2}));
  EXPECT_EQ(shape_of({2, 0, 4}, {2, 5, 4}, {2, 5, 2}), Shape({2, 0, 2}));
  EXPECT_EQ(shape_of({2, 3, 4}, {2, 5, 4}, {2, 5, 0}), Shape({2, 3, 0}));
  // Without keys the result is 0; with head_dim 0 all keys have equal weights.
  const Tensor q = leaf(ones({2, 3}, options));
  const Tensor nothing = scaled_dot_product_attention(q, empty({0, 3}, options), empty({0, 1}, options));
  EXPECT_EQ(nothing.to_vector<float>(), (std::vector<float>{0, 0}));
  nothing.backward(ones({2, 1}, options));
  EXPECT_EQ(q.grad().to_vector<float>(), (std::vector<float>(6, 0)));
  EXPECT_EQ(scaled_dot_product_attention(empty({1, 0}, options), empty({2, 0}, options),
                                         tensor({1.0, 3.0}).view({2, 1}).to(test_device()))
                .item<float>(),
            2);
  // Without queries the gradients of key and value are 0.
  const Tensor key = leaf(ones({2, 3}, options)), value = leaf(ones({2, 1}, options));
  scaled_dot_product_attention(empty({0, 3}, options), key, value).backward(empty({0, 1}, options));
  EXPECT_EQ(key.grad().to_vector<float>(), (std::vector<float>(6, 0)));
  EXPECT_EQ(value.grad().to_vector<float>(), (std::vector<float>(2, 0)));
}

/// Random booleans, about a third of them false. Every query attends to its first key, because the composed reference
/// gives NaN for queries without keys.
Tensor random_bools(const Shape& shape, uint64_t seed) {
  Dense values = random_dense(shape, seed, 0, 3);
  for (int64_t i = 0; i < values.numel(); ++i) values[i] = i % shape.back() == 0 || values[i] >= 1;
  return make_tensor(values, kBool);
}

TEST(Attention, MasksBroadcastToTheScores) {
  const int64_t queries = 67, keys = test_device().is_cpu() ? 300 : 70;
  const std::vector<DType> dtypes =
      test_device().is_cpu() ? std::vector{kFloat64, kFloat32, kBFloat16} : std::vector{kBFloat16};
  const Shape mask_shapes[] = {{2, 3, queries, keys}, {3, 1, keys}, {queries, 1}, {2, 1, queries, keys}, {1}};
  for (const Shape& shape : mask_shapes) {
    for (const DType dtype : dtypes) {
      for (const DType mask_dtype : {kBool, kFloat32, dtype}) {
        for (const bool is_causal : {false, true}) {
          SCOPED_TRACE(str(shape, " ", dtype, " ", mask_dtype, " ", is_causal));
          const Tensor mask =
              mask_dtype == kBool ? random_bools(shape, 4).to(test_device()) : random_here(shape, 4, mask_dtype);
          Dense added = dense(mask);
          if (mask_dtype == kBool) {
            for (double& value : added.values) value = value != 0 ? 0 : -kInfinity;
          }
          Tensor total = make_tensor(added, kFloat64);
          if (is_causal) total = add(total, added_causal_mask(queries, keys));
          expect_same(
              [&](const std::vector<Tensor>& in) {
                return scaled_dot_product_attention(in[0], in[1], in[2],
                                                    {.attn_mask = mask, .is_causal = is_causal, .scale = 0.4});
              },
              [&](const std::vector<Tensor>& in) { return composed(in[0], in[1], in[2], 0.4, total); },
              {random_here({2, 3, queries, 8}, 1, dtype), random_here({2, 3, keys, 8}, 2, dtype),
               random_here({2, 3, keys, 16}, 3, dtype)},
              static_cast<double>(keys));
        }
      }
    }
  }
}

TEST(Attention, FullyMaskedQueriesGiveZerosAndCorrectGradients) {
  Dense allowed = dense_zeros({3, 4});
  for (int64_t s = 0; s < 4; ++s) allowed[s] = allowed[8 + s] = s != 1;
  for (const bool is_bool : {false, true}) {
    Dense added = allowed;
    for (double& value : added.values) value = value != 0 ? 0 : -kInfinity;
    const Tensor mask = (is_bool ? make_tensor(allowed, kBool) : make_tensor(added, kFloat64)).to(test_device());
    const auto run = [&](const std::vector<Tensor>& in) {
      return scaled_dot_product_attention(in[0], in[1], in[2], {.attn_mask = mask, .scale = 0.5});
    };
    std::vector<Tensor> in = {leaf(random_here({3, 2}, 1, kFloat64)), leaf(random_here({4, 2}, 2, kFloat64)),
                              leaf(random_here({4, 2}, 3, kFloat64))};
    const Tensor out = run(in);
    EXPECT_EQ(out.slice(0, 1, 2).to_vector<double>(), (std::vector<double>{0, 0}));
    EXPECT_TRUE(close(out,
                      reference(dense(in[0]), dense(in[1]), dense(in[2]), 0.5,
                                [&](int64_t, int64_t t, int64_t s) { return added[t * 4 + s]; }),
                      1e-14));
    EXPECT_NO_THROW(autograd::gradcheck(run, in));
    EXPECT_NO_THROW(autograd::gradgradcheck(run, in));
  }
}

TEST(Attention, FullyMaskedQueriesOfHalfTypesGiveZerosAndCorrectGradients) {
  const Tensor values = random_tensor({2, 3, 9, 8}, 1, kBFloat16), grad = random_tensor({2, 3, 9, 8}, 2, kBFloat16);
  Dense allowed = random_dense({2, 3, 9, 9}, 3, 0, 2);
  const auto is_empty = [](int64_t row) { return row % 9 == 4 && row / 9 % 3 == 1; };  // query 4 of head 1
  for (int64_t i = 0; i < allowed.numel(); ++i) {
    allowed[i] = !is_empty(i / 9) && (i % 9 == 0 || allowed[i] >= 1);
  }
  for (const bool create_graph : {false, true}) {
    SCOPED_TRACE(create_graph);
    const auto run = [&](Device device, DType dtype) {
      const Tensor x = values.to(device).to(dtype).requires_grad_();
      const Tensor out =
          scaled_dot_product_attention(x, x, x, {.attn_mask = make_tensor(allowed, kBool).to(device), .scale = 0.7});
      const Tensor result = tandem::grad({out}, {x}, {grad.to(device).to(dtype)}, {.create_graph = create_graph})[0];
      return std::pair(out.detach(), result.detach());
    };
    const auto [out, x_grad] = run(test_device(), kBFloat16);
    const auto [expected_out, expected_grad] = run(Device(), kFloat64);
    EXPECT_EQ(out.select(2, 4).select(1, 1).contiguous().to_vector<float>(), std::vector<float>(16, 0));
    EXPECT_TRUE(close(out, dense(expected_out), 2 * epsilon(kBFloat16)));
    EXPECT_TRUE(close(x_grad, dense(expected_grad), 8 * epsilon(kBFloat16)));
  }
}

TEST(Attention, NaNSpreadsOnlyWithinItsRow) {
  for (const DType dtype : {kFloat32, kFloat64}) {
    Dense values = random_dense({3, 2}, 1);
    values[2] = std::numeric_limits<double>::quiet_NaN();
    const std::vector<double> out =
        scaled_dot_product_attention(make_tensor(values, dtype).to(test_device()), random_here({70, 2}, 2, dtype),
                                     random_here({70, 1}, 3, dtype))
            .to_vector<double>();
    EXPECT_FALSE(std::isnan(out[0]));
    EXPECT_TRUE(std::isnan(out[1]));
    EXPECT_FALSE(std::isnan(out[2]));
  }
}

TEST(Attention, NaNInAMaskSpreadsOnlyWithinItsRow) {
  for (const DType dtype : {kFloat32, kBFloat16}) {
    Dense added = dense_zeros({3, 9});
    added[9 + 4] = std::numeric_limits<double>::quiet_NaN();
    const Tensor x = random_here({3, 8}, 1, dtype), key = random_here({9, 8}, 2, dtype);
    const Tensor mask = make_tensor(added, kFloat32).to(test_device());
    const std::vector<float> out = scaled_dot_product_attention(x, key, key, {.attn_mask = mask}).to_vector<float>();
    for (size_t i = 0; i < out.size(); ++i) EXPECT_EQ(std::isnan(out[i]), i / 8 == 1) << dtype << " " << i;
  }
}

TEST(Attention, LargeScoresDoNotOverflow) {
  for (const DType dtype : {kFloat32, kFloat64}) {
    const TensorOptions options{dtype, test_device()};
    const Tensor q = full({1, 1}, 100.0, options), k = ones({300, 1}, options);
    primitives::fill(k.slice(0, 299, 300), 2.0);
    const Tensor v = zeros({300, 1}, options);
    primitives::fill(v.slice(0, 299, 300), 3.0);
    EXPECT_EQ(scaled_dot_product_attention(q, k, v, {.scale = 1.0}).item<double>(), 3);
  }
}

TEST(Attention, ResultHasMemoryOrderOfQuery) {
  const Tensor memory = leaf(random_here({2, 7, 3, 4}, 1));
  const Tensor heads = memory.transpose(1, 2);  // [2, 3, 7, 4]
  const Tensor out = scaled_dot_product_attention(heads, heads, heads);
  EXPECT_EQ(out.shape(), Shape({2, 3, 7, 4}));
  EXPECT_TRUE(out.transpose(1, 2).is_contiguous());
}

TEST(Attention, ScoreMatrixIsNotStored) {
  const int64_t size = test_device().is_cpu() ? 2048 : 1024;
  const Tensor q = leaf(random_here({size, 8}, 1)), k = leaf(random_here({size, 8}, 2));
  const Tensor v = leaf(random_here({size, 8}, 3)), cotangent = random_here({size, 8}, 4);
  for (const Tensor& t : {q, k, v}) t.grad();
  reset_peak_memory(test_device());
  const int64_t before = memory_stats(test_device()).peak_allocated;
  scaled_dot_product_attention(q, k, v).backward(cotangent);
  EXPECT_LT(memory_stats(test_device()).peak_allocated - before, size * size * 4 / 4);
}

// If all keys of a query have the same large finite mask, they have equal weights, in backward too, because adding the
// mask rounds the scores away. cuDNN keeps the scores, because the row's largest mask is subtracted first
// (attention_bias.h); so the scores of half types are zeros here.
TEST(Attention, LargeFiniteMasksWeighKeysEqually) {
  const int64_t queries = 7, keys = 300;
  for (const DType dtype : {kFloat32, kBFloat16}) {
    for (const double masked : {-1e9, -3.4028234663852886e38}) {
      SCOPED_TRACE(str(dtype, " ", masked));
      const Tensor query =
          dtype == kFloat32 ? random_here({queries, 8}, 1) : zeros({queries, 8}, {dtype, test_device()});
      const Tensor key = random_here({keys, 8}, 2, dtype);
      const Tensor value = random_here({keys, 8}, 3, dtype).requires_grad_();
      const Tensor grad = random_here({queries, 8}, 4, dtype);
      const Tensor mask = full({queries, 1}, masked, {kFloat32, test_device()});
      scaled_dot_product_attention(query, key, value, {.attn_mask = mask}).backward(grad);
      const Tensor expected = div(grad.to(kFloat64).sum({0}, true), static_cast<double>(keys)).expand({keys, 8});
      EXPECT_TRUE(close(value.grad(), dense(expected), dtype == kFloat32 ? 1e-5 : 4 * epsilon(dtype)));
    }
  }
}

TEST(AttentionKernels, EachAlgorithmMatchesFloat64) {
  EXPECT_EQ(attention_algorithm(kFloat64), AttentionAlgorithm::kPlain);
  EXPECT_NE(attention_algorithm(kFloat32), AttentionAlgorithm::kPlain);
  const int64_t size = 330, width = 40;
  for (const bool is_causal : {false, true}) {
    const AttentionSizes sizes{.batches = 1,
                               .queries = size,
                               .keys = size,
                               .head_dim = width,
                               .value_dim = width,
                               .scale = 0.3,
                               .band_end = is_causal ? 1 : AttentionSizes::kUnlimited};
    const auto run = [&](DType dtype, AttentionAlgorithm algorithm) {
      std::vector<Tensor> in, out;
      for (uint64_t i = 0; i < 4; ++i) in.push_back(random_tensor({size, width}, i, kFloat32).to(dtype));
      for (int i = 0; i < 4; ++i) out.push_back(empty({size, width}, {dtype}));
      const auto rows = [&](const Tensor& t) { return AttentionTensor{t.data_ptr(), t.strides()}; };
      const Tensor statistics = empty({2 * size}, {dtype});
      const AttentionCall call{dtype,       {}, sizes,        rows(in[0]),           rows(in[1]),
                               rows(in[2]), {}, rows(out[0]), statistics.data_ptr(), {},
                               algorithm};
      const AttentionGradients grads{rows(in[3]), rows(out[1]), rows(out[2]), rows(out[3])};
      const KernelContext context = kernel_context(Device());
      const Tensor scratch = empty({cpu::attention_workspace_bytes(context, call)}, {kUInt8});
      cpu::attention(context, call, scratch.data_ptr());
      const Tensor backward_scratch = empty({cpu::attention_backward_workspace_bytes(context, call, grads)}, {kUInt8});
      cpu::attention_backward(context, call, grads, backward_scratch.data_ptr());
      out.push_back(statistics);
      return out;
    };
    const std::vector<Tensor> exact = run(kFloat64, AttentionAlgorithm::kPlain);
    for (const AttentionAlgorithm algorithm :
         {AttentionAlgorithm::kPlain, AttentionAlgorithm::kAvx2, AttentionAlgorithm::kAvx512}) {
      if (algorithm == AttentionAlgorithm::kAvx512 && attention_algorithm(kFloat32) != algorithm) continue;
      const std::vector<Tensor> actual = run(kFloat32, algorithm);
      for (size_t i = 0; i < exact.size(); ++i) {
        EXPECT_TRUE(close(actual[i], dense(exact[i]), 2e-5)) << "result " << i << ", " << static_cast<int>(algorithm);
      }
    }
  }
}

TEST(QkvAttention, MatchesAttentionOfItsParts) {
  for (const bool is_causal : {false, true}) {
    for (const DType dtype : floating_dtypes()) {
      const Tensor mask = random_here({3, 1, 33}, 5, dtype);
      const auto options = [&] { return AttentionOptions{.attn_mask = mask, .is_causal = is_causal}; };
      const auto parts = [&](const std::vector<Tensor>& in) {
        const auto part = [&](int64_t i) {
          return in[0].slice(-1, 24 * i, 24 * i + 24).view({2, 33, 3, 8}).transpose(1, 2);
        };
        AttentionOptions exact = options();
        exact.attn_mask = exact.attn_mask.cpu().to(kFloat64);
        return scaled_dot_product_attention(part(0), part(1), part(2), exact).transpose(1, 2).flatten(2);
      };
      expect_same([&](const std::vector<Tensor>& in) { return qkv_attention(in[0], 3, options()); }, parts,
                  {random_here({2, 33, 72}, 1, dtype)}, 40);
    }
  }
}

TEST(QkvAttention, MaskRequiringGradIsDifferentiated) {
  const auto run = [](const std::vector<Tensor>& in) { return qkv_attention(in[0], 2, {.attn_mask = in[1]}); };
  const std::vector<Tensor> in = {leaf(random_tensor({2, 3, 18}, 1, kFloat64)),
                                  leaf(random_tensor({2, 3, 3}, 2, kFloat64))};
  EXPECT_NO_THROW(autograd::gradcheck(run, in));
  EXPECT_NO_THROW(autograd::gradgradcheck(run, in));
}

TEST(Attention, InvalidArgumentsAreNamedInErrors) {
  const auto text = [](const Shape& q, const Shape& k, const Shape& v, const Tensor& mask = {}) {
    return error_text<ShapeError>(
        [&] { scaled_dot_product_attention(empty(q), empty(k), empty(v), {.attn_mask = mask}); });
  };
  EXPECT_EQ(text({4}, {4}, {4}),
            "scaled_dot_product_attention: query, key and value must have at least 2 dimensions\n"
            "  query  cpu  float32 [4]\n"
            "  key    cpu  float32 [4]\n"
            "  value  cpu  float32 [4]");
  EXPECT_EQ(text({2, 3, 4}, {2, 5, 4}, {3, 5, 4}),
            "scaled_dot_product_attention: sizes differ in dimension 0\n"
            "  query  cpu  float32 [2, 3, 4]\n"
            "  key    cpu  float32 [2, 5, 4]\n"
            "  value  cpu  float32 [3, 5, 4]");
  EXPECT_EQ(text({3, 4}, {5, 3}, {5, 4}),
            "scaled_dot_product_attention: query and key have different head sizes, 4 and 3\n"
            "  query  cpu  float32 [3, 4]\n"
            "  key    cpu  float32 [5, 3]\n"
            "  value  cpu  float32 [5, 4]");
  EXPECT_EQ(text({3, 4}, {5, 4}, {6, 4}),
            "scaled_dot_product_attention: key and value have different lengths, 5 and 6\n"
            "  query  cpu  float32 [3, 4]\n"
            "  key    cpu  float32 [5, 4]\n"
            "  value  cpu  float32 [6, 4]");
  EXPECT_EQ(text({3, 4}, {5, 4}, {5, 4}, empty({2, 5})),
            "scaled_dot_product_attention: attn_mask does not broadcast to the scores' shape [3, 5]\n"
            "  query      cpu  float32 [3, 4]\n"
            "  key        cpu  float32 [5, 4]\n"
            "  value      cpu  float32 [5, 4]\n"
            "  attn_mask  cpu  float32 [2, 5]");
  EXPECT_ERROR(
      DTypeError,
      scaled_dot_product_attention(empty({3, 4}), empty({5, 4}), empty({5, 4}), {.attn_mask = empty({3, 5}, {kInt64})}),
      "scaled_dot_product_attention: attn_mask must be bool or floating\n"
      "  query      cpu  float32 [3, 4]\n"
      "  key        cpu  float32 [5, 4]\n"
      "  value      cpu  float32 [5, 4]\n"
      "  attn_mask  cpu  int64   [3, 5]");
  EXPECT_ERROR(DTypeError, scaled_dot_product_attention(empty({3, 4}), empty({5, 4}, {kFloat64}), empty({5, 4})),
               "scaled_dot_product_attention: operands have different dtypes\n"
               "  query  cpu  float32 [3, 4]\n"
               "  key    cpu  float64 [5, 4]  <- differs\n"
               "  value  cpu  float32 [5, 4]");
  EXPECT_EQ(error_text<DTypeError>([] {
              const Tensor x = empty({3, 4}, {kInt64});
              scaled_dot_product_attention(x, x, x);
            }),
            "scaled_dot_product_attention: query must be floating\n"
            "  query  cpu  int64 [3, 4]");
}

TEST(QkvAttention, InvalidArgumentsAreNamedInErrors) {
  EXPECT_ERROR(ShapeError, qkv_attention(empty({12}), 2),
               "qkv_attention: qkv must have at least 2 dimensions\n  qkv  cpu  float32 [12]");
  EXPECT_ERROR(ShapeError, qkv_attention(empty({3, 15}), 2),
               "qkv_attention: the last dimension must be a multiple of 3 * 2\n  qkv  cpu  float32 [3, 15]");
  EXPECT_ERROR(ValueError, qkv_attention(empty({3, 15}), 0),
               "qkv_attention: num_heads is 0, must be at least 1\n  qkv  cpu  float32 [3, 15]");
  EXPECT_ERROR(DTypeError, qkv_attention(empty({3, 12}, {kInt64}), 2),
               "qkv_attention: qkv must be floating\n  qkv  cpu  int64 [3, 12]");
  EXPECT_ERROR(ShapeError, qkv_attention(empty({3, 12}), 2, {.attn_mask = empty({2, 2, 2})}),
               "qkv_attention: attn_mask does not broadcast to the scores' shape [2, 3, 3]\n"
               "  qkv        cpu  float32 [3, 12]\n"
               "  attn_mask  cpu  float32 [2, 2, 2]");
}

}}  // namespace tandem::testing
