#include <tandem/tensor/factories.h>
#include <tandem/tests/support/test.h>

namespace tandem { namespace {

TEST(Print, VectorElementsAreAligned) {
  EXPECT_EQ(to_string(tensor({1.0, -2.5, 31.0})), "[ 1.0000, -2.5000, 31.0000]\nfloat32 [3] on cpu");
  EXPECT_EQ(to_string(tensor({1.0, -2.0})), "[ 1., -2.]\nfloat32 [2] on cpu");
  EXPECT_EQ(to_string(tensor({1, -20, 300})), "[  1, -20, 300]\nint64 [3] on cpu");
  EXPECT_EQ(to_string(tensor({true, false})), "[ true, false]\nbool [2] on cpu");
}

TEST(Print, ScalarsMatricesAndEmptyTensorsArePrinted) {
  EXPECT_EQ(to_string(scalar_tensor(2.5, {})), "2.5000\nfloat32 [] on cpu");
  EXPECT_EQ(to_string(from_vector<int8_t>({-128, 65}, {2})), "[-128,   65]\nint8 [2] on cpu");
  EXPECT_EQ(to_string(from_vector<int16_t>({-300}, {})), "-300\nint16 [] on cpu");
  EXPECT_EQ(to_string(from_vector<int32_t>({1, 2, 3, 4}, {2, 2})), "[[1, 2],\n [3, 4]]\nint32 [2, 2] on cpu");
  EXPECT_EQ(to_string(from_vector<int32_t>({1, 2, 3, 4, 5, 6, 7, 8}, {2, 2, 2})),
            "[[[1, 2],\n  [3, 4]],\n\n [[5, 6],\n  [7, 8]]]\nint32 [2, 2, 2] on cpu");
  EXPECT_EQ(to_string(zeros({3, 0})), "[]\nfloat32 [3, 0] on cpu");
  EXPECT_EQ(to_string(Tensor()), "undefined");
}

TEST(Print, WideRangesAndNonFiniteValuesArePrinted) {
  EXPECT_EQ(to_string(tensor({1e-6, 2.0})), "[1.0000e-06, 2.0000e+00]\nfloat32 [2] on cpu");
  EXPECT_EQ(to_string(tensor({3e9, 2.0})), "[3.0000e+09, 2.0000e+00]\nfloat32 [2] on cpu");
  EXPECT_EQ(to_string(tensor({NAN, -INFINITY, 0.5})), "[   nan,   -inf, 0.5000]\nfloat32 [3] on cpu");
  EXPECT_EQ(to_string(full({2}, 0.5, {kBFloat16})), "[0.5000, 0.5000]\nbfloat16 [2] on cpu");
}

TEST(Print, TensorsAboveThousandElementsAreAbbreviated) {
  EXPECT_EQ(to_string(arange(0, 1001)), "[   0,    1,    2, ...,  998,  999, 1000]\nint64 [1001] on cpu");
  EXPECT_EQ(to_string(arange(0, 1000)).find("..."), std::string::npos);
  const Tensor matrix = make_view(arange(0, 1200).storage(), kInt64, {300, 4}, {4, 1}, 0);
  EXPECT_EQ(to_string(matrix),
            "[[   0,    1,    2,    3],\n"
            " [   4,    5,    6,    7],\n"
            " [   8,    9,   10,   11],\n"
            " ...,\n"
            " [1188, 1189, 1190, 1191],\n"
            " [1192, 1193, 1194, 1195],\n"
            " [1196, 1197, 1198, 1199]]\n"
            "int64 [300, 4] on cpu");
}

TEST(Print, ViewsOnOtherDevicesArePrinted) {
  set_cpu_device_count(2);
  const Tensor t = from_vector<float>({1, 2, 3, 4, 5, 6}, {2, 3}, {kFloat32, Device("cpu:1")});
  std::ostringstream out;
  out << make_view(t.storage(), kFloat32, {3, 2}, {1, 3}, 0);
  EXPECT_EQ(out.str(), "[[1., 4.],\n [2., 5.],\n [3., 6.]]\nfloat32 [3, 2] on cpu:1");
}

}}  // namespace tandem
