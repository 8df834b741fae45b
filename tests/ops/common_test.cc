#include <tandem/ops/common/common.h>

#include <tandem/tests/support/op_case.h>

namespace tandem::testing { namespace {

TEST(OperandChecks, ErrorTextListsOperandsInTable) {
  const Tensor a = zeros({2, 3});
  const Tensor b = zeros({}, {kInt64});
  EXPECT_EQ(ops::operand_error("op", "went wrong", {{"a", a}, {"weights", b}, {"none", Tensor()}}, {false, true, false},
                               "do better"),
            "op: went wrong\n"
            "  a        cpu        float32 [2, 3]\n"
            "  weights  cpu        int64   []      <- differs\n"
            "  none     undefined\n"
            "  do better");
}

TEST(OperandChecks, OperandsOffTheMajorityDeviceAreMarked) {
  if (cpu_device_count() < 3) set_cpu_device_count(3);
  const Tensor here = zeros({128});
  const Tensor there = zeros({64, 256}, {kFloat32, Device("cpu:1")});
  const Tensor far = zeros({3}, {kInt32, Device("cpu:2")});
  EXPECT_ERROR(DeviceError, ops::check_same_device("addmm", {{"input", here}, {"mat1", there}, {"mat2", there}}),
               "addmm: operands are on different devices\n"
               "  input  cpu    float32 [128]      <- differs\n"
               "  mat1   cpu:1  float32 [64, 256]\n"
               "  mat2   cpu:1  float32 [64, 256]\n"
               "  move it with input.to(cpu:1), or move the module with model.to(cpu:1)");
  // On a tie, the first operand's device is the reference.
  EXPECT_ERROR(DeviceError, ops::check_same_device("op", {{"a", here}, {"b", there}, {"c", far}}),
               "op: operands are on different devices\n"
               "  a  cpu    float32 [128]\n"
               "  b  cpu:1  float32 [64, 256]  <- differs\n"
               "  c  cpu:2  int32   [3]        <- differs\n"
               "  move them with b.to(cpu) and c.to(cpu), or move the module with model.to(cpu)");
  EXPECT_EQ(ops::check_same_device("op", {{"b", there}}).device, Device("cpu:1"));
}

TEST(OperandChecks, TensorListsOfAnyLengthAreChecked) {
  if (cpu_device_count() < 3) set_cpu_device_count(3);
  std::vector<Tensor> tensors(40, zeros({3}));
  EXPECT_EQ(ops::check_same_device_list("op", tensors).device, Device());
  tensors[36] = zeros({}, {kInt64, Device("cpu:2")});
  std::string want = "op: operands are on different devices";
  for (int i = 0; i < 40; ++i) {
    want += str("\n  tensors[", i, i < 10 ? "]   " : "]  ",
                i == 36 ? "cpu:2  int64   []   <- differs" : "cpu    float32 [3]");
  }
  want += "\n  move it with tensors[36].to(cpu), or move the module with model.to(cpu)";
  EXPECT_ERROR(DeviceError, ops::check_same_device_list("op", tensors), want);
  tensors = {zeros({3}), Tensor(), zeros({2})};
  EXPECT_ERROR(StateError, ops::check_same_device_list("op", tensors),
               "op: tensors[1] is undefined\n"
               "  tensors[0]  cpu        float32 [3]\n"
               "  tensors[1]  undefined\n"
               "  tensors[2]  cpu        float32 [2]");
}

TEST(OperandChecks, ErrorsNameTheModule) {
  RankContext::current().module_scope = make_ref<ScopeName>("Linear 'encoder.fc1'");
  const std::string text = error_text<StateError>([] {
    static_cast<void>(ops::check_same_device("op", {{"a", Tensor()}, {"b", Tensor()}}));
  });
  RankContext::current().module_scope = {};
  EXPECT_EQ(text,
            "op: a and b are undefined\n"
            "  a  undefined\n"
            "  b  undefined\n"
            "  in Linear 'encoder.fc1'");
}

TEST(OperandChecks, MixedOrIntegerDTypesAreRejected) {
  const Tensor a = zeros({2});
  const Tensor b = zeros({2}, {kFloat64});
  EXPECT_NO_THROW(ops::check_same_dtype("op", {{"a", a}, {"b", a}}));
  EXPECT_ERROR(DTypeError, ops::check_same_dtype("op", {{"a", a}, {"b", b}}),
               "op: operands have different dtypes\n"
               "  a  cpu  float32 [2]\n"
               "  b  cpu  float64 [2]  <- differs");
  EXPECT_NO_THROW(ops::check_floating("op", {"a", a}));
  EXPECT_ERROR(DTypeError, ops::check_floating("op", {"a", zeros({2}, {kInt32})}),
               "op: a must be floating\n  a  cpu  int32 [2]");
}

TEST(BroadcastShape, ShapesCombineAndMismatchesAreRejected) {
  const auto shape_of = [](const Shape& a, const Shape& b, const Shape& c) {
    return ops::broadcast_shape("op", {{"a", zeros(a)}, {"b", zeros(b)}, {"c", zeros(c)}});
  };
  EXPECT_EQ(shape_of({3}, {2, 1}, {}), (Shape{2, 3}));
  EXPECT_EQ(shape_of({1}, {0}, {5, 1}), (Shape{5, 0}));
  EXPECT_EQ(shape_of({7, 1, 2}, {1, 3, 1}, {3, 2}), (Shape{7, 3, 2}));
  EXPECT_ERROR(ShapeError, shape_of({3}, {0}, {}),
               "op: shapes do not broadcast\n"
               "  a  cpu  float32 [3]\n"
               "  b  cpu  float32 [0]\n"
               "  c  cpu  float32 []");
  EXPECT_EQ(ops::broadcast_strides(zeros({3, 1, 4}), {2, 3, 5, 4}), (Shape{0, 4, 0, 1}));
}

TEST(SumToShape, MatchesNaiveReference) {
  const Tensor grad = random_tensor({2, 3, 4}, 1, kFloat64);
  EXPECT_TRUE(ops::sum_to_shape(grad, {2, 3, 4}).is_same(grad));
  const Dense values = dense(grad);
  for (const Shape& shape :
       {Shape{4}, Shape{3, 4}, Shape{1, 4}, Shape{2, 1, 4}, Shape{3, 1}, Shape{1, 1, 1}, Shape{}}) {
    Dense want = dense_zeros(shape);
    const Shape strides = row_major_strides(shape);
    for (int64_t i = 0; i < 24; ++i) {
      const int64_t index[] = {i / 12, i / 4 % 3, i % 4};
      int64_t position = 0;
      for (size_t d = 0; d < shape.size(); ++d) {
        if (shape[d] != 1) position += index[3 - shape.size() + d] * strides[d];
      }
      want[position] += values[i];
    }
    EXPECT_TRUE(close(ops::sum_to_shape(grad, shape), want, 1e-14)) << shape;
  }
}

}}  // namespace tandem::testing
