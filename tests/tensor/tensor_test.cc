#include <tandem/tensor/tensor.h>

#include <tandem/tensor/factories.h>
#include <tandem/tests/support/test.h>

namespace tandem { namespace {

using testing::error_text;

TEST(Tensor, UndefinedTensorAccessIsRejected) {
  const Tensor t;
  EXPECT_FALSE(t.defined());
  EXPECT_EQ(describe(t), "undefined");
  EXPECT_ERROR(StateError, t.shape(), "an undefined tensor was used");
  EXPECT_THROW(t.dtype(), StateError);
  EXPECT_THROW(t.data<float>(), StateError);
  EXPECT_THROW(t.to_vector<float>(), StateError);
  EXPECT_THROW(t.item(), StateError);
}

TEST(Tensor, CopiesShareOneTensor) {
  const Tensor a = zeros({3});
  const Tensor b = a;
  EXPECT_TRUE(a.is_same(b));
  b.data<float>()[1] = 7;
  EXPECT_EQ(a.to_vector<float>(), (std::vector<float>{0, 7, 0}));
  EXPECT_FALSE(a.is_same(zeros({3})));
}

TEST(Tensor, SizeAcceptsNegativeDimensions) {
  const Tensor t = empty({3, 7, 31});
  EXPECT_EQ(t.size(0), 3);
  EXPECT_EQ(t.size(-1), 31);
  EXPECT_ERROR(IndexError, t.size(3), "size: dimension 3 is out of range [-3, 3) of a tensor with 3 dimensions");
  EXPECT_ERROR(IndexError, zeros({}).size(0), "size: dimension 0 of a tensor without dimensions");
}

TEST(Tensor, DataRejectsWrongType) {
  const Tensor t = zeros({3}, {kInt32});
  EXPECT_EQ(*t.data<int32_t>(), 0);
  EXPECT_ERROR(DTypeError, t.data<float>(), "data: expected a float32 tensor, got int32");
}

TEST(Tensor, ItemConvertsSingleElements) {
  EXPECT_EQ(tensor({2.75}).item(), 2.75);
  EXPECT_EQ(tensor({2.75}).item<float>(), 2.75f);
  EXPECT_EQ(tensor({-2.75}).item<int64_t>(), -2);
  EXPECT_TRUE(tensor({2.75}).item<bool>());
  EXPECT_EQ(scalar_tensor(7, {kUInt8}).item(), 7.0);
  EXPECT_EQ(static_cast<float>(scalar_tensor(0.5, {kFloat64}).item<Half>()), 0.5f);
  const Tensor last = make_view(tensor({1, 2, 33}).storage(), kInt64, {1, 1}, {7, 7}, 2);
  EXPECT_EQ(last.item<int64_t>(), 33);
  EXPECT_EQ(last.item<double>(), 33.0);
  EXPECT_ERROR(ShapeError, zeros({2, 3}).item(), "item: expected a tensor with one element, got float32 [2, 3] on cpu");
  EXPECT_THROW(zeros({0}).item(), ShapeError);
}

TEST(Tensor, ItemAndToVectorReadOtherDevices) {
  set_cpu_device_count(2);
  EXPECT_EQ(full({1}, 2.5, {kFloat32, Device("cpu:1")}).item(), 2.5);
  EXPECT_EQ(full({3}, 2.5, {kFloat32, Device("cpu:1")}).to_vector<double>(), std::vector<double>(3, 2.5));
}

TEST(Tensor, ToVectorIsRowMajor) {
  const Tensor t = from_vector<int32_t>({0, 1, 2, 3, 4, 5}, {2, 3});
  EXPECT_EQ(make_view(t.storage(), kInt32, {3, 2}, {1, 3}, 0).to_vector<int64_t>(),
            (std::vector<int64_t>{0, 3, 1, 4, 2, 5}));
  EXPECT_EQ(make_view(t.storage(), kInt32, {2, 3}, {0, 2}, 1).to_vector<float>(),
            (std::vector<float>{1, 3, 5, 1, 3, 5}));
  EXPECT_EQ(t.to_vector<bool>(), (std::vector<bool>{false, true, true, true, true, true}));
  EXPECT_EQ(static_cast<float>(t.to_vector<BFloat16>()[5]), 5.0f);
}

TEST(Tensor, ContiguityIgnoresSizeOneAndEmptyDimensions) {
  const RefPtr<Storage> storage = Storage::allocate(Device(), 1000);
  const auto contiguous = [&](const Shape& shape, const Shape& strides) {
    return make_view(storage, kFloat32, shape, strides, 0).is_contiguous();
  };
  EXPECT_TRUE(contiguous({}, {}));
  EXPECT_TRUE(contiguous({3, 7}, {7, 1}));
  EXPECT_TRUE(contiguous({3, 1, 7}, {7, 100, 1}));
  EXPECT_TRUE(contiguous({1, 7}, {33, 1}));
  EXPECT_TRUE(contiguous({3, 0}, {5, 5}));
  EXPECT_FALSE(contiguous({3, 7}, {1, 3}));
  EXPECT_FALSE(contiguous({3, 7}, {8, 1}));
  EXPECT_FALSE(contiguous({3, 7}, {0, 1}));
  EXPECT_FALSE(contiguous({7}, {2}));
}

TEST(MakeView, ViewOutsideStorageIsRejected) {
  const RefPtr<Storage> storage = Storage::allocate(Device(), 48);  // 12 float32
  const auto make = [&](const Shape& shape, const Shape& strides, int64_t offset) {
    return make_view(storage, kFloat32, shape, strides, offset);
  };
  EXPECT_EQ(make({3, 4}, {4, 1}, 0).numel(), 12);
  EXPECT_EQ(make({3}, {4}, 3).numel(), 3);
  EXPECT_EQ(make({100, 12}, {0, 1}, 0).numel(), 1200);
  EXPECT_EQ(make({0}, {1}, 12).numel(), 0);
  EXPECT_THROW(make({0}, {1}, 13), IndexError);
  EXPECT_THROW(make({3}, {4}, 4), IndexError);
  EXPECT_THROW(make({3}, {-1}, 5), IndexError);
  EXPECT_THROW(make({3}, {1}, -1), IndexError);
  EXPECT_THROW(make({3}, {INT64_MAX}, 1), IndexError);
  EXPECT_THROW(make_view(storage, kFloat64, {12}, {1}, 0), IndexError);
  EXPECT_THROW(make({3}, {1, 1}, 0), ShapeError);
  EXPECT_THROW(make_view(nullptr, kFloat32, {}, {}, 0), StateError);
  EXPECT_ERROR(IndexError, make({13}, {1}, 0),
               "make_view: float32 [13] with strides [1] from element 0 is outside of a storage of 48 bytes");
}

TEST(MakeView, ViewSharesDataAndVersion) {
  const Tensor a = zeros({2, 3});
  const Tensor row = make_view(a.storage(), kFloat32, {3}, {1}, 3);
  row.data<float>()[0] = 7;
  EXPECT_EQ(a.to_vector<float>(), (std::vector<float>{0, 0, 0, 7, 0, 0}));
  row.storage()->bump_version("test");
  EXPECT_EQ(a.version(), 1u);
}

TEST(HookHandle, HookIsRemovedOnce) {
  int removed = 0;
  {
    HookHandle a([&] { ++removed; });
    HookHandle b = std::move(a);
    EXPECT_EQ(removed, 0);
    b.remove();
    EXPECT_EQ(removed, 1);
  }
  EXPECT_EQ(removed, 1);
  {
    HookHandle c([&] { ++removed; });
  }
  EXPECT_EQ(removed, 2);
}

}}  // namespace tandem
