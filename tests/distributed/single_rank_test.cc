// A group of one rank on the device under test: results are copies of the inputs.
#include <tandem/distributed/process_group.h>

#include <gtest/gtest.h>

#include <functional>
#include <memory>
#include <vector>

#include <tandem/tensor/factories.h>
#include <tandem/tensor/primitives.h>
#include <tandem/tests/support/error_text.h>
#include <tandem/tests/support/op_case.h>

namespace tandem { inline namespace v0 { namespace distributed { namespace {

using testing::error_text;
using testing::test_device;
using Floats = std::vector<float>;

/// On the device under test.
Tensor on_device(const Floats& values, const Shape& shape) {
  const Tensor out = empty(shape, {kFloat32, test_device()});
  primitives::copy(from_vector(values, shape), out);
  return out;
}

Tensor unwritten(const Shape& shape) {
  const Tensor out = empty(shape, {kFloat32, test_device()});
  primitives::fill(out, -1);
  return out;
}

/// A transposed view, so each collective makes a contiguous copy first.
Tensor transposed(const Tensor& x) {
  return make_view(x.storage(), x.dtype(), {x.size(1), x.size(0)}, {1, x.size(1)}, 0);
}

class SingleRank : public ::testing::Test {
 protected:
  const std::shared_ptr<ProcessGroup> group_ = ProcessGroup::create({.store = nullptr, .rank = 0, .world_size = 1});
  ProcessGroup& g_ = *group_;
  const Floats values_ = {1, -2, 3, 4, 5, 6};
  const Tensor x_ = on_device(values_, {2, 3});
};

TEST_F(SingleRank, InPlaceCollectivesAreNoOps) {
  for (const ReduceOp op : {ReduceOp::kSum, ReduceOp::kAvg, ReduceOp::kProduct, ReduceOp::kMin, ReduceOp::kMax}) {
    g_.all_reduce(x_, op);
    g_.reduce(x_, 0, op);
    g_.all_reduce_async(x_, op).wait();
    g_.all_reduce(transposed(x_), op);
  }
  g_.broadcast(x_, 0);
  g_.broadcast_async(transposed(x_), 0).wait();
  g_.barrier();
  EXPECT_EQ(x_.to_vector<float>(), values_);
  EXPECT_EQ(x_.device(), test_device());
}

TEST_F(SingleRank, OutputsAreCopiesOfInputs) {
  const Shape parts = {1, 2, 3};
  const auto gives = [&](const Shape& shape, const std::function<void(const Tensor&)>& f) {
    const Tensor out = unwritten(shape);
    f(out);
    EXPECT_EQ(out.to_vector<float>(), values_);
    EXPECT_GT(out.version(), 0u);
  };
  const Tensor input = make_view(x_.storage(), kFloat32, parts, row_major_strides(parts), 0);
  gives({2, 3}, [&](const Tensor& out) { g_.all_reduce(out, x_); });
  gives({2, 3}, [&](const Tensor& out) { g_.all_reduce_async(out, x_, ReduceOp::kAvg).wait(); });
  gives(parts, [&](const Tensor& out) { g_.gather(out, x_, 0); });
  gives({2, 3}, [&](const Tensor& out) { g_.gather(std::vector{out}, x_, 0); });
  gives(parts, [&](const Tensor& out) { g_.all_gather(out, x_); });
  gives({2, 3}, [&](const Tensor& out) { g_.all_gather_async(std::vector{out}, x_).wait(); });
  gives({2, 3}, [&](const Tensor& out) { g_.scatter(out, input, 0); });
  gives({2, 3}, [&](const Tensor& out) { g_.scatter_async(out, std::vector{x_}, 0).wait(); });
  gives({2, 3}, [&](const Tensor& out) { g_.reduce_scatter(out, input, ReduceOp::kMax); });
  gives({2, 3}, [&](const Tensor& out) { g_.reduce_scatter(out, std::vector{x_}); });
  gives(parts, [&](const Tensor& out) { g_.all_to_all(out, input); });
  gives({2, 3}, [&](const Tensor& out) { g_.all_to_all(std::vector{out}, std::vector{x_}); });
  gives({2, 3}, [&](const Tensor& out) { g_.all_to_all(out, x_, {2}, {2}); });
  gives(parts, [&](const Tensor& out) { g_.all_gather_coalesced({out}, {x_}); });
  gives({2, 3}, [&](const Tensor& out) { g_.reduce_scatter_coalesced_async({out}, {input}).wait(); });
}

TEST_F(SingleRank, StridedTensorsGetCorrectValues) {
  const Tensor out = unwritten({2, 3});
  g_.all_reduce(transposed(out), transposed(x_));
  EXPECT_EQ(out.to_vector<float>(), values_);
  const Tensor packed = unwritten({3, 2});
  g_.all_reduce(packed, transposed(x_));
  EXPECT_EQ(packed.to_vector<float>(), (Floats{1, 4, -2, 5, 3, 6}));
}

TEST_F(SingleRank, CoalescedCallsAndMeansKeepValues) {
  const Tensor other = on_device({7, 8}, {2});
  g_.all_reduce_coalesced({x_, other}, ReduceOp::kAvg);
  g_.broadcast_coalesced_async({x_, other}, 0).wait();
  EXPECT_EQ(x_.to_vector<float>(), values_);
  EXPECT_EQ(other.to_vector<float>(), (Floats{7, 8}));
  const Tensor mean = g_.reduce_mean(x_);
  EXPECT_EQ(mean.to_vector<float>(), values_);
  EXPECT_EQ(mean.device(), test_device());
  g_.all_reduce_coalesced({});
}

TEST_F(SingleRank, MixedDtypeAndEmptyTensorsAreAccepted) {
  const Tensor whole = empty({2}, {kInt64, test_device()}), nothing = unwritten({0, 3});
  primitives::fill(whole, 5);
  g_.all_reduce_coalesced({x_, whole, nothing});
  g_.broadcast_coalesced_async({x_, whole, nothing}, 0).wait();
  g_.all_reduce(nothing);
  const Tensor out = unwritten({1, 0, 3});
  g_.all_gather(out, nothing);
  EXPECT_EQ(x_.to_vector<float>(), values_);
  EXPECT_EQ(whole.to_vector<int64_t>(), (std::vector<int64_t>{5, 5}));
}

TEST_F(SingleRank, AbortedGroupRejectsCollectives) {
  g_.abort("enough");
  for (const auto& call : {std::function<void()>([&] { g_.all_reduce(x_); }),
                           std::function<void()>([&] { g_.all_reduce_async(x_).wait(); })}) {
    EXPECT_NE(error_text<CommError>(call).find("enough"), std::string::npos);
  }
}

TEST_F(SingleRank, InvalidArgumentsAreRejected) {
  const Device there = test_device();
  set_cpu_device_count(2);
  const Tensor elsewhere = zeros({2, 3}, {kFloat32, Device("cpu:1")});
  EXPECT_EQ(error_text<DeviceError>([&] { g_.all_reduce(elsewhere, x_); }),
            str("all_reduce: devices differ\n  output  float32 [2, 3] on ", elsewhere.device(),
                "\n  input   float32 [2, 3] on ", there));
  EXPECT_EQ(error_text<DeviceError>([&] {
              g_.broadcast_coalesced({x_, elsewhere}, 0);
            }),
            str("broadcast_coalesced: devices differ\n  tensors[1]  float32 [2, 3] on ", elsewhere.device(),
                "\n  tensors[0]  float32 [2, 3] on ", there));
  EXPECT_EQ(error_text<ShapeError>([&] { g_.all_gather(x_, x_); }),
            str("all_gather: output must be [1, 2, 3]\n  output  float32 [2, 3] on ", there,
                "\n  input   float32 [2, 3] on ", there));
}

}}}}  // namespace tandem::v0::distributed
