// Point-to-point messages with CUDA tensors: tags, order and overlap as with CPU tensors.
//
// Each rank has its own GPU, except in GpuMessageProcesses, where ranks may share one; GpuMessagesOf4 needs four.
// tools/gpu_checks selects tests by these names.
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <chrono>
#include <functional>
#include <optional>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include <tandem/distributed/launch.h>
#include <tandem/distributed/process_group.h>
#include <tandem/ops/elementwise.h>
#include <tandem/ops/view.h>
#include <tandem/tensor/cuda_graph.h>
#include <tandem/tests/distributed/gpu_of_rank.h>
#include <tandem/tests/distributed/process_ranks.h>
#include <tandem/tests/distributed/stall_cuda.h>
#include <tandem/tests/support/error_text.h>

namespace tandem { inline namespace v0 { namespace distributed { namespace {

using testing::error_text;
using Floats = std::vector<float>;

#ifdef TANDEM_CUDA_EMULATED
int64_t count_calls(const char* name) {
  const auto calls = cuda_emulation::library_calls();
  return std::count(calls.begin(), calls.end(), name);
}
#endif

Tensor receiver_of(ProcessGroup& group, Shape shape, DType dtype = kFloat32) {
  return zeros(shape, {dtype, Device::cuda(group.rank())});
}

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

// --- values ---

TEST(GpuMessages, AllDTypesAndShapesArrive) {
  const DType dtypes[] = {kFloat32, kFloat64, kFloat16, kBFloat16, kInt64, kInt32, kInt16, kInt8, kUInt8, kBool};
  run_on_gpus(2, [&](ProcessGroup& group) {
    for (const DType dtype : dtypes) {
      for (const Shape& shape : {Shape{}, Shape{5}, Shape{3, 7}, Shape{0, 4}, Shape{1 << 12}}) {
        const int64_t n = num_elements(shape);
        const Tensor values = arange(0, n).to(dtype).view(shape);
        if (group.rank() == 0) {
          group.send(values.to(Device::cuda(0)), 1);
        } else {
          const Tensor x = receiver_of(group, shape, dtype);
          group.recv(x, 0);
          EXPECT_TRUE(same_bytes(x.cpu(), values)) << dtype << " " << shape;
        }
      }
    }
  });
}

TEST(GpuMessages, LargeMessageArrives) {
  constexpr int64_t kCount = (5 << 20) + 3;
  run_on_gpus(2, [](ProcessGroup& group) {
    const Tensor values = arange(0, kCount).to(kInt32);
    const Tensor x = group.rank() == 0 ? values.to(Device::cuda(0)) : receiver_of(group, {kCount}, kInt32);
    group.rank() == 0 ? group.send(x, 1) : group.recv(x, 0);
    EXPECT_TRUE(same_bytes(x.cpu(), values));
  });
}

TEST(GpuMessages, ReceiveCountsAsInPlaceChange) {
  run_on_gpus(2, [](ProcessGroup& group) {
    const Tensor x = on_gpu(group, group.rank());
    const uint32_t before = x.storage()->version();
    group.rank() == 0 ? group.send(x, 1) : group.recv(x, 0);
    EXPECT_EQ(x.storage()->version() - before, group.rank() == 0 ? 0U : 1U);
  });
}

#ifdef TANDEM_CUDA_EMULATED
// No copy and no wait of the host: only NCCL touches the data.
TEST(GpuMessages, DirectMessagesDoNotUseHostMemory) {
  std::atomic<int> num_measured{0};
  run_on_gpus(2, [&](ProcessGroup& group) {
    const Tensor x = on_gpu(group, group.rank() + 1, 100000);
    const auto exchange = [&] { group.rank() == 0 ? group.send(x, 1) : group.recv(x, 0); };
    exchange();  // connects
    cuda::synchronize(x.device());
    group.barrier();
    if (group.rank() == 0) cuda_emulation::forget_library_calls();
    const auto before = cuda_emulation::call_counts();
    group.barrier();
    for (int i = 0; i < 3; ++i) exchange();
    group.barrier();
    const auto after = cuda_emulation::call_counts();
    EXPECT_EQ(after.synchronizations, before.synchronizations);
    EXPECT_EQ(after.memory_tasks, before.memory_tasks + 2 * 6);  // two per NCCL call of the emulation
    EXPECT_EQ(count_calls("ncclSend"), 3);
    EXPECT_EQ(count_calls("ncclRecv"), 3);
    group.barrier();
    EXPECT_EQ(x.to_vector<float>(), Floats(100000, 1));
    ++num_measured;
  });
  EXPECT_EQ(num_measured, 2);
}

TEST(GpuMessages, BatchIsOneNcclCallPerPeer) {
  constexpr int kCount = 3;
  bool was_one = false;
  for (int attempt = 0; attempt < 3 && !was_one; ++attempt) {  // messages of a batch wait only briefly for each other
    std::atomic<int64_t> calls{0};
    run_on_gpus(2, [&](ProcessGroup& group) {
      const int other = 1 - group.rank();
      const auto exchange = [&] {
        std::vector<P2POp> ops;
        for (int tag = 0; tag < kCount; ++tag) {
          ops.push_back({P2POp::Kind::kSend, on_gpu(group, 10 * group.rank() + tag), other, tag});
          ops.push_back({P2POp::Kind::kRecv, on_gpu(group, -1), other, tag});
        }
        if (group.rank() == 1) std::reverse(ops.begin(), ops.end());
        for (const Work& work : group.batch_isend_irecv(ops)) work.wait();
        for (const P2POp& op : ops) {
          const int from = op.kind == P2POp::Kind::kSend ? group.rank() : other;
          EXPECT_EQ(op.tensor.to_vector<float>(), Floats(4, static_cast<float>(10 * from + op.tag)));
        }
      };
      exchange();
      group.barrier();
      if (group.rank() == 0) cuda_emulation::forget_library_calls();
      group.barrier();
      exchange();
      group.barrier();
      calls = count_calls("ncclGroupEnd");
      group.barrier();
    });
    was_one = calls == 2;
  }
  EXPECT_TRUE(was_one);
}

TEST(GpuMessages, CommunicatorsAreReleased) {
  cuda_emulation::forget_library_calls();
  for (int i = 0; i < 20; ++i) {  // more than a GPU has blocks for messages
    run_on_gpus(2, [](ProcessGroup& group) {
      const Tensor x = on_gpu(group, group.rank());
      group.rank() == 0 ? group.send(x, 1) : group.recv(x, 0);
      EXPECT_EQ(x.to_vector<float>(), Floats(4, 0));
    });
  }
  EXPECT_EQ(count_calls("ncclCommInitRankConfig"), 40);
  EXPECT_EQ(count_calls("ncclCommDestroy"), 40);
  EXPECT_EQ(count_calls("ncclCommAbort"), 0);
}
#endif

// --- order ---

TEST(GpuMessages, TagsMayBeReceivedInAnyOrder) {
  constexpr int kCount = 12;
  run_on_gpus(2, [](ProcessGroup& group) {
    std::vector<Tensor> tensors;
    std::vector<Work> works;
    for (int i = 0; i < kCount; ++i) {
      const int tag = group.rank() == 0 ? i : (i * 5 + 3) % kCount;
      tensors.push_back(on_gpu(group, group.rank() == 0 ? tag : -1, 50 + tag));
      works.push_back(group.rank() == 0 ? group.isend(tensors.back(), 1, tag) : group.irecv(tensors.back(), 0, tag));
      if (group.rank() == 1 && i % 3 == 0) works.back().wait();
    }
    for (const Work& work : works) work.wait();
    for (const Tensor& tensor : tensors) {
      const auto tag = static_cast<float>(tensor.numel() - 50);
      EXPECT_EQ(tensor.to_vector<float>(), Floats(static_cast<size_t>(tensor.numel()), tag));
    }
  });
}

TEST(GpuMessages, MessagesOfOneTagKeepTheirOrder) {
  constexpr int kCount = 40;
  run_on_gpus(2, [](ProcessGroup& group) {
    std::vector<Tensor> tensors;
    std::vector<Work> works;
    for (int i = 0; i < kCount; ++i) {
      tensors.push_back(on_gpu(group, group.rank() == 0 ? i : -1));
      works.push_back(group.rank() == 0 ? group.isend(tensors.back(), 1) : group.irecv(tensors.back(), 0));
    }
    for (const Work& work : works) work.wait();
    for (int i = 0; i < kCount; ++i) {
      EXPECT_EQ(tensors[static_cast<size_t>(i)].to_vector<float>(), Floats(4, static_cast<float>(i)));
    }
  });
}

// Both ranks send first, in NCCL a deadlock.
TEST(GpuMessages, CrossingSendsComplete) {
  run_on_gpus(2, [](ProcessGroup& group) {
    const int other = 1 - group.rank();
    for (int round = 0; round < 5; ++round) {
      const Tensor sent = on_gpu(group, group.rank() + round, 100000);
      const Work first = group.isend(sent, other), second = group.isend(sent, other, 1);
      const Tensor received = on_gpu(group, -1, 100000);
      group.recv(received, other, 1);
      EXPECT_EQ(received.to_vector<float>(), Floats(100000, static_cast<float>(other + round)));
      group.recv(received, other);
      first.wait();
      second.wait();
    }
  });
}

TEST(GpuMessagesOf4, RingCompletesInAnyOrder) {
  run_on_gpus(4, [](ProcessGroup& group) {
    const int next = (group.rank() + 1) % 4, previous = (group.rank() + 3) % 4;
    for (int round = 0; round < 4; ++round) {
      const Tensor sent = on_gpu(group, 10 * round + group.rank()), received = on_gpu(group, -1);
      if (group.rank() % 2 == round % 2) {
        const Work work = group.isend(sent, next);
        group.recv(received, previous);
        work.wait();
      } else {
        const Work work = group.irecv(received, previous);
        group.send(sent, next);
        work.wait();
      }
      EXPECT_EQ(received.to_vector<float>(), Floats(4, static_cast<float>(10 * round + previous)));
    }
  });
}

// The emulated GPU has room for two pairs: the messages of the third one are staged.
TEST(GpuMessagesOf4, AllPairsExchangeConcurrently) {
  run_on_gpus(4, [](ProcessGroup& group) {
    for (int round = 0; round < 3; ++round) {
      std::vector<P2POp> ops;
      for (int i = 1; i < 4; ++i) {
        const int peer = (group.rank() + i * (round + 1)) % 4;
        if (peer == group.rank()) continue;
        ops.push_back({P2POp::Kind::kSend, on_gpu(group, 10 * group.rank() + peer, 3000), peer, round});
        ops.push_back({P2POp::Kind::kRecv, on_gpu(group, -1, 3000), peer, round});
      }
      std::vector<Work> works = group.batch_isend_irecv(ops);
      std::reverse(works.begin(), works.end());
      for (const Work& work : works) work.wait();
      for (const P2POp& op : ops) {
        const int value = op.kind == P2POp::Kind::kSend ? 10 * group.rank() + op.peer : 10 * op.peer + group.rank();
        EXPECT_EQ(op.tensor.to_vector<float>(), Floats(3000, static_cast<float>(value)));
      }
    }
  });
}

TEST(GpuMessagesOf4, MessagesAndCollectivesInterleave) {
  run_on_gpus(4, [](ProcessGroup& group) {
    const int rank = group.rank(), next = (rank + 1) % 4, previous = (rank + 3) % 4;
    for (int round = 0; round < 4; ++round) {
      const Tensor sum = on_gpu(group, rank, 5000), sent = on_gpu(group, rank, 2000),
                   received = on_gpu(group, -1, 2000);
      Work reduced, sends, receives;
      const std::array<std::function<void()>, 3> calls = {[&] { reduced = group.all_reduce_async(sum); },
                                                          [&] { sends = group.isend(sent, next); },
                                                          [&] { receives = group.irecv(received, previous); }};
      for (int i = 0; i < 3; ++i) calls[static_cast<size_t>((rank + round + i) % 3)]();
      (rank % 2 == 0 ? reduced : receives).wait();
      EXPECT_EQ(received.shape(), Shape({2000}));
      for (const Work& work : {reduced, sends, receives}) work.wait();
      EXPECT_EQ(sum.to_vector<float>(), Floats(5000, 6));
      EXPECT_EQ(received.to_vector<float>(), Floats(2000, static_cast<float>(previous)));
    }
  });
}

// The values of a message may depend on a collective, and those of a collective on a message.
TEST(GpuMessages, BlockingCallsAlternateWithCollectives) {
  run_on_gpus(2, [](ProcessGroup& group) {
    Tensor x = on_gpu(group, group.rank() + 1);
    float a = 1, b = 2;
    for (int round = 0; round < 5; ++round) {
      group.rank() == 0 ? group.send(x, 1) : group.recv(x, 0);
      x = add(x, Scalar(group.rank()));
      group.all_reduce(x);
      b = a + 1;
      a = b = a + b;
    }
    EXPECT_EQ(x.to_vector<float>(), Floats(4, a));
  });
}

// Rank 1 does not batch: it receives the first message before it sends the second.
TEST(GpuMessages, BatchOnOneRankOnlyCompletes) {
  run_on_gpus(2, [](ProcessGroup& group) {
    for (int first = 0; first < 2; ++first) {
      const Tensor sent = on_gpu(group, group.rank() + 5), received = on_gpu(group, -1);
      const int other = 1 - group.rank();
      if (group.rank() == first) {
        const auto works =
            group.batch_isend_irecv({{P2POp::Kind::kRecv, received, other, 1}, {P2POp::Kind::kSend, sent, other, 0}});
        for (const Work& work : works) work.wait();
      } else {
        group.recv(received, other);
        group.send(sent, other, 1);
      }
      EXPECT_EQ(received.to_vector<float>(), Floats(4, static_cast<float>(other + 5)));
    }
  });
}

// --- streams ---

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

// Work enqueued after wait() sees the received tensor, and may overwrite the sent one.
TEST(GpuMessages, WaitOrdersCurrentStreamAfterMessage) {
  run_on_gpus(2, [](ProcessGroup& group) {
    Tensor x = on_gpu(group, 3);
    for (int round = 0; round < 5; ++round) {
      if (group.rank() == 0) {
        x.mul_(Scalar(2));
        group.isend(x, 1).wait();
        x.mul_(Scalar(0.5)).mul_(Scalar(2));
      } else {
        const Tensor y = on_gpu(group, -1);
        group.irecv(y, 0).wait();
        x = add(y, Scalar(0));
      }
    }
    EXPECT_EQ(x.to_vector<float>(), Floats(4, 96));
  });
}

// wait() returns when both ranks have called, although the sender's data is not complete.
TEST(GpuMessages, WaitDoesNotBlockForTheTransfer) {
  run_on_gpus(2, [](ProcessGroup& group) {
    connect_by_message(group);
    std::optional<Stall> stall;
    if (group.rank() == 0) stall.emplace(cuda::current_stream(Device::cuda(0)));
    const Tensor y = on_gpu(group, group.rank() + 1);
    group.rank() == 0 ? group.send(y, 1) : group.recv(y, 0);
    group.barrier();
    stall.reset();
    group.barrier();
    EXPECT_EQ(y.to_vector<float>(), Floats(4, 1));
  });
}

// The memory of a released tensor is not reused before the message has been transferred.
TEST(GpuMessages, DroppedTensorsLiveUntilMessageEnds) {
  run_on_gpus(2, [](ProcessGroup& group) {
    const Tensor x = on_gpu(group, 0);
    connect_by_message(group);
    std::optional<Stall> stall;
    if (group.rank() == 0) {
      Tensor sent = on_gpu(group, 7);
      const std::byte* const memory = sent.data_ptr();
      stall.emplace(cuda::current_stream(x.device()));
      group.isend(std::exchange(sent, {}), 1).wait();
      std::vector<Tensor> others;
      for (int i = 0; i < 20; ++i) {
        others.push_back(on_gpu(group, -1));
        EXPECT_NE(others.back().data_ptr(), memory);
      }
    } else {
      group.irecv(x, 0).wait();
    }
    group.barrier();
    stall.reset();
    group.barrier();
    if (group.rank() == 1) {
      EXPECT_EQ(x.to_vector<float>(), Floats(4, 7));
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

TEST(GpuMessages, MessagesCompleteWithoutWaiting) {
  run_on_gpus(2, [](ProcessGroup& group) {
    const Tensor x = on_gpu(group, group.rank());
    const Work work = group.rank() == 0 ? group.isend(x, 1) : group.irecv(x, 0);
    const auto deadline = std::chrono::steady_clock::now() + kLongTimeout;
    while (!work.is_completed() && std::chrono::steady_clock::now() < deadline) {
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
    }
    ASSERT_TRUE(work.is_completed());
    work.join();
    EXPECT_EQ(x.to_vector<float>(), Floats(4, 0));
  });
}

// --- messages between a GPU and a CPU ---

/// Both ranks send and receive matrices of several sizes; tensors of rank 0 are on its GPU, those of rank 1 on the CPU.
/// One rank's matrices are transposed.
void exchange_with_cpu(ProcessGroup& group) {
  const int other = 1 - group.rank();
  const Device device = group.rank() == 0 ? Device::cuda(0) : Device();
  for (const int64_t n : {0, 1, 300, 50000}) {
    const Tensor values = arange(2 * n, {kInt32}).view({2, n});
    const Tensor sent = values.to(device), received = zeros({n, 2}, {kInt32, device});
    const Work work = group.isend(sent, other, 4);
    group.recv(received.t(), other, 4);
    work.wait();
    EXPECT_TRUE(same_bytes(received.t().contiguous().cpu(), values)) << n;
  }
}

TEST(GpuMessages, GpuAndCpuTensorsExchangeMessages) { run_on_gpus(2, exchange_with_cpu); }

TEST(GpuMessages, GpuAndCpuTensorsExchangeMessagesOverNetwork) {
  ThreadRanks{.world_size = 2, .backend = "cpu:gloo,cuda:nccl", .hosts = "ab"}.run(exchange_with_cpu);
}

TEST(GpuMessages, DirectMessagesOverNetworkKeepTags) {
  ThreadRanks{.world_size = 2, .backend = "cpu:gloo,cuda:nccl", .hosts = "ab"}.run([](ProcessGroup& group) {
    const int other = 1 - group.rank();
    const Tensor a = on_gpu(group, group.rank(), 7000), b = on_gpu(group, group.rank() + 10, 7000);
    const Tensor c = on_gpu(group, -1, 7000), d = on_gpu(group, -1, 7000);
    const std::vector<Work> works = {group.isend(a, other, 1), group.isend(b, other, 2), group.irecv(d, other, 2),
                                     group.irecv(c, other, 1)};
    for (const Work& work : works) work.wait();
    EXPECT_EQ(c.to_vector<float>(), Floats(7000, static_cast<float>(other)));
    EXPECT_EQ(d.to_vector<float>(), Floats(7000, static_cast<float>(other + 10)));
  });
}

// The peer's tensor decides for each message.
TEST(GpuMessages, DirectAndStagedMessagesOfOneTagKeepTheirOrder) {
  run_on_gpus(2, [](ProcessGroup& group) {
    std::vector<Tensor> tensors;
    std::vector<Work> works;
    for (int i = 0; i < 12; ++i) {
      const bool on_cpu = i % 3 == group.rank();
      const int64_t n = i % 2 == 0 ? 10 : 40000;
      const double value = group.rank() == 0 ? i : -1;
      tensors.push_back(on_cpu ? full({n}, value) : on_gpu(group, value, n));
      works.push_back(group.rank() == 0 ? group.isend(tensors.back(), 1) : group.irecv(tensors.back(), 0));
    }
    for (const Work& work : works) work.wait();
    for (int i = 0; i < 12; ++i) {
      const Tensor& tensor = tensors[static_cast<size_t>(i)];
      EXPECT_EQ(tensor.to_vector<float>(), Floats(static_cast<size_t>(tensor.numel()), static_cast<float>(i)));
    }
  });
}

// A staged message waits for the sender's data, but not the thread that sends it, nor the group's other operations.
TEST(GpuMessages, StagedMessageDoesNotBlockOthers) {
  run_on_gpus(2, [](ProcessGroup& group) {
    if (group.rank() == 0) {
      const Tensor x = on_gpu(group, 5);
      std::optional<Stall> stall(cuda::current_stream(x.device()));
      const Work work = group.isend(x, 1);
      const Tensor sum = full({3}, 1);
      group.all_reduce(sum);
      group.send(sum, 1, 1);
      EXPECT_FALSE(work.is_completed());
      stall.reset();
      work.wait();
    } else {
      const Tensor y = empty({4}), sum = full({3}, 2);
      const Work work = group.irecv(y, 0);
      group.all_reduce(sum);
      group.recv(sum, 0, 1);
      work.wait();
      EXPECT_EQ(y.to_vector<float>(), Floats(4, 5));
    }
  });
}

// --- processes ---

TANDEM_RANK_MAIN(exchange_between_processes) {
  ProcessGroup& group = *context.group();
  const Device device = gpu_of_rank(context.rank());
  const int next = (group.rank() + 1) % group.size(), previous = (group.rank() + group.size() - 1) % group.size();
  for (int round = 0; round < 3; ++round) {
    const Tensor sent = full({1000}, group.rank() + 10 * round, {kFloat32, device}),
                 received = zeros({1000}, {kFloat32, device});
    const Work first = group.isend(sent, next, 1), second = group.isend(mul(sent, Scalar(2)), next);
    group.recv(received, previous);
    expect_equal(received.to_vector<float>() == Floats(1000, static_cast<float>(2 * previous + 20 * round)), true,
                 "tag 0");
    group.recv(received, previous, 1);
    expect_equal(received.to_vector<float>() == Floats(1000, static_cast<float>(previous + 10 * round)), true, "tag 1");
    first.wait();
    second.wait();
    const Tensor sum = full({4}, group.rank(), {kFloat32, device});
    group.all_reduce(sum);
    expect_equal(sum.to_vector<float>() == Floats(4, static_cast<float>(group.size() * (group.size() - 1) / 2)), true,
                 "sum");
  }
}

TEST(GpuMessageProcesses, MessagesArrive) { spawn(2, "exchange_between_processes"); }

TEST(GpuMessagesOf4, ProcessesFormRing) { spawn(4, "exchange_between_processes"); }

// NCCL does not connect them: the messages are staged.
TANDEM_RANK_MAIN(exchange_on_one_gpu) {
  ProcessGroup& group = *context.group();
  const Tensor x = full({5000}, group.rank(), {kFloat32, Device::cuda(0)});
  const Tensor y = zeros({5000}, x.options());
  const Work work = group.isend(x, 1 - group.rank());
  group.recv(y, 1 - group.rank());
  work.wait();
  expect_equal(y.to_vector<float>() == Floats(5000, static_cast<float>(1 - group.rank())), true, "received");
#ifdef TANDEM_CUDA_EMULATED
  expect_equal(count_calls("ncclSend"), 0, "calls");
#endif
}

TEST(GpuMessageProcesses, RanksSharingOneGpuExchangeMessages) { spawn(2, "exchange_on_one_gpu"); }

// --- errors ---

TEST(GpuMessages, UnsupportedTensorsAreRejectedBeforeSending) {
  run_on_gpus(2, [](ProcessGroup& group) {
    const int other = 1 - group.rank();
    const Tensor x = on_gpu(group, group.rank());
    group.rank() == 0 ? group.send(x, 1) : group.recv(x, 0);
    const Tensor elsewhere = full({4}, 1, {kFloat32, Device::cuda(other)});
    EXPECT_EQ(error_text<DeviceError>([&] { group.send(elsewhere, other); }),
              str("send: this group uses cuda:", group.rank(), ", but a tensor is on cuda:", other,
                  "\n  a group uses one GPU per rank; create another group with new_group"));
    EXPECT_THROW(group.all_reduce(elsewhere), DeviceError);
    cuda::Graph graph(x.device());
    EXPECT_EQ(error_text<StateError>([&] { graph.capture([&] { group.isend(x, other).wait(); }); }),
              "Graph: a message cannot be captured; do it before or after the capture");
    group.all_reduce(x);
    EXPECT_EQ(x.to_vector<float>(), Floats(4, 0));
  });
}

}}}}  // namespace tandem::v0::distributed
