#include <tandem/tests/support/op_case.h>
#include <tandem/tests/support/ops.h>

namespace tandem::testing { namespace {

RotaryTables tables_here(int64_t length, int64_t head_dim, int64_t offset = 0) {
  return rotary_tables(length, head_dim, {.offset = offset, .device = test_device()});
}

TEST(RotaryTables, AnglesFollowTheFormula) {
  const RotaryTables tables = rotary_tables(3, 4, {.base = 100, .offset = 5, .device = test_device()});
  std::vector<double> cos, sin;
  for (const double position : {5.0, 6.0, 7.0}) {
    for (const double angle : {position, position / 10}) {
      cos.push_back(std::cos(angle));
      sin.push_back(std::sin(angle));
    }
  }
  EXPECT_TRUE(close(tables.cos, {{3, 2}, cos}, 1e-7));
  EXPECT_TRUE(close(tables.sin, {{3, 2}, sin}, 1e-7));
  EXPECT_EQ(tables.cos.dtype(), kFloat32);
}

TEST(RotaryTables, OffsetSelectsRowsOfLongerTables) {
  const RotaryTables all = tables_here(9, 6), some = tables_here(4, 6, 5);
  EXPECT_TRUE(same_bits(all.cos.slice(0, 5, 9).contiguous(), some.cos));
  EXPECT_TRUE(same_bits(all.sin.slice(0, 5, 9).contiguous(), some.sin));
}

TEST(RotaryEmbedding, ResultHasMemoryOrderOfInput) {
  const RotaryTables tables = tables_here(7, 4);
  const Tensor heads = random_tensor({2, 7, 3, 4}, 1).to(test_device()).transpose(1, 2);
  EXPECT_TRUE(rotary_embedding(heads, tables.cos, tables.sin).transpose(1, 2).is_contiguous());
}

TEST(RotaryEmbedding, InvalidArgumentsAreNamedInErrors) {
  const auto text = [](const Shape& x, const Shape& table) {
    return error_text<ShapeError>([&] { rotary_embedding(empty(x), empty(table), empty(table)); });
  };
  EXPECT_EQ(text({3, 5}, {3, 2}),
            "rotary_embedding: x must have at least 2 dimensions and an even last one\n"
            "  x    cpu  float32 [3, 5]\n"
            "  cos  cpu  float32 [3, 2]\n"
            "  sin  cpu  float32 [3, 2]");
  EXPECT_EQ(text({2, 3, 4}, {4, 2}),
            "rotary_embedding: cos and sin must have the shape [3, 2]\n"
            "  x    cpu  float32 [2, 3, 4]\n"
            "  cos  cpu  float32 [4, 2]\n"
            "  sin  cpu  float32 [4, 2]");
  const Tensor table = ones({3, 2}).requires_grad_();
  EXPECT_ERROR(StateError, rotary_embedding(ones({3, 4}), table, table),
               "rotary_embedding: cos and sin must not require grad; detach them\n"
               "  x    cpu  float32 [3, 4]\n"
               "  cos  cpu  float32 [3, 2]\n"
               "  sin  cpu  float32 [3, 2]");
  EXPECT_ERROR(ValueError, rotary_tables(3, 5), "rotary_tables: head_dim is 5, expected an even number of at least 2");
  EXPECT_ERROR(ValueError, rotary_tables(-1, 4), "rotary_tables: length is -1, expected at least 0");
  EXPECT_EQ(rotary_tables(3, 4, {.offset = INT64_MAX}).cos.shape(), (Shape{3, 2}));
  EXPECT_ERROR(ValueError, rotary_tables(3, 4, {.base = 0}), "rotary_tables: base is 0, expected a positive number");
}

}}  // namespace tandem::testing
