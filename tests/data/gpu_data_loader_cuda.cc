// Batches that workers copy to a GPU while it computes.
#include <cuda_emulation/control.h>

#include <tandem/data/data_loader.h>
#include <tandem/data/stream.h>
#include <tandem/ops/elementwise.h>
#include <tandem/ops/reduce.h>
#include <tandem/tensor/cuda.h>
#include <tandem/tensor/factories.h>
#include <tandem/tests/support/test.h>

namespace tandem::testing { namespace {

const Device kGpu("cuda:0");

/// Item i has an image of 300,000 numbers i, the label i and the tensor "half" i / 2.
class Numbers : public data::Dataset {
 public:
  int64_t size() const override { return 24; }
  data::Example get(int64_t index) const override {
    return {full({300000}, static_cast<double>(index)),
            scalar_tensor(index, {kInt64}),
            {{"half", scalar_tensor(index * 0.5, {kFloat32})}}};
  }
};

/// The same items in order, in one shard.
class NumberStream : public data::IterableDataset, public data::ExampleStream {
 public:
  std::unique_ptr<data::ExampleStream> stream(const data::StreamShard&) const override {
    return std::make_unique<NumberStream>();
  }
  std::optional<data::Example> next() override {
    return next_ < 24 ? std::optional(Numbers().get(next_++)) : std::nullopt;
  }

 private:
  int64_t next_ = 0;
};

/// Runs f(batch) for all batches of two items.
template <class F>
void for_each_batch(int num_workers, const F& f) {
  const Numbers numbers;
  data::SequentialSampler sampler(numbers.size());
  data::DataLoader loader(numbers, sampler,
                          {.batch_size = 2, .num_workers = num_workers, .prefetch = 1, .device = kGpu});
  for (auto& batch : loader) f(batch);
}

/// for_each_batch of the stream.
template <class F>
void for_each_stream_batch(int num_workers, const F& f) {
  const NumberStream numbers;
  data::StreamLoader loader(numbers, {.batch_size = 2, .num_workers = num_workers, .prefetch = 1, .device = kGpu});
  for (auto& batch : loader) f(batch);
}

// The emulation computes as late as it can: when the sums are read, all batches have been copied and dropped.
TEST(GpuDataLoader, MemoryIsReusedAfterTheWorkThatReadsIt) {
  for (const int num_workers : {0, 1, 2}) {
    std::vector<Tensor> sums;
    const auto add_sums = [&](const data::Batch& batch) {
      sums.push_back(sum(batch.input, {1}));
      sums.push_back(batch.target.to(kFloat32));
      sums.push_back(batch["half"] * 2);
    };
    for_each_batch(num_workers, add_sums);
    for_each_stream_batch(num_workers, add_sums);
    ASSERT_EQ(sums.size(), 2 * 36u);
    for (size_t i = 0; i < sums.size(); i += 3) {
      const auto index = static_cast<float>(i % 36 / 3 * 2);
      EXPECT_EQ(sums[i].to_vector<float>(), (std::vector<float>{300000 * index, 300000 * (index + 1)}));
      EXPECT_EQ(sums[i + 1].to_vector<float>(), (std::vector<float>{index, index + 1}));
      EXPECT_EQ(sums[i + 2].to_vector<float>(), (std::vector<float>{index, index + 1}));
    }
  }
}

TEST(GpuDataLoader, CopiesDoNotWaitForTheConsumersWork) {
  std::atomic<bool> has_computed = false;
  std::vector<data::Batch> kept;  // a batch that is dropped would make later copies wait
  for_each_batch(1, [&](const data::Batch& batch) {
    EXPECT_FALSE(has_computed);
    if (kept.empty()) {
      cuda_emulation::run_on_device(static_cast<cudaStream_t>(cuda::current_stream(kGpu).handle()),
                                    [&] { has_computed = true; });
    }
    kept.push_back(batch);
  });
  EXPECT_FALSE(has_computed);
  cuda::synchronize(kGpu);
  EXPECT_TRUE(has_computed);
}

// Memory of several batches only, although each epoch has twelve.
TEST(GpuDataLoader, MemoryOfDroppedBatchesIsUsedAgain) {
  for (int epoch = 0; epoch < 3; ++epoch) {
    reset_peak_memory(kGpu);
    const int64_t before = memory_stats(kGpu).allocated;
    for_each_batch(1, [](const data::Batch&) {});
    EXPECT_EQ(memory_stats(kGpu).allocated, before);
    EXPECT_LT(memory_stats(kGpu).peak_allocated - before, 6 * 2 * 300000 * 4);
  }
}

}}  // namespace tandem::testing
