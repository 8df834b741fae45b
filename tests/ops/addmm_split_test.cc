#include <tandem/base/trace.h>
#include <tandem/tests/ops/four_devices.h>

namespace tandem::testing { namespace {

using AddmmSplit = FourDevices;

struct Parts {
  std::vector<Tensor> mat1, mat2;
};

Parts split_over(const Tensor& mat1, const Tensor& mat2, SplitDim split, const std::vector<Device>& devices) {
  switch (split) {
    case SplitDim::kRows: return {comm::scatter(mat1, devices, 0), comm::broadcast(mat2, devices)};
    case SplitDim::kColumns: return {comm::broadcast(mat1, devices), comm::scatter(mat2, devices, 1)};
    case SplitDim::kInner: return {comm::scatter(mat1, devices, 1), comm::scatter(mat2, devices, 0)};
  }
  return {};
}

constexpr SplitDim kSplits[] = {SplitDim::kRows, SplitDim::kColumns, SplitDim::kInner};

TEST_F(AddmmSplit, PlainAddmmAcrossDevicesNamesAllOperands) {
  const Tensor input = zeros({1000}), mat1 = zeros({1000, 1000}), mat2 = zeros({1000, 1000}, {kFloat32, cpu(1)});
  EXPECT_ERROR(DeviceError, addmm(input, mat1, mat2),
               "addmm: operands are on different devices\n"
               "  input  cpu    float32 [1000]\n"
               "  mat1   cpu    float32 [1000, 1000]\n"
               "  mat2   cpu:1  float32 [1000, 1000]  <- differs\n"
               "  move it with mat2.to(cpu), or move the module with model.to(cpu)");
  EXPECT_ERROR(DeviceError, addmm(input, mat1.to(cpu(1)), mat2),
               "addmm: operands are on different devices\n"
               "  input  cpu    float32 [1000]        <- differs\n"
               "  mat1   cpu:1  float32 [1000, 1000]\n"
               "  mat2   cpu:1  float32 [1000, 1000]\n"
               "  move it with input.to(cpu:1), or move the module with model.to(cpu:1)");
  for (const int i : {0, 1}) {  // one operand on a GPU, and two operands on different GPUs
    const std::vector<Tensor> operands = {input, i == 0 ? mat1 : mat1.to(on(i)), mat2.to(on(3))};
    EXPECT_ERROR(DeviceError, addmm(operands[0], operands[1], operands[2]),
                 different_devices_text("addmm", {"input", "mat1", "mat2"}, operands));
  }
}

TEST_F(AddmmSplit, ExplicitMoveGivesEqualBitsOnEitherDevice) {
  const Tensor input = random_on(0, {33}, 1), mat1 = random_on(0, {31, 65}, 2), mat2 = random_on(1, {65, 33}, 3);
  const Tensor here = addmm(input, mat1, mat2.to(on(0)), 0.5, 2);
  const Tensor there = addmm(input.to(on(1)), mat1.to(on(1)), mat2, 0.5, 2);
  EXPECT_TRUE(is_copy(there, here, 1));
}

TEST_F(AddmmSplit, EverySplitDimGivesTheProduct) {
  for (const DType dtype : {kFloat64, kFloat32, kFloat16, kBFloat16}) {
    for (const auto& [m, k, n] :
         {std::array<int64_t, 3>{1, 1, 1}, {31, 33, 7}, {2, 130, 3}, {64, 64, 64}, {0, 5, 3}, {5, 0, 3}}) {
      for (const Shape& input_shape : {Shape{m, n}, Shape{n}, Shape{m, 1}, Shape{}}) {
        const Tensor input = random_on(2, input_shape, 4, dtype), mat1 = random_on(0, {m, k}, 5, dtype),
                     mat2 = random_on(1, {k, n}, 6, dtype);
        const Dense want =
            dense(addmm(input.cpu().to(kFloat64), mat1.cpu().to(kFloat64), mat2.cpu().to(kFloat64), 0.5, 2));
        for (const SplitDim split : kSplits) {
          for (const int count : {1, 2, 4}) {
            SCOPED_TRACE(str(dtype, " ", m, "x", k, "x", n, " split ", static_cast<int>(split), " over ", count));
            std::vector<Device> devices;
            for (int i = 0; i < count; ++i) devices.push_back(on(3 - i));
            const Parts parts = split_over(mat1, mat2, split, devices);
            const Tensor out = addmm_split(input, parts.mat1, parts.mat2, split, on(2), 0.5, 2);
            EXPECT_EQ(out.device(), on(2));
            EXPECT_EQ(out.dtype(), dtype);
            // The product, its scaling and its sum are rounded separately, unlike in addmm.
            EXPECT_TRUE(close(out, want, 16 * epsilon(dtype) * std::sqrt(static_cast<double>(k + 1))));
          }
        }
      }
    }
  }
}

TEST_F(AddmmSplit, BetaZeroDoesNotReadInput) {
  const TensorOptions options = {kFloat32, on(0)};
  const Tensor input = full({2, 2}, NAN, options), a = ones({2, 2}, options), b = ones({2, 2}, options);
  EXPECT_EQ(addmm_split(input, {a}, {b}, SplitDim::kInner, on(0), 0).to_vector<double>(), std::vector<double>(4, 2));
}

TEST_F(AddmmSplit, ProductsRunInThreadsWithoutMovingOperands) {
  const std::vector<Device> devices = {on(1), on(2)};
  const Parts parts = split_over(random_on(0, {64, 256}, 7), random_on(0, {256, 32}, 8), SplitDim::kInner, devices);
  const Tensor input = random_on(3, {32}, 9);
  const int64_t before = taken(3);
  reset_peak_memory(on(3));
  start_trace();
  const Tensor out = addmm_split(input, parts.mat1, parts.mat2, SplitDim::kInner, on(3));
  std::multiset<int> threads;
  for (const TraceEvent& event : stop_trace()) {
    if (event.name == "matmul") threads.insert(event.thread);
  }
  EXPECT_EQ(threads, (std::multiset<int>{kRankThread, kFirstConcurrentThread + 1})) << "each product has its thread";
  EXPECT_EQ(most_taken(3) - before, block_bytes(64 * 32 * 4)) << "the result alone";
}

TEST_F(AddmmSplit, InsufficientMemoryIsRejectedBeforeComputing) {
  const Parts parts =
      split_over(random_on(0, {64, 256}, 7), random_on(0, {256, 32}, 8), SplitDim::kInner, {on(1), on(2)});
  const Tensor input = zeros({32}, {kFloat32, on(3)});
  for (const int tight : {2, 3}) {  // a device of the operands; the device of the result
    set_memory_limit(on(tight), memory_stats(on(tight)).allocated + 4096);
    start_trace();
    EXPECT_EQ(error_text<OutOfMemory>([&] {
                static_cast<void>(addmm_split(input, parts.mat1, parts.mat2, SplitDim::kInner, on(3)));
              }).find("addmm_split: too little memory, nothing was moved\n"),
              0u);
    for (const TraceEvent& event : stop_trace()) EXPECT_NE(event.name, "matmul");
    set_memory_limit(on(tight), 48 << 20);
  }
}

TEST_F(AddmmSplit, GradientsMatchNumericalDerivatives) {
  for (const SplitDim split : kSplits) {
    SCOPED_TRACE(static_cast<int>(split));
    const auto function = [&](const std::vector<Tensor>& in) {
      const Parts parts = split_over(in[1], in[2], split, {on(1), on(2), on(0)});
      return addmm_split(in[0], parts.mat1, parts.mat2, split, on(3), 0.5, 2);
    };
    std::vector<Tensor> inputs = {random_on(3, {3}, 10, kFloat64), random_on(0, {4, 5}, 11, kFloat64),
                                  random_on(1, {5, 3}, 12, kFloat64)};
    for (Tensor& input : inputs) input.requires_grad_();
    EXPECT_NO_THROW(autograd::gradcheck(function, inputs));
    EXPECT_NO_THROW(autograd::gradgradcheck(function, inputs));
  }
}

TEST_F(AddmmSplit, InvalidArgumentsAreNamedInErrors) {
  const Tensor a = ones({2, 3}), b = ones({3, 4}), input = ones({4});
  const auto text = [&](const Tensor& in, const std::vector<Tensor>& x, const std::vector<Tensor>& y, SplitDim split) {
    try {
      static_cast<void>(addmm_split(in, x, y, split, cpu(0)));
    } catch (const Error& error) {
      return std::string(error.what());
    }
    return std::string("nothing");
  };
  EXPECT_EQ(text(input, {a, a}, {b}, SplitDim::kRows),
            "addmm_split: 2 parts of mat1 and 1 of mat2, must be equal and at least 1");
  EXPECT_EQ(text(input, {}, {}, SplitDim::kRows),
            "addmm_split: 0 parts of mat1 and 0 of mat2, must be equal and at least 1");
  EXPECT_EQ(text(input, {a, a}, {b, b.to(cpu(1))}, SplitDim::kRows),
            "addmm_split: operands are on different devices\n"
            "  mat1[1]  cpu    float32 [2, 3]\n"
            "  mat2[1]  cpu:1  float32 [3, 4]  <- differs\n"
            "  move it with mat2[1].to(cpu), or move the module with model.to(cpu)");
  EXPECT_EQ(text(input.to(cpu(1)), {a}, {b}, SplitDim::kRows),
            "addmm_split: input must be on the result's device, cpu\n"
            "  input  cpu:1  float32 [4]\n"
            "  move it with input.to(cpu)");
  EXPECT_EQ(text(input, {a}, {ones({2, 4})}, SplitDim::kRows),
            "addmm_split: inner sizes 3 and 2 differ\n"
            "  mat1[0]  cpu  float32 [2, 3]\n"
            "  mat2[0]  cpu  float32 [2, 4]");
  EXPECT_EQ(text(input, {a, ones({1, 3})}, {b, b}, SplitDim::kColumns),
            "addmm_split: parts differ in a dimension that is not split\n"
            "  mat1[0]  cpu  float32 [2, 3]\n"
            "  mat2[0]  cpu  float32 [3, 4]\n"
            "  mat1[1]  cpu  float32 [1, 3]\n"
            "  mat2[1]  cpu  float32 [3, 4]");
  EXPECT_EQ(text(ones({3}), {a}, {b}, SplitDim::kRows),
            "addmm_split: input does not broadcast to [2, 4]\n"
            "  input  cpu  float32 [3]");
  EXPECT_EQ(text(ones({4}, {kFloat64}), {a}, {b}, SplitDim::kRows),
            "addmm_split: operands have different dtypes\n"
            "  input    cpu  float64 [4]\n"
            "  mat1[0]  cpu  float32 [2, 3]  <- differs\n"
            "  mat2[0]  cpu  float32 [3, 4]  <- differs");
  EXPECT_EQ(text(input, {Tensor()}, {b}, SplitDim::kRows),
            "addmm_split: mat1[0] is undefined\n"
            "  mat1[0]  undefined\n"
            "  mat2[0]  cpu        float32 [3, 4]");
  EXPECT_EQ(text(Tensor(), {a}, {b}, SplitDim::kRows), "addmm_split: input is undefined\n  input  undefined");
}

}}  // namespace tandem::testing
