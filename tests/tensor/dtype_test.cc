#include <tandem/tensor/dtype.h>
#include <tandem/tests/support/test.h>

namespace tandem { namespace {

constexpr DType kAll[] = {kBool, kUInt8, kInt8, kInt16, kInt32, kInt64, kFloat16, kBFloat16, kFloat32, kFloat64};

TEST(DType, NamesAndSizesMatchTypes) {
  const char* names[] = {"bool",  "uint8",   "int8",     "int16",   "int32",
                         "int64", "float16", "bfloat16", "float32", "float64"};
  for (int i = 0; i < 10; ++i) {
    EXPECT_STREQ(to_string(kAll[i]), names[i]);
    std::ostringstream out;
    out << kAll[i];
    EXPECT_EQ(out.str(), names[i]);
    visit_dtype(kAll[i], [&]<class T>() {
      EXPECT_EQ(dtype_of<T>(), kAll[i]);
      EXPECT_EQ(size_of(kAll[i]), static_cast<int64_t>(sizeof(T)));
    });
  }
}

TEST(DType, FloatingAndIntegralKindsAreDistinguished) {
  for (DType dtype : kAll) {
    EXPECT_EQ(is_floating_point(dtype),
              dtype == kFloat16 || dtype == kBFloat16 || dtype == kFloat32 || dtype == kFloat64);
    EXPECT_EQ(is_integral(dtype),
              dtype == kUInt8 || dtype == kInt8 || dtype == kInt16 || dtype == kInt32 || dtype == kInt64);
  }
}

TEST(DType, PromotionMatchesPyTorch) {
  // torch.promote_types, in the order of kAll.
  const DType expected[10][10] = {
      {kBool, kUInt8, kInt8, kInt16, kInt32, kInt64, kFloat16, kBFloat16, kFloat32, kFloat64},
      {kUInt8, kUInt8, kInt16, kInt16, kInt32, kInt64, kFloat16, kBFloat16, kFloat32, kFloat64},
      {kInt8, kInt16, kInt8, kInt16, kInt32, kInt64, kFloat16, kBFloat16, kFloat32, kFloat64},
      {kInt16, kInt16, kInt16, kInt16, kInt32, kInt64, kFloat16, kBFloat16, kFloat32, kFloat64},
      {kInt32, kInt32, kInt32, kInt32, kInt32, kInt64, kFloat16, kBFloat16, kFloat32, kFloat64},
      {kInt64, kInt64, kInt64, kInt64, kInt64, kInt64, kFloat16, kBFloat16, kFloat32, kFloat64},
      {kFloat16, kFloat16, kFloat16, kFloat16, kFloat16, kFloat16, kFloat16, kFloat32, kFloat32, kFloat64},
      {kBFloat16, kBFloat16, kBFloat16, kBFloat16, kBFloat16, kBFloat16, kFloat32, kBFloat16, kFloat32, kFloat64},
      {kFloat32, kFloat32, kFloat32, kFloat32, kFloat32, kFloat32, kFloat32, kFloat32, kFloat32, kFloat64},
      {kFloat64, kFloat64, kFloat64, kFloat64, kFloat64, kFloat64, kFloat64, kFloat64, kFloat64, kFloat64}};
  for (int a = 0; a < 10; ++a) {
    for (int b = 0; b < 10; ++b) EXPECT_EQ(promote(kAll[a], kAll[b]), expected[a][b]) << kAll[a] << " " << kAll[b];
  }
}

TEST(DType, AccumulatorsWidenHalfAndIntegerTypes) {
  EXPECT_TRUE((std::is_same_v<Accumulator<Half>, float>));
  EXPECT_TRUE((std::is_same_v<Accumulator<BFloat16>, float>));
  EXPECT_TRUE((std::is_same_v<Accumulator<float>, float>));
  EXPECT_TRUE((std::is_same_v<Accumulator<double>, double>));
  EXPECT_TRUE((std::is_same_v<Accumulator<uint8_t>, int64_t>));
  EXPECT_TRUE((std::is_same_v<Accumulator<bool>, int64_t>));
}

}}  // namespace tandem
