// Point-to-point messages with CUDA tensors, staged through host memory: tags, order and overlap as with CPU tensors.
#include <gtest/gtest.h>

#include <vector>

#include <tandem/distributed/process_group.h>
#include <tandem/ops/elementwise.h>
#include <tandem/ops/view.h>
#include <tandem/tests/distributed/gpu_of_rank.h>

namespace tandem { inline namespace v0 { namespace distributed { namespace {

using Floats = std::vector<float>;

// Tags in another order than the sends, a reply before an earlier collective, strides, a CPU tensor on one side.
TEST(GpuMessages, TagsOrderAndStridesArePreserved) {
  run_on_gpus(2, [](ProcessGroup& group) {
    const int other = 1 - group.rank();
    const Device device = Device::cuda(group.rank());
    group.all_reduce(on_gpu(group, 1));  // the first collective blocks until all ranks have called it
    if (group.rank() == 0) {
      const Tensor x =
          mul(from_vector<float>({1, 2, 3, 4, 5, 6}, {2, 3}).to(device), Scalar(1));  // not complete when it is sent
      const Work first = group.isend(x.t(), other, 1);
      const Work second = group.isend(mul(x, Scalar(10)), other, 2);
      const Tensor sum = on_gpu(group, 1);
      const Work reduced = group.all_reduce_async(sum);
      const Tensor reply = on_gpu(group, 0, 3);
      group.recv(reply, other, 7);
      EXPECT_EQ(reply.to_vector<float>(), Floats({5, 6, 7}));
      for (const Work& work : {first, second, reduced}) work.wait();
      EXPECT_EQ(sum.to_vector<float>(), Floats(4, 3));
    } else {
      const Tensor ten = empty({2, 3});  // on the CPU
      group.recv(ten, other, 2);
      EXPECT_EQ(ten.to_vector<float>(), Floats({10, 20, 30, 40, 50, 60}));
      const Tensor x = empty({2, 3}, {kFloat32, device});
      group.recv(x.t(), other, 1);
      EXPECT_EQ(x.to_vector<float>(), Floats({1, 2, 3, 4, 5, 6}));
      group.send(from_vector<float>({5, 6, 7}, {3}), other, 7);
      const Tensor sum = on_gpu(group, 2);
      group.all_reduce(sum);
      EXPECT_EQ(sum.to_vector<float>(), Floats(4, 3));
    }
  });
}

// A message is written to a tensor only after pending reads of the current stream.
TEST(GpuMessages, ReceiveWaitsForPendingReadsOfTensor) {
  run_on_gpus(2, [](ProcessGroup& group) {
    const Tensor x = on_gpu(group, group.rank() + 1);
    const Tensor before = add(x, Scalar(0));
    if (group.rank() == 0) {
      group.send(x, 1);
    } else {
      group.irecv(x, 0).wait();
      EXPECT_EQ(before.to_vector<float>(), Floats(4, 2));
      EXPECT_EQ(x.to_vector<float>(), Floats(4, 1));
    }
  });
}

// While the first collective waits for the other rank, a continuation sends the message that this rank waits for.
TEST(GpuMessages, ContinuationRunsWhileFirstCollectiveWaits) {
  run_on_gpus(2, [](ProcessGroup& group) {
    const Tensor number = full({1}, group.rank());
    if (group.rank() == 0) {
      const Work came = group.irecv(number, 1);
      came.then([&group, number] { const Work reply = group.isend(number, 1, 5); });
      group.all_reduce(on_gpu(group, 1));
    } else {
      group.send(number, 0);
      group.recv(number, 0, 5);
      group.all_reduce(on_gpu(group, 1));
    }
    EXPECT_EQ(number.item(), 1);
  });
}

}}}}  // namespace tandem::v0::distributed
