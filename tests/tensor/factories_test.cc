#include <tandem/tensor/factories.h>
#include <tandem/tests/support/test.h>

namespace tandem { namespace {

using testing::error_text;

constexpr DType kAll[] = {kBool, kUInt8, kInt8, kInt16, kInt32, kInt64, kFloat16, kBFloat16, kFloat32, kFloat64};

TEST(Factories, EmptyTensorIsRowMajor) {
  const Tensor t = empty({3, 1, 7}, {kInt32});
  EXPECT_EQ(t.shape(), (Shape{3, 1, 7}));
  EXPECT_EQ(t.strides(), (Shape{7, 7, 1}));
  EXPECT_TRUE(t.is_contiguous());
  EXPECT_EQ(t.numel(), 21);
  EXPECT_EQ(t.num_bytes(), 84);
  EXPECT_EQ(t.storage()->num_bytes(), 84);
  EXPECT_EQ(t.device(), Device());
  EXPECT_EQ(t.dtype(), kInt32);
  EXPECT_FALSE(t.requires_grad());
  EXPECT_TRUE(t.is_leaf());
}

TEST(Factories, ZeroSizesAndScalarsAreSupported) {
  EXPECT_EQ(empty({0}).numel(), 0);
  EXPECT_EQ(zeros({3, 0, 7}).to_vector<float>(), std::vector<float>());
  EXPECT_EQ(full({}, 7).item<int64_t>(), 7);
  EXPECT_EQ(empty({}).dim(), 0);
}

TEST(Factories, ZerosOnesAndFullSupportEveryDType) {
  for (DType dtype : kAll) {
    EXPECT_EQ(zeros({33}, {dtype}).to_vector<double>(), std::vector<double>(33, 0.0));
    EXPECT_EQ(ones({31}, {dtype}).to_vector<double>(), std::vector<double>(31, 1.0));
    EXPECT_EQ(full({7}, 3, {dtype}).to_vector<double>(), std::vector<double>(7, dtype == kBool ? 1.0 : 3.0));
  }
}

TEST(Factories, LikeFactoriesCopyShapeDTypeAndDevice) {
  set_cpu_device_count(2);
  const Tensor original = make_view(Storage::allocate(Device("cpu:1"), 96), kFloat64, {3, 4}, {1, 3}, 0);
  for (const Tensor& t : {empty_like(original), zeros_like(original), ones_like(original)}) {
    EXPECT_EQ(t.shape(), (Shape{3, 4}));
    EXPECT_TRUE(t.is_contiguous());
    EXPECT_EQ(t.dtype(), kFloat64);
    EXPECT_EQ(t.device(), Device("cpu:1"));
  }
  EXPECT_EQ(zeros_like(original).to_vector<double>(), std::vector<double>(12, 0.0));
  EXPECT_EQ(ones_like(original).to_vector<double>(), std::vector<double>(12, 1.0));
  EXPECT_FALSE(empty_like(zeros({3}, {.requires_grad = true})).requires_grad());
}

TEST(Factories, RequiresGradNeedsFloatingDType) {
  for (DType dtype : kAll) {
    if (is_floating_point(dtype)) {
      EXPECT_TRUE(full({3}, 7, {dtype, Device(), true}).requires_grad());
      EXPECT_TRUE(from_vector<double>({1, 2}, {2}, {dtype, Device(), true}).requires_grad());
    } else {
      const std::string expected =
          "requires_grad: only floating-point tensors can require gradients, got " + std::string(to_string(dtype));
      EXPECT_ERROR(DTypeError, empty({3}, {dtype, Device(), true}), expected);
      EXPECT_ERROR(DTypeError, from_vector<double>({1}, {1}, {dtype, Device(), true}), expected);
    }
  }
}

TEST(Factories, OutOfRangeIntegerFillIsRejected) {
  const auto text = [](DType dtype, Scalar value) {
    return error_text<ValueError>([&] { full({2}, value, {dtype}); });
  };
  const std::string of_uint8 = " does not fit in uint8 (0 to 255); choose another dtype";
  EXPECT_EQ(text(kUInt8, 256), "full: value 256" + of_uint8);
  EXPECT_EQ(text(kUInt8, -1), "full: value -1" + of_uint8);
  EXPECT_EQ(text(kUInt8, 256.0), "full: value 256" + of_uint8);
  EXPECT_EQ(text(kUInt8, -1.0), "full: value -1" + of_uint8);
  EXPECT_EQ(text(kUInt8, NAN), "full: value nan" + of_uint8);
  EXPECT_EQ(text(kInt32, int64_t{1} << 31),
            "full: value 2147483648 does not fit in int32 (-2147483648 to 2147483647); choose another dtype");
  EXPECT_EQ(text(kInt64, 0x1p63),
            "full: value 9.22337e+18 does not fit in int64 (-9223372036854775808 to 9223372036854775807); "
            "choose another dtype");
  EXPECT_EQ(text(kInt64, -INFINITY).substr(0, 30), "full: value -inf does not fit ");
  EXPECT_ERROR(ValueError, scalar_tensor(300, {kUInt8}), "scalar_tensor: value 300" + of_uint8);

  EXPECT_EQ(full({1}, 255.9, {kUInt8}).item<int64_t>(), 255);  // truncated
  EXPECT_EQ(full({1}, -0.9, {kUInt8}).item<int64_t>(), 0);
  EXPECT_EQ(full({1}, -0x1p63, {kInt64}).item<int64_t>(), INT64_MIN);
  EXPECT_EQ(full({1}, -2147483648.5, {kInt32}).item<int64_t>(), INT32_MIN);
  EXPECT_EQ(full({1}, 300, {kBool}).item<int64_t>(), 1);
  EXPECT_EQ(full({1}, 1e300, {kFloat32}).item<double>(), INFINITY);
}

TEST(Factories, ArangeGivesValuesAndRejectsBadSteps) {
  using Values = std::vector<int64_t>;
  EXPECT_EQ(arange(0, 5).to_vector<int64_t>(), (Values{0, 1, 2, 3, 4}));
  EXPECT_EQ(arange(2, 9, 3).to_vector<int64_t>(), (Values{2, 5, 8}));
  EXPECT_EQ(arange(2, 8, 3).to_vector<int64_t>(), (Values{2, 5}));
  EXPECT_EQ(arange(5, 0, -2).to_vector<int64_t>(), (Values{5, 3, 1}));
  EXPECT_EQ(arange(3, 3).to_vector<int64_t>(), Values());
  EXPECT_EQ(arange(INT64_MIN, INT64_MAX, INT64_MAX).to_vector<int64_t>(), (Values{INT64_MIN, -1, INT64_MAX - 1}));
  EXPECT_EQ(arange(4).to_vector<int64_t>(), (Values{0, 1, 2, 3}));
  EXPECT_EQ(arange(0).to_vector<int64_t>(), Values());
  EXPECT_ERROR(ValueError, arange(-1), "arange: end -1 cannot be reached from begin 0 with step 1");
  EXPECT_EQ(arange(0, 3).dtype(), kInt64);
  EXPECT_ERROR(ValueError, arange(0, 3, 0), "arange: step is 0");
  EXPECT_ERROR(ValueError, arange(3, 0), "arange: end 0 cannot be reached from begin 3 with step 1");
  EXPECT_ERROR(ValueError, arange(0, 3, -1), "arange: end 3 cannot be reached from begin 0 with step -1");
  EXPECT_ERROR(ShapeError, arange(0, INT64_MAX), "arange: 9223372036854775807 elements do not fit in memory");
}

TEST(Factories, ArangeOfFloatingNumbers) {
  const Tensor x = arange(0, 1, 0.1);
  EXPECT_EQ(x.dtype(), kFloat32);
  EXPECT_EQ(x.numel(), 10);
  EXPECT_EQ(x.to_vector<float>()[3], static_cast<float>(3 * 0.1));
  EXPECT_EQ(arange(2.5).to_vector<double>(), (std::vector<double>{0, 1, 2}));
  EXPECT_EQ(arange(1.0, -1.0, -0.5).to_vector<double>(), (std::vector<double>{1, 0.5, 0, -0.5}));
  EXPECT_EQ(arange(0, 3, 1, {kFloat64}).dtype(), kFloat64);
  EXPECT_EQ(arange(3, {kInt32}).dtype(), kInt32);
  EXPECT_TRUE(arange(0, 3, 1, TensorOptions{.requires_grad = true}).requires_grad());
  EXPECT_ERROR(ValueError, arange(0, INFINITY, 1), "arange: start 0, end inf and step 1 must be finite");
  EXPECT_ERROR(ValueError, arange(0.0, 1.0, -1), "arange: end 1 cannot be reached from begin 0 with step -1");
  EXPECT_ERROR(ShapeError, arange(0, 1e30, 1), "arange: 1e+30 elements do not fit in memory");
}

TEST(Factories, LinspaceIncludesBothEnds) {
  EXPECT_EQ(linspace(0, 1, 5).to_vector<double>(), (std::vector<double>{0, 0.25, 0.5, 0.75, 1}));
  EXPECT_EQ(linspace(3, -3, 4, {kInt64}).to_vector<int64_t>(), (std::vector<int64_t>{3, 1, -1, -3}));
  EXPECT_EQ(linspace(2, 9, 1).to_vector<double>(), (std::vector<double>{2}));
  EXPECT_EQ(linspace(2, 9, 0).numel(), 0);
  const std::vector<double> values = linspace(0.1, 0.7, 101, {kFloat64}).to_vector<double>();
  EXPECT_EQ(values.front(), 0.1);
  EXPECT_EQ(values.back(), 0.7);
  EXPECT_ERROR(ValueError, linspace(0, 1, -1), "linspace: steps is -1, expected at least 0");
}

TEST(Factories, EyeAndFullLike) {
  EXPECT_EQ(eye(2).to_vector<double>(), (std::vector<double>{1, 0, 0, 1}));
  EXPECT_EQ(eye(2, 3, {kInt32}).to_vector<int64_t>(), (std::vector<int64_t>{1, 0, 0, 0, 1, 0}));
  EXPECT_EQ(eye(3, 1, {kBool}).to_vector<int64_t>(), (std::vector<int64_t>{1, 0, 0}));
  EXPECT_EQ(eye(0).shape(), (Shape{0, 0}));
  EXPECT_EQ(full_like(zeros({2}, {kUInt8}), 7).to_vector<int64_t>(), (std::vector<int64_t>{7, 7}));
}

TEST(Factories, NestedListsGiveTensorsOfSeveralDimensions) {
  const Tensor x = tensor({{1, 2}, {3, 4}, {5, 6}});
  EXPECT_EQ(x.shape(), (Shape{3, 2}));
  EXPECT_EQ(x.dtype(), kInt64);
  EXPECT_EQ(x.to_vector<int64_t>(), (std::vector<int64_t>{1, 2, 3, 4, 5, 6}));
  EXPECT_EQ(tensor({{1}, {2}}).shape(), (Shape{2, 1}));
  EXPECT_EQ(tensor({{1, 2}}).shape(), (Shape{1, 2}));
  EXPECT_EQ(tensor({{{1.5, 2}}, {{3, 4}}}).shape(), (Shape{2, 1, 2}));
  EXPECT_EQ(tensor({{1.5, 2}}).dtype(), kFloat32);
  EXPECT_EQ(tensor(5).shape(), Shape());
  EXPECT_EQ(tensor({}).dtype(), kFloat32);
  EXPECT_EQ(tensor({{}, {}}).shape(), (Shape{2, 0}));
  EXPECT_EQ(tensor({true, 2}).dtype(), kInt64);
  EXPECT_EQ(tensor({1, 2}, {kFloat64}).dtype(), kFloat64);
  EXPECT_ERROR(ShapeError, tensor({{1, 2}, {3}}),
               "tensor: elements of one list have the shapes [2] and [1]; all must have the same");
  EXPECT_ERROR(ValueError, tensor({300}, {kUInt8}),
               "tensor: value 300 does not fit in uint8 (0 to 255); choose another dtype");
}

TEST(Factories, FromBlobUsesTheCallersMemory) {
  float memory[6] = {1, 2, 3, 4, 5, 6};
  void* deleted = nullptr;
  {
    const Tensor whole = from_blob(memory, {2, 3}, [&](void* data) { deleted = data; });
    whole.data<float>()[3] = 7;
    EXPECT_EQ(deleted, nullptr);
  }
  EXPECT_EQ(deleted, memory);
  EXPECT_EQ(memory[3], 7);
  EXPECT_EQ(from_blob(memory, {6}).to_vector<double>()[0], 1);
  EXPECT_ERROR(DeviceError, from_blob(memory, {1}, {kFloat32, Device::cuda()}),
               "from_blob: device is cuda:0, expected a CPU device");
}

TEST(Factories, TensorInfersDTypeFromValues) {
  EXPECT_EQ(tensor({1.0, 2.5}).dtype(), kFloat32);
  EXPECT_EQ(tensor({1.0f, 2.5f}).dtype(), kFloat32);
  EXPECT_EQ(tensor({1, 2}).dtype(), kInt64);
  EXPECT_EQ(tensor({int64_t{1} << 40}).dtype(), kInt64);
  EXPECT_EQ(tensor({true, false, true}).dtype(), kBool);
  EXPECT_EQ(tensor({1.0, 2.5}).to_vector<float>(), (std::vector<float>{1, 2.5}));
  EXPECT_EQ(tensor({1, -2, 3}).to_vector<int64_t>(), (std::vector<int64_t>{1, -2, 3}));
  EXPECT_EQ(tensor({int64_t{1} << 40}).item<int64_t>(), int64_t{1} << 40);
  EXPECT_EQ(tensor({true, false, true}).to_vector<bool>(), (std::vector<bool>{true, false, true}));
}

TEST(Factories, ScalarTensorHasNoDimensions) {
  const Tensor t = scalar_tensor(2.5, {kFloat16});
  EXPECT_EQ(t.dim(), 0);
  EXPECT_EQ(t.dtype(), kFloat16);
  EXPECT_EQ(t.item<float>(), 2.5f);
}

TEST(Factories, FromVectorConvertsEveryDTypePair) {
  for (DType from : kAll) {
    visit_dtype(from, [&]<class T>() {
      const std::vector<T> values = {static_cast<T>(1.0f), static_cast<T>(0.0f), static_cast<T>(7.0f)};
      EXPECT_EQ(from_vector(values, {3}).dtype(), from);
      for (DType to : kAll) {
        const Tensor t = from_vector(values, {3, 1}, {to});
        EXPECT_EQ(t.dtype(), to);
        const double seven = from == kBool || to == kBool ? 1.0 : 7.0;
        EXPECT_EQ(t.to_vector<double>(), (std::vector<double>{1, 0, seven})) << from << " to " << to;
      }
    });
  }
}

TEST(Factories, FromVectorRejectsMismatchedValueCount) {
  EXPECT_ERROR(ShapeError, from_vector<float>({1, 2, 3}, {2, 2}), "from_vector: 3 values do not fill shape [2, 2]");
  EXPECT_EQ(from_vector<float>({}, {0, 3}).numel(), 0);
}

TEST(Factories, InvalidShapesAreRejected) {
  EXPECT_ERROR(ShapeError, empty({3, -2}), "shape [3, -2] has a negative size");
  EXPECT_ERROR(
      ShapeError, zeros({INT64_MAX, INT64_MAX}),
      "shape [9223372036854775807, 9223372036854775807] has too many elements: its size in bytes overflows int64");
  EXPECT_THROW(empty({int64_t{1} << 50}), OutOfMemory);
}

}}  // namespace tandem
