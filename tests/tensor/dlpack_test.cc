#include <tandem/tensor/dlpack.h>

#include <tandem/tensor/factories.h>
#include <tandem/tests/support/test.h>
#include <tandem/tests/tensor/dlpack_peer.h>

namespace tandem { namespace {

constexpr DLDataType kFloatCode = {2, 32, 1};

/// Memory of the library in C: 0, 1, .. 11, and a row-major float32 [3, 4] on it.
struct Peer {
  float memory[12] = {0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11};
  int64_t shape[2] = {3, 4};
  int64_t strides[2] = {4, 1};
  DLTensor tensor = {memory, {1, 0}, 2, kFloatCode, shape, strides, 0};
  int deleted = 0;
};

/// The text of from_dlpack's error after `change` of a tensor in C. Also checks that the caller then owns the tensor.
template <class E, class F>
std::string import_error(F change) {
  Peer peer;
  DLManagedTensorVersioned* managed = peer_produce(peer.tensor, &peer.deleted);
  change(*managed);
  const std::string text = testing::error_text<E>([&] { from_dlpack(managed); });
  EXPECT_EQ(peer.deleted, 0);
  managed->deleter(managed);
  EXPECT_EQ(peer.deleted, 1);
  return text;
}

/// "shape strides" of the export of a tensor.
std::string exported_layout(const Tensor& tensor) {
  DLManagedTensorVersioned* managed = to_dlpack(tensor);
  const DLTensor& fields = managed->dl_tensor;
  EXPECT_EQ(managed->version.major, 1);
  EXPECT_EQ(managed->flags, 0);
  EXPECT_EQ(fields.device.device_type, 1);
  EXPECT_EQ(fields.device.device_id, 0);
  EXPECT_EQ(fields.data, tensor.numel() == 0 ? nullptr : tensor.data_ptr());
  EXPECT_EQ(fields.byte_offset, 0);
  const std::string layout =
      str(Shape(fields.shape, fields.shape + fields.ndim), " ", Shape(fields.strides, fields.strides + fields.ndim));
  managed->deleter(managed);
  return layout;
}

TEST(Dlpack, ExportHasTheLayoutOfTheTensor) {
  const auto storage = empty(24, kFloat32).storage();
  EXPECT_EQ(exported_layout(make_view(storage, kFloat32, {3, 1, 2}, {1, 7, 6}, 5)), "[3, 1, 2] [1, 7, 6]");
  EXPECT_EQ(exported_layout(make_view(storage, kFloat32, {1, 3, 1}, {17, 1, 0}, 0)), "[1, 3, 1] [3, 1, 1]");
  EXPECT_EQ(exported_layout(empty({0, 2})), "[0, 2] [2, 1]");
  EXPECT_EQ(exported_layout(empty({})), "[] []");
  set_cpu_device_count(2);
  EXPECT_EQ(exported_layout(empty(2, "cpu:1")), "[2] [1]");
}

TEST(Dlpack, ConsumerKeepsMemoryAliveAndChangesIt) {
  float memory[4] = {0, 1, 2, 3};
  int released = 0;
  DLManagedTensor* unversioned = nullptr;
  DLManagedTensorVersioned* managed = nullptr;
  {
    const Tensor tensor = from_blob(memory, {4}, [&](void*) { ++released; });
    unversioned = to_dlpack_unversioned(tensor);
    managed = to_dlpack(make_view(tensor.storage(), kFloat32, {2}, {2}, 1));
  }
  std::thread([&] { peer_consume(managed); }).join();
  EXPECT_EQ(std::vector<float>(memory, memory + 4), (std::vector<float>{0, 2, 2, 4}));
  EXPECT_EQ(unversioned->dl_tensor.data, memory);
  EXPECT_EQ(released, 0);
  unversioned->deleter(unversioned);
  EXPECT_EQ(released, 1);
}

TEST(Dlpack, ImportSharesMemoryAndDeletesOnce) {
  Peer peer;
  Tensor tensor = from_dlpack(peer_produce(peer.tensor, &peer.deleted));
  EXPECT_EQ(tensor.to_vector<float>(), std::vector<float>(peer.memory, peer.memory + 12));
  Tensor view = make_view(tensor.storage(), kFloat32, {2}, {4}, 3);
  tensor = {};
  EXPECT_EQ(peer.deleted, 0);
  view.data<float>()[0] = 30;
  EXPECT_EQ(peer.memory[3], 30);
  view = {};
  EXPECT_EQ(peer.deleted, 1);
  DLManagedTensor without_deleter = {peer.tensor, nullptr, nullptr};
  EXPECT_EQ(from_dlpack(&without_deleter).to_vector<float>()[3], 30);
}

TEST(Dlpack, ImportReadsStridesAndOffset) {
  Peer peer;
  const auto values = [&] { return from_dlpack(peer_produce(peer.tensor, &peer.deleted)).to_vector<float>(); };
  peer.tensor.byte_offset = 2 * sizeof(float);
  peer.shape[0] = peer.shape[1] = 2;
  peer.strides[0] = 1;
  peer.strides[1] = 6;
  EXPECT_EQ(values(), (std::vector<float>{2, 8, 3, 9}));
  peer.strides[0] = 0;
  EXPECT_EQ(values(), (std::vector<float>{2, 8, 2, 8}));
  peer.tensor.strides = nullptr;
  EXPECT_EQ(values(), (std::vector<float>{2, 3, 4, 5}));
  peer.tensor.strides = peer.strides;
  peer.shape[0] = 1;
  peer.strides[0] = -100;  // a dimension of size 1
  EXPECT_EQ(values(), (std::vector<float>{2, 8}));
  peer.tensor.ndim = 0;
  peer.tensor.shape = peer.tensor.strides = nullptr;
  EXPECT_EQ(values(), std::vector<float>{2});
  peer.tensor = {nullptr, {3, 0}, 2, kFloatCode, peer.shape, nullptr, 0};
  peer.shape[0] = 0;
  const Tensor none = from_dlpack(peer_produce(peer.tensor, &peer.deleted));
  EXPECT_EQ(none.shape(), Shape({0, 2}));
  EXPECT_TRUE(none.device().is_cpu());
  EXPECT_EQ(peer.deleted, 5);
}

TEST(Dlpack, DTypesHaveTheCodesOfTheInterface) {
  const DType dtypes[] = {kBool, kUInt8, kInt8, kInt16, kInt32, kInt64, kFloat16, kBFloat16, kFloat32, kFloat64};
  const std::vector<int> codes = {6, 1, 0, 0, 0, 0, 2, 4, 2, 2}, bits = {8, 8, 8, 16, 32, 64, 16, 16, 32, 64};
  for (size_t i = 0; i < codes.size(); ++i) {
    const Tensor tensor = ones({2}, dtypes[i]);
    DLManagedTensorVersioned* managed = to_dlpack(tensor);
    EXPECT_EQ(managed->dl_tensor.dtype.code, codes[i]);
    EXPECT_EQ(managed->dl_tensor.dtype.bits, bits[i]);
    EXPECT_EQ(managed->dl_tensor.dtype.lanes, 1);
    const Tensor imported = from_dlpack(managed);
    EXPECT_EQ(imported.dtype(), dtypes[i]);
    EXPECT_EQ(imported.data_ptr(), tensor.data_ptr());
  }
  const auto error = [](DLDataType dtype) {
    return import_error<DTypeError>([&](DLManagedTensorVersioned& managed) { managed.dl_tensor.dtype = dtype; });
  };
  const std::string start = "from_dlpack: tandem does not support the dtype ", end = "; convert it before the export";
  EXPECT_EQ(error({5, 64, 1}), start + "complex64" + end);
  EXPECT_EQ(error({1, 16, 1}), start + "uint16" + end);
  EXPECT_EQ(error({2, 32, 4}), start + "float32 with 4 lanes" + end);
  EXPECT_EQ(error({10, 8, 1}), start + "code 10 of bits 8" + end);
}

TEST(Dlpack, ExportErrors) {
  Tensor leaf = ones({2});
  leaf.impl().requires_grad = true;
  EXPECT_ERROR(StateError, to_dlpack(leaf),
               "to_dlpack: the tensor requires grad, and other libraries do not record; export x.detach()");
  EXPECT_ERROR(StateError, to_dlpack_unversioned({}), "an undefined tensor was used");
}

TEST(Dlpack, MalformedImportsAreRejected) {
  using Managed = DLManagedTensorVersioned;
  EXPECT_ERROR(ValueError, from_dlpack(static_cast<Managed*>(nullptr)), "from_dlpack: the argument is null");
  EXPECT_ERROR(ValueError, from_dlpack(static_cast<DLManagedTensor*>(nullptr)), "from_dlpack: the argument is null");
  EXPECT_EQ(import_error<ValueError>([](Managed& m) {
              m.version = {2, 1};
            }),
            "from_dlpack: DLPack version 2.1, expected 1.x; ask the producer for version 1.0");
  EXPECT_EQ(import_error<ValueError>([](Managed& m) { m.flags = 3; }),
            "from_dlpack: the memory is read-only, tandem's tensors are writable; export a copy");
  EXPECT_EQ(
      import_error<DeviceError>([](Managed& m) {
        m.dl_tensor.device = {10, 0};
      }),
      "from_dlpack: device type 10 is not CPU (1), CUDA (2) or CUDA's host memory (3); copy the tensor to the CPU "
      "before the export");
  EXPECT_NE(import_error<DeviceError>([](Managed& m) { m.dl_tensor.device = {2, 77}; }), "");
  EXPECT_EQ(import_error<ShapeError>([](Managed& m) { m.dl_tensor.ndim = -1; }), "from_dlpack: ndim is -1");
  EXPECT_EQ(import_error<ShapeError>([](Managed& m) { m.dl_tensor.shape = nullptr; }),
            "from_dlpack: ndim is 2, and the shape is null");
  EXPECT_EQ(import_error<ShapeError>([](Managed& m) { m.dl_tensor.shape[1] = -4; }),
            "shape [3, -4] has a negative size");
  EXPECT_EQ(
      import_error<ValueError>([](Managed& m) { m.dl_tensor.strides[1] = -1; }),
      "from_dlpack: dimension 1 has the negative stride -1, which tandem does not support; export a contiguous copy");
  EXPECT_EQ(import_error<ValueError>([](Managed& m) { m.dl_tensor.strides[0] = std::numeric_limits<int64_t>::max(); }),
            "from_dlpack: shape [3, 4] with strides [9223372036854775807, 1] exceeds the address space");
  EXPECT_EQ(import_error<ValueError>([](Managed& m) { m.dl_tensor.data = nullptr; }), "from_dlpack: the data is null");
  EXPECT_EQ(import_error<ValueError>([](Managed& m) { m.dl_tensor.byte_offset = 2; }),
            "from_dlpack: the data is not aligned to float32; export a copy");
}

}}  // namespace tandem
