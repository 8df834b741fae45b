// In-place random numbers: members of Tensor.
#include <tandem/tests/support/op_case.h>
#include <tandem/tests/support/ops.h>

namespace tandem::testing { namespace {

/// A generator after some draws, and its position.
struct Stream {
  Generator generator{17, 3, 2};
  PhiloxState state;
  Stream() {
    static_cast<void>(generator.reserve(9));
    Generator same = generator;
    state = same.reserve(0);
  }
};

TEST(RandomInPlace, ValuesFollowTheFunctionsOfTheSameStream) {
  for (const DType dtype : {kFloat32, kFloat64}) {
    const auto drawn = [&](const std::function<Tensor(Generator*)>& f) {
      Stream stream;
      return f(&stream.generator);
    };
    const TensorOptions options = {dtype};
    const auto filled = [&](const std::function<void(const Tensor&, Generator*)>& f) {
      const Tensor memory = zeros({5, 6}, options), self = memory.t();  // the order is that of elements, not of memory
      drawn([&](Generator* g) { return f(self, g), self; });
      return self.clone();
    };
    const Shape shape = {6, 5};
    EXPECT_TRUE(same_bits(filled([](const Tensor& x, Generator* g) { x.uniform_(0, 1, g); }),
                          drawn([&](Generator* g) { return rand(shape, options, g); })));
    EXPECT_TRUE(same_bits(filled([](const Tensor& x, Generator* g) { x.uniform_(-1, 3, g); }),
                          drawn([&](Generator* g) { return rand(shape, options, g) * 4 - 1; })));
    EXPECT_TRUE(same_bits(filled([](const Tensor& x, Generator* g) { x.normal_(1, 2, g); }),
                          drawn([&](Generator* g) { return randn(shape, options, g) * 2 + 1; })));
    EXPECT_TRUE(same_bits(drawn([&](Generator* g) { return normal(1, 2, shape, options, g); }),
                          drawn([&](Generator* g) { return randn(shape, options, g) * 2 + 1; })));
    EXPECT_TRUE(same_bits(filled([](const Tensor& x, Generator* g) { x.bernoulli_(0.25, g); }),
                          drawn([&](Generator* g) { return bernoulli(full(shape, 0.25, options), g); })));
    const Tensor u = drawn([&](Generator* g) { return rand(shape, options, g); });
    const Tensor exponentials = filled([](const Tensor& x, Generator* g) { x.exponential_(2, g); });
    Dense expected = dense(u);
    for (double& value : expected.values) value = -std::log1p(-value) / 2;
    EXPECT_TRUE(close(exponentials, expected, 4 * epsilon(dtype)));
  }
}

TEST(RandomInPlace, HalfTypesAreRoundedFromFloat32) {
  for (const DType dtype : {kFloat16, kBFloat16}) {
    Stream stream, same;
    const Tensor x = zeros({500}, {dtype});
    x.normal_(3, 0.5, &stream.generator);
    EXPECT_TRUE(same_bits(x, normal(3, 0.5, {500}, {}, &same.generator).to(dtype)));
    x.uniform_();
    for (const double value : x.to_vector<double>()) EXPECT_TRUE(value >= 0 && value < 1);
  }
}

TEST(RandomInPlace, UniformExcludesItsUpperBound) {
  struct Case {
    DType dtype;
    double from, to;
  };
  for (const auto& [dtype, from, to] :
       {Case{kFloat64, 0x1p52, 0x1p52 + 1}, Case{kFloat32, 0x1p23, 0x1p23 + 1}, Case{kFloat16, 1024, 1025},
        Case{kBFloat16, 128, 129}, Case{kBFloat16, -129, -128}, Case{kBFloat16, -0x1p-133, 0}}) {
    EXPECT_EQ(empty({100}, {dtype}).uniform_(from, to).to_vector<double>(), std::vector<double>(100, from)) << dtype;
  }
  EXPECT_EQ(empty({2}, {kBFloat16}).uniform_(1000, 1001).to_vector<double>(), std::vector<double>(2, 1000));
}

TEST(RandomInPlace, ExponentialIsNeverZero) {
  struct Case {
    DType dtype;
    double lambd, first;
  };
  for (const auto& [dtype, lambd, first] :
       {Case{kFloat32, 1, 0x1p-25}, Case{kFloat32, INFINITY, 0x1p-149}, Case{kFloat16, 1, 0x1p-24},
        Case{kBFloat16, 1, 0x1p-25}, Case{kBFloat16, 1e39, 0x1p-133}, Case{kFloat64, INFINITY, 0x1p-1074}}) {
    Generator generator;
    static_cast<void>(generator.reserve(4 * 14883995));  // the next word begins with 24 zeros
    EXPECT_EQ(empty({1}, {dtype}).exponential_(lambd, &generator).item(), first) << dtype << " " << lambd;
  }
}

TEST(RandomInPlace, BernoulliFillsAnyDType) {
  for (const DType dtype : {kBool, kUInt8, kInt32, kInt64, kFloat16}) {
    const Tensor x = zeros({64}, {dtype});
    EXPECT_EQ(x.bernoulli_(1).to_vector<int64_t>(), std::vector<int64_t>(64, 1));
    EXPECT_EQ(x.bernoulli_(0).to_vector<int64_t>(), std::vector<int64_t>(64, 0));
  }
}

TEST(RandomInPlace, UniformAndBernoulliNeedLittleMemory) {
  const int64_t n = (int64_t{5} << 20) + 3;
  const auto expect_little = [&](DType dtype, const auto& draw, const auto& at_once) {
    const Tensor x = zeros({n}, {dtype, Device()}), expected = x.clone();
    manual_seed(3);
    expected.copy_(at_once());
    for (const Tensor& y : {x, zeros({n, 2}, x.options()).select(1, 0)}) {
      const int64_t before = memory_stats(Device()).allocated;
      reset_peak_memory(Device());
      manual_seed(3);
      draw(y);
      EXPECT_LT(memory_stats(Device()).peak_allocated - before, size_of(dtype) * n + (10 << 20));
      EXPECT_TRUE(primitives::bytes_equal(y.clone(), expected));
    }
  };
  const auto bernoulli = [](const Tensor& y) { y.bernoulli_(0.3); };
  expect_little(kUInt8, bernoulli, [&] { return lt(rand({n}, {kFloat64, Device()}), 0.3); });
  const auto uniform = [](const Tensor& y) { y.uniform_(); };
  expect_little(kBFloat16, uniform, [&] { return rand({n}, {kBFloat16, Device()}); });
}

TEST(RandomInPlace, NormalAndExponentialNeedMemoryForOneTensor) {
  const Tensor x = zeros({int64_t{1} << 20}, {kFloat32, Device()});
  const int64_t before = memory_stats(Device()).allocated;
  const auto expect_one = [&](const auto& draw, const auto& expected) {
    reset_peak_memory(Device());
    manual_seed(3);
    draw();
    EXPECT_LT(memory_stats(Device()).peak_allocated - before, 5 << 20);
    manual_seed(3);
    EXPECT_TRUE(primitives::bytes_equal(x, expected()));
  };
  expect_one([&] { x.normal_(2, 3); }, [&] { return add(mul(randn_like(x), 3), 2); });
  expect_one([&] { x.exponential_(2); }, [&] { return div(log(sub(1, rand_like(x))), -2); });
}

TEST(RandomInPlace, OldValuesHaveZeroGradient) {
  Tensor x = ones({3}).requires_grad_();
  const Tensor y = x * 2;
  y.normal_();
  y.backward(ones({3}));
  EXPECT_FALSE(x.grad().defined());
}

TEST(RandomInPlace, InvalidArgumentsAreNamedInErrorsBeforeADraw) {
  Stream stream;
  Generator* g = &stream.generator;
  const Tensor x = zeros({2}), integers = zeros({2}, {kInt64});
  Tensor leaf = zeros({2}).requires_grad_();
  EXPECT_ERROR(ValueError, x.normal_(0, -1, g), "normal_: std is -1, expected at least 0");
  EXPECT_ERROR(ValueError, x.uniform_(2, 1, g), "uniform_: from must not be above to, they are 2 and 1");
  EXPECT_ERROR(ValueError, x.uniform_(-2e38, 2e38, g), "uniform_: to - from is 4e+38, too large for float32");
  EXPECT_ERROR(ValueError, x.bernoulli_(1.5, g), "bernoulli_: p is 1.5, expected 0 <= p <= 1");
  EXPECT_ERROR(ValueError, x.exponential_(0, g), "exponential_: lambd is 0, expected a positive number");
  EXPECT_ERROR(DTypeError, integers.normal_(0, 1, g), "normal_: self must be floating\n  self  cpu  int64 [2]");
  EXPECT_THROW(leaf.normal_(0, 1, g), StateError);
  EXPECT_THROW(zeros({1}).expand({2}).uniform_(0, 1, g), StateError);
  EXPECT_EQ(x.to_vector<float>(), std::vector<float>(2));
  EXPECT_EQ(stream.generator.reserve(0).offset, stream.state.offset);
}

}}  // namespace tandem::testing
