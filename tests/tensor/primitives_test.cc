#include <tandem/tensor/primitives.h>

#include <tandem/base/parallel_for.h>
#include <tandem/base/rank_context.h>
#include <tandem/tensor/factories.h>
#include <tandem/tests/support/test.h>

namespace tandem { namespace {

constexpr DType kAll[] = {kBool, kUInt8, kInt8, kInt16, kInt32, kInt64, kFloat16, kBFloat16, kFloat32, kFloat64};

/// A test layout: a tensor of `shape` inside a storage of `span` elements.
struct Layout {
  const char* name;
  Shape shape;
  Shape strides;
  int64_t offset;
  int64_t span;
};

std::vector<Layout> layouts() {
  std::vector<Layout> result;
  for (int64_t n : {0, 1, 3, 7, 31, 32, 33}) {
    result.push_back({"contiguous", {n}, {1}, 5, n + 9});
    result.push_back({"stepped", {n}, {3}, 2, 3 * n + 4});
  }
  for (int64_t m : {1, 3, 16, 31, 33, 48}) {
    for (int64_t n : {1, 7, 16, 32, 33}) {
      result.push_back({"matrix", {m, n}, {n, 1}, 1, m * n + 3});
      result.push_back({"columns", {m, n}, {n + 5, 1}, 3, m * (n + 5) + 4});
      result.push_back({"transposed", {m, n}, {1, m}, 1, m * n + 3});
      result.push_back({"transposed, padded", {m, n}, {1, m + 2}, 1, (m + 2) * n + 3});
      result.push_back({"transposed, stepped", {m, n}, {2, 2 * m}, 1, 2 * m * n + 3});
    }
  }
  result.push_back({"0-dim", {}, {}, 3, 7});
  result.push_back({"permuted", {3, 7, 5}, {1, 15, 3}, 2, 110});
  result.push_back({"batch of transposed", {3, 33, 17}, {561, 1, 33}, 2, 1700});
  result.push_back({"7 dimensions", {2, 1, 3, 2, 1, 2, 3}, {1, 9, 24, 12, 5, 6, 2}, 4, 90});
  result.push_back({"large", {257, 300}, {300, 1}, 0, 257 * 300});
  result.push_back({"large, transposed", {257, 300}, {1, 257}, 0, 257 * 300});
  result.push_back({"empty", {3, 0, 7}, {7, 7, 1}, 0, 1});
  return result;
}

/// Offsets of the elements of a layout, in row-major order.
std::vector<int64_t> offsets_of(const Layout& layout) {
  std::vector<int64_t> result = {layout.offset};
  for (size_t d = 0; d < layout.shape.size(); ++d) {
    std::vector<int64_t> next;
    for (int64_t offset : result) {
      for (int64_t i = 0; i < layout.shape[d]; ++i) next.push_back(offset + i * layout.strides[d]);
    }
    result = next;
  }
  return result;
}

/// A tensor of the layout on a storage whose element i is pattern(i).
template <class T, class F>
Tensor make(const Layout& layout, const F& pattern) {
  const RefPtr<Storage> storage = Storage::allocate(Device(), layout.span * static_cast<int64_t>(sizeof(T)));
  T* data = reinterpret_cast<T*>(storage->data());
  for (int64_t i = 0; i < layout.span; ++i) data[i] = static_cast<T>(pattern(i));
  return make_view(storage, dtype_of<T>(), layout.shape, layout.strides, layout.offset);
}

template <class T>
const T* span_of(const Tensor& tensor) {
  return reinterpret_cast<const T*>(tensor.storage()->data());
}

float small(int64_t i) { return static_cast<float>((i * 37 + 11) % 101); }  // exact in every dtype except bool
float guard(int64_t i) { return static_cast<float>((i * 29 + 5) % 97); }

TEST(PrimitivesCopy, EveryLayoutPairIsCopied) {
  const std::vector<Layout> all = layouts();
  for (const Layout& from : all) {
    for (const Layout& to : all) {
      if (from.shape != to.shape) continue;
      const Tensor src = make<float>(from, small);
      const Tensor out = make<float>(to, guard);
      primitives::copy(src, out);
      std::vector<float> expected(static_cast<size_t>(to.span));
      for (int64_t i = 0; i < to.span; ++i) expected[static_cast<size_t>(i)] = guard(i);
      const auto from_offsets = offsets_of(from), to_offsets = offsets_of(to);
      for (size_t i = 0; i < to_offsets.size(); ++i) {
        expected[static_cast<size_t>(to_offsets[i])] = small(from_offsets[i]);
      }
      const float* data = span_of<float>(out);
      ASSERT_EQ(std::vector<float>(data, data + to.span), expected) << from.name << " to " << to.name << to.shape;
    }
  }
}

template <class From, class To>
void check_conversion(const Layout& from, const Layout& to) {
  const Tensor src = make<From>(from, small);
  const Tensor out = make<To>(to, guard);
  primitives::copy(src, out);
  const auto from_offsets = offsets_of(from), to_offsets = offsets_of(to);
  for (size_t i = 0; i < to_offsets.size(); ++i) {
    ASSERT_EQ(static_cast<double>(span_of<To>(out)[to_offsets[i]]),
              static_cast<double>(static_cast<To>(span_of<From>(src)[from_offsets[i]])))
        << from.name << " to " << to.name << to.shape << " " << src.dtype() << " to " << out.dtype();
  }
}

TEST(PrimitivesCopy, EveryDTypePairIsConverted) {
  const Layout contiguous{"contiguous", {33, 17}, {17, 1}, 1, 570};
  const Layout transposed{"transposed", {33, 17}, {1, 33}, 2, 570};
  const Layout stepped{"stepped", {33, 17}, {40, 2}, 3, 1400};
  const Layout expanded{"expanded", {33, 17}, {1, 0}, 3, 50};
  for (DType from : kAll) {
    for (DType to : kAll) {
      visit_dtype(from, [&]<class From>() {
        visit_dtype(to, [&]<class To>() {
          check_conversion<From, To>(contiguous, contiguous);
          check_conversion<From, To>(transposed, contiguous);
          check_conversion<From, To>(contiguous, stepped);
          check_conversion<From, To>(expanded, transposed);
        });
      });
    }
  }
}

template <class From, class To>
std::vector<To> converted(const std::vector<From>& values) {
  const Tensor src = from_vector<From>(values, {static_cast<int64_t>(values.size())});
  const Tensor out = empty(src.shape(), {dtype_of<To>()});
  primitives::copy(src, out);
  return out.to_vector<To>();
}

TEST(PrimitivesCopy, FloatToIntegerTruncatesAndSaturates) {
  const std::vector<double> values = {2.75, -2.75, 0.999, -0.999, 255.5, 256, -1, 1e30, -1e30, INFINITY, NAN};
  EXPECT_EQ((converted<double, uint8_t>(values)), (std::vector<uint8_t>{2, 0, 0, 0, 255, 255, 0, 255, 0, 255, 0}));
  EXPECT_EQ((converted<double, int8_t>(values)), (std::vector<int8_t>{2, -2, 0, 0, 127, 127, -1, 127, -128, 127, 0}));
  EXPECT_EQ((converted<double, int16_t>(values)),
            (std::vector<int16_t>{2, -2, 0, 0, 255, 256, -1, INT16_MAX, INT16_MIN, INT16_MAX, 0}));
  constexpr int32_t kMax = INT32_MAX, kMin = INT32_MIN;
  EXPECT_EQ((converted<double, int32_t>(values)),
            (std::vector<int32_t>{2, -2, 0, 0, 255, 256, -1, kMax, kMin, kMax, 0}));
  EXPECT_EQ((converted<float, int32_t>({2147483520.0f, 2147483648.0f, -2147483648.0f, -3e9f})),
            (std::vector<int32_t>{2147483520, kMax, kMin, kMin}));
  EXPECT_EQ((converted<float, int64_t>({9.3e18f, -9.3e18f, 1099511627776.0f})),
            (std::vector<int64_t>{INT64_MAX, INT64_MIN, int64_t{1} << 40}));
  EXPECT_EQ((converted<double, int32_t>({2147483647.5, -2147483648.5})), (std::vector<int32_t>{kMax, kMin}));
  EXPECT_EQ((converted<Half, int16_t>({Half(300.0f), Half(-INFINITY)})), (std::vector<int16_t>{300, INT16_MIN}));
  EXPECT_EQ((converted<int16_t, Half>({-300, 7})), (std::vector<Half>{Half(-300.0f), Half(7.0f)}));
  EXPECT_EQ((converted<double, Half>({1 + 0x1p-11 + 0x1p-40})), (std::vector<Half>{Half(1 + 0x1p-10f)}));
  EXPECT_EQ((converted<int64_t, BFloat16>({(int64_t{257} << 23) + 1})), (std::vector<BFloat16>{BFloat16(0x1.02p31f)}));
  EXPECT_EQ((converted<Half, uint8_t>({Half(300.0f), Half(-3.5f)})), (std::vector<uint8_t>{255, 0}));
}

TEST(PrimitivesCopy, IntegerNarrowingWrapsAround) {
  EXPECT_EQ((converted<int64_t, int8_t>({256 + 7, 200})), (std::vector<int8_t>{7, -56}));
  EXPECT_EQ((converted<int8_t, uint8_t>({-1, 5})), (std::vector<uint8_t>{255, 5}));
  EXPECT_EQ((converted<int64_t, uint8_t>({256 + 7, -1})), (std::vector<uint8_t>{7, 255}));
  EXPECT_EQ((converted<int64_t, int32_t>({(int64_t{1} << 32) + 31})), (std::vector<int32_t>{31}));
}

TEST(PrimitivesCopy, NonzeroValuesConvertToTrue) {
  EXPECT_EQ((converted<double, bool>({0, -0.0, 0.25, NAN, -3})), (std::vector<bool>{false, false, true, true, true}));
  EXPECT_EQ((converted<int64_t, bool>({0, 256})), (std::vector<bool>{false, true}));
  EXPECT_EQ((converted<bool, float>({true, false})), (std::vector<float>{1, 0}));
}

TEST(PrimitivesCopy, SameDTypeCopyKeepsBits) {
  std::vector<float> values(33);
  for (size_t i = 0; i < values.size(); ++i) values[i] = std::bit_cast<float>(0x7f800001u + static_cast<uint32_t>(i));
  const Tensor src = from_vector(values, {33});
  const Tensor out = empty({33});
  primitives::copy(src, out);
  EXPECT_EQ(std::memcmp(out.data<float>(), values.data(), 33 * sizeof(float)), 0);  // NaNs with payloads
}

TEST(PrimitivesCopy, CopyBetweenDevicesConvertsDType) {
  set_cpu_device_count(2);
  const Tensor src = from_vector<double>({1.5, -2, 3}, {3}, {kFloat64, Device("cpu:1")});
  const Tensor out = empty({3}, {kFloat32});
  primitives::copy(src, out);
  EXPECT_EQ(out.to_vector<float>(), (std::vector<float>{1.5, -2, 3}));
}

TEST(PrimitivesCopy, ShapeMismatchIsRejected) {
  const Tensor src = zeros({2, 3}), out = zeros({3, 2}, {kInt64});
  EXPECT_ERROR(ShapeError, primitives::copy(src, out),
               "copy: shapes differ\n  src  float32 [2, 3] on cpu\n  out  int64 [3, 2] on cpu");
}

TEST(PrimitivesCopy, ThreadCountDoesNotChangeBits) {
  RankContext context;
  RankContext::Use use(context);
  const Layout from{"transposed", {300, 1001}, {1, 300}, 0, 300 * 1001};
  const Tensor src = make<double>(from, [](int64_t i) { return 1.0 / static_cast<double>(i + 1); });
  set_num_threads(1);
  const Tensor one = empty(src.shape(), {kFloat32});
  primitives::copy(src, one);
  set_num_threads(4);
  const Tensor four = empty(src.shape(), {kFloat32});
  primitives::copy(src, four);
  EXPECT_TRUE(primitives::bytes_equal(one, four));
}

TEST(PrimitivesFill, EveryDTypeAndLayoutIsFilled) {
  for (DType dtype : kAll) {
    visit_dtype(dtype, [&]<class T>() {
      for (const Layout& layout : layouts()) {
        const Tensor out = make<T>(layout, guard);
        std::vector<float> expected;
        for (int64_t i = 0; i < layout.span; ++i) expected.push_back(static_cast<float>(span_of<T>(out)[i]));
        primitives::fill(out, 3);
        for (int64_t offset : offsets_of(layout)) {
          expected[static_cast<size_t>(offset)] = static_cast<float>(static_cast<T>(3));
        }
        for (int64_t i = 0; i < layout.span; ++i) {
          ASSERT_EQ(static_cast<float>(span_of<T>(out)[i]), expected[static_cast<size_t>(i)]) << layout.name << dtype;
        }
      }
    });
  }
}

TEST(PrimitivesFill, NumberIsConvertedToDType) {
  EXPECT_EQ(full({3}, -2.75, {kInt32}).to_vector<int32_t>(), std::vector<int32_t>(3, -2));
  const Tensor large = empty({3}, {kInt64});
  primitives::fill(large, 1e30);  // out of range: full() rejects such values, the primitive saturates
  EXPECT_EQ(large.to_vector<int64_t>(), std::vector<int64_t>(3, INT64_MAX));
  EXPECT_EQ(full({3}, 0.25, {kBool}).to_vector<bool>(), std::vector<bool>(3, true));
}

TEST(PrimitivesAddInto, EveryDTypeAndLayoutIsAdded) {
  const std::vector<Layout> all = layouts();
  for (DType dtype : kAll) {
    visit_dtype(dtype, [&]<class T>() {
      for (const Layout& from : all) {
        for (const Layout& to : all) {
          if (from.shape != to.shape || (dtype != kFloat32 && from.span > 1000)) continue;
          const Tensor src = make<T>(from, small);
          const Tensor out = make<T>(to, guard);
          std::vector<float> expected(span_of<T>(out), span_of<T>(out) + to.span);
          const auto from_offsets = offsets_of(from), to_offsets = offsets_of(to);
          for (size_t i = 0; i < to_offsets.size(); ++i) {
            float& sum = expected[static_cast<size_t>(to_offsets[i])];
            sum = static_cast<float>(static_cast<T>(sum + static_cast<float>(span_of<T>(src)[from_offsets[i]])));
          }
          primitives::add_into(src, out);
          for (int64_t i = 0; i < to.span; ++i) {
            ASSERT_EQ(static_cast<float>(span_of<T>(out)[i]), expected[static_cast<size_t>(i)])
                << dtype << " " << from.name << " to " << to.name << to.shape;
          }
        }
      }
    });
  }
}

TEST(PrimitivesAddInto, HalfTypeSumsInFloat32AreRoundedOnce) {
  const Tensor a = full({33}, 256.0, {kBFloat16});
  primitives::add_into(full({33}, 1.0, {kBFloat16}), a);  // 257 is halfway between 256 and 258: to even
  EXPECT_EQ(a.to_vector<float>(), std::vector<float>(33, 256.0f));
  primitives::add_into(full({33}, 3.0, {kBFloat16}), a);  // 259 is halfway between 258 and 260
  EXPECT_EQ(a.to_vector<float>(), std::vector<float>(33, 260.0f));
}

TEST(PrimitivesAddInto, IntegerOverflowWrapsAround) {
  const Tensor a = full({7}, INT32_MAX, {kInt32});
  primitives::add_into(full({7}, 2, {kInt32}), a);
  EXPECT_EQ(a.to_vector<int32_t>(), std::vector<int32_t>(7, INT32_MIN + 1));
}

TEST(PrimitivesAddInto, MismatchedOperandsAreRejected) {
  set_cpu_device_count(2);
  const Tensor out = zeros({2, 3});
  const auto text = [&](const Tensor& src) -> std::string {
    try {
      primitives::add_into(src, out);
    } catch (const Error& error) {
      return error.what();
    }
    return "";
  };
  EXPECT_EQ(text(zeros({3})), "add_into: shapes differ\n  src  float32 [3] on cpu\n  out  float32 [2, 3] on cpu");
  EXPECT_EQ(text(zeros({2, 3}, {kInt64})),
            "add_into: dtypes differ\n  src  int64 [2, 3] on cpu\n  out  float32 [2, 3] on cpu");
  EXPECT_EQ(
      text(zeros({2, 3}, {kFloat32, Device("cpu:1")})),
      "add_into: operands are on different devices\n  src  float32 [2, 3] on cpu:1\n  out  float32 [2, 3] on cpu");
}

TEST(PrimitivesBytesEqual, EveryElementAndNoGapIsCompared) {
  for (DType dtype : kAll) {
    visit_dtype(dtype, [&]<class T>() {
      for (const Layout& layout : layouts()) {
        if (layout.span > 2000) continue;
        const Tensor a = make<T>(layout, small);
        Layout plain = layout;
        plain.strides = row_major_strides(layout.shape);
        plain.offset = 1;
        plain.span = num_elements(layout.shape) + 3;
        const Tensor b = make<T>(plain, guard);
        primitives::copy(a, b);
        ASSERT_TRUE(primitives::bytes_equal(a, b)) << layout.name;
        const auto offsets = offsets_of(layout);
        T* data = reinterpret_cast<T*>(a.storage()->data());
        for (size_t i = 0; i < offsets.size(); i += 5) {
          const T kept = data[offsets[i]];
          data[offsets[i]] = static_cast<T>(!static_cast<bool>(kept));
          ASSERT_FALSE(primitives::bytes_equal(a, b)) << layout.name << layout.shape << i;
          data[offsets[i]] = kept;
        }
        // Memory between the elements is not compared.
        std::vector<bool> used(static_cast<size_t>(layout.span));
        for (int64_t offset : offsets) used[static_cast<size_t>(offset)] = true;
        for (size_t i = 0; i < used.size(); ++i) {
          if (!used[i]) data[i] = static_cast<T>(!static_cast<bool>(data[i]));
        }
        ASSERT_TRUE(primitives::bytes_equal(a, b)) << layout.name;
      }
    });
  }
}

TEST(PrimitivesBytesEqual, ComparisonIsBitwise) {
  EXPECT_FALSE(primitives::bytes_equal(full({3}, 0.0), full({3}, -0.0)));
  EXPECT_TRUE(primitives::bytes_equal(full({3}, NAN), full({3}, NAN)));
  EXPECT_THROW(primitives::bytes_equal(zeros({3}), zeros({4})), ShapeError);
  EXPECT_THROW(primitives::bytes_equal(zeros({3}), zeros({3}, {kFloat64})), DTypeError);
}

TEST(Primitives, VersionIsNotBumped) {
  const Tensor a = zeros({3});
  const uint32_t version = a.version();
  primitives::fill(a, 7);
  primitives::copy(ones({3}), a);
  primitives::add_into(ones({3}), a);
  EXPECT_EQ(a.version(), version);
}

// Parts of a large copy use non-temporal stores, at any alignment and length; surrounding memory is unchanged.
TEST(Primitives, NontemporalStoresGiveEqualResults) {
  constexpr int64_t kLarge = int64_t{1} << 40;
  if (cpu_device_count() < 2) set_cpu_device_count(2);
  const Device there("cpu:1");
  for (const int64_t count : {1, 1023, 1024, 1025, 2047, 2048, 5000, 70001}) {
    for (const int64_t offset : {0, 1, 7, 16}) {
      SCOPED_TRACE(str(count, " from ", offset));
      std::vector<float> numbers(static_cast<size_t>(count + 40));
      std::iota(numbers.begin(), numbers.end(), 0.f);
      const Tensor memory = from_vector(numbers, {count + 40});
      const Tensor target = full({count + 40}, -1, {kFloat32, there});
      const auto part = [&](const Tensor& t, int64_t begin) {
        return make_view(t.storage(), kFloat32, {count}, {1}, begin);
      };
      primitives::copy(part(memory, offset), part(target, 16 - offset), kLarge);
      std::vector<float> want(static_cast<size_t>(count + 40), -1);
      for (int64_t i = 0; i < count; ++i) want[static_cast<size_t>(16 - offset + i)] = static_cast<float>(offset + i);
      EXPECT_EQ(target.to_vector<float>(), want);

      const Tensor inputs[] = {part(memory, offset), part(memory, 3), part(target, 16 - offset)};
      const Tensor result = full({count + 40}, -1);
      primitives::sum(inputs, part(result, offset), kLarge);
      std::fill(want.begin(), want.end(), -1.f);
      for (int64_t i = 0; i < count; ++i) {
        want[static_cast<size_t>(offset + i)] = static_cast<float>(3 * i + 2 * offset + 3);
      }
      EXPECT_EQ(result.to_vector<float>(), want);
    }
  }
}

TEST(Primitives, SumSupportsEveryDType) {
  for (const DType dtype : {kFloat32, kFloat64, kFloat16, kBFloat16, kInt64, kInt32, kInt16, kInt8, kUInt8, kBool}) {
    const Tensor inputs[] = {full({33}, 1, {dtype}), full({33}, 0, {dtype}), full({33}, 3, {dtype})};
    for (const int64_t total_bytes : {int64_t{0}, int64_t{1} << 40}) {
      const Tensor out = empty({33}, {dtype});
      primitives::sum(inputs, out, total_bytes);
      EXPECT_EQ(out.to_vector<double>(), std::vector<double>(33, dtype == kBool ? 1 : 4));
    }
  }
  EXPECT_EQ(testing::error_text<DTypeError>([] {
              const Tensor inputs[] = {zeros({2}), zeros({2}, {kFloat64})};
              primitives::sum(inputs, zeros({2}));
            }),
            "sum: dtypes differ\n  input  float64 [2] on cpu\n  out  float32 [2] on cpu");
}

}}  // namespace tandem
