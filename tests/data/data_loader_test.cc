#include <tandem/data/data_loader.h>

#include <condition_variable>
#include <mutex>

#include <tandem/base/parallel_for.h>
#include <tandem/base/rank_context.h>
#include <tandem/base/trace.h>
#include <tandem/tensor/factories.h>
#include <tandem/tests/support/test.h>

namespace td = tandem;
using td::data::Batch;
using td::data::DataLoader;
using td::data::RandomSampler;
using td::data::SequentialSampler;

namespace {

/// Item i has the image [i] and the label i. get() first calls `on_get`, if it is set.
class Numbers : public td::data::Dataset {
 public:
  explicit Numbers(int64_t size) : size_(size) {}
  int64_t size() const override { return size_; }
  td::data::Example get(int64_t index) const override {
    if (on_get) on_get(index);
    return {td::from_vector<float>({static_cast<float>(index)}, {1}), td::scalar_tensor(index, {td::kInt64})};
  }
  std::function<void(int64_t)> on_get;

 private:
  int64_t size_;
};

/// The number of threads that called `here` and have not ended.
class LiveThreads {
 public:
  void here() { thread_local Presence presence(*this); }
  int count() const { return count_; }

 private:
  struct Presence {
    explicit Presence(LiveThreads& owner) : threads(owner) { ++threads.count_; }
    ~Presence() { --threads.count_; }
    LiveThreads& threads;
  };
  std::atomic<int> count_ = 0;
};

/// A counter; threads can wait until it has reached a value.
class Counter {
 public:
  void add() {
    std::lock_guard lock(mutex_);
    ++count_;
    changed_.notify_all();
  }
  void wait_for(int count) {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [&] { return count_ >= count; });
  }

 private:
  std::mutex mutex_;
  std::condition_variable changed_;
  int count_ = 0;
};

std::vector<std::vector<int64_t>> labels_of_epoch(DataLoader& loader) {
  std::vector<std::vector<int64_t>> labels;
  for (auto& batch : loader) {
    EXPECT_EQ(batch.size, batch.target.numel());
    EXPECT_EQ(batch.input.shape(), td::Shape({batch.size, 1}));
    labels.push_back(batch.target.to_vector<int64_t>());
  }
  return labels;
}

TEST(DataLoader, BatchesDoNotDependOnWorkerCount) {
  for (const int64_t size : {0, 1, 3, 7, 31, 32, 33}) {
    for (const int64_t batch_size : {1, 4, 32}) {
      for (const bool drop_last : {false, true}) {
        const Numbers numbers(size);
        RandomSampler expected(size, 8);
        for (const int workers : {0, 1, 2, 3}) {
          RandomSampler sampler(size, 8);
          DataLoader loader(numbers, sampler,
                            {.batch_size = batch_size, .num_workers = workers, .drop_last = drop_last});
          for (int64_t epoch = 0; epoch < 2; ++epoch) {
            expected.set_epoch(epoch);
            auto order = expected.begin_epoch();
            if (drop_last)
              order.resize(order.size() / static_cast<size_t>(batch_size) * static_cast<size_t>(batch_size));
            const auto batches = labels_of_epoch(loader);
            EXPECT_EQ(static_cast<int64_t>(batches.size()), loader.size());
            std::vector<int64_t> joined;
            for (const auto& batch : batches) joined.insert(joined.end(), batch.begin(), batch.end());
            EXPECT_EQ(joined, order) << "size " << size << " batch " << batch_size << " workers " << workers;
          }
        }
      }
    }
  }
}

TEST(DataLoader, DropLastOmitsTheShorterLastBatch) {
  const Numbers numbers(7);
  SequentialSampler sampler(7);
  DataLoader keep(numbers, sampler, {.batch_size = 3, .num_workers = 1});
  EXPECT_EQ(labels_of_epoch(keep), (std::vector<std::vector<int64_t>>{{0, 1, 2}, {3, 4, 5}, {6}}));
  DataLoader drop(numbers, sampler, {.batch_size = 3, .num_workers = 1, .drop_last = true});
  EXPECT_EQ(labels_of_epoch(drop), (std::vector<std::vector<int64_t>>{{0, 1, 2}, {3, 4, 5}}));
}

TEST(DataLoader, WorkersPrefetchTheConfiguredNumberOfBatches) {
  constexpr int64_t kWorkers = 2;
  constexpr int64_t kPrefetch = 3;
  Counter made;
  std::atomic<int64_t> taken = 0;
  std::atomic<int64_t> consumed = 0;
  std::atomic<int64_t> furthest = 0;
  Numbers numbers(50);
  numbers.on_get = [&](int64_t) {
    const int64_t ahead = ++taken - consumed;
    int64_t seen = furthest;
    while (ahead > seen && !furthest.compare_exchange_weak(seen, ahead)) {
    }
    made.add();
  };
  SequentialSampler sampler(50);
  DataLoader loader(numbers, sampler, {.num_workers = kWorkers, .prefetch = kPrefetch});
  int64_t expected = 0;
  for (auto& batch : loader) {
    EXPECT_EQ(batch.target.item<int64_t>(), expected++);
    // The current batch has left its slot, so kWorkers * kPrefetch further batches are made.
    made.wait_for(static_cast<int>(std::min<int64_t>(expected + kWorkers * kPrefetch, 50)));
    ++consumed;
  }
  EXPECT_EQ(expected, 50);
  EXPECT_LE(furthest, kWorkers * kPrefetch + 1);
}

TEST(DataLoader, BatchesArriveInOrderDespiteWorkerTiming) {
  Counter second_made;
  Numbers numbers(6);
  numbers.on_get = [&](int64_t index) {
    if (index == 0) second_made.wait_for(1);
    if (index == 1) second_made.add();
  };
  SequentialSampler sampler(6);
  DataLoader loader(numbers, sampler, {.num_workers = 2});
  EXPECT_EQ(labels_of_epoch(loader), (std::vector<std::vector<int64_t>>{{0}, {1}, {2}, {3}, {4}, {5}}));
}

TEST(DataLoader, WorkerExceptionNamesBatchAndItem) {
  for (const int workers : {0, 1, 3}) {
    LiveThreads live;
    Numbers numbers(40);
    numbers.on_get = [&](int64_t index) {
      if (workers > 0) live.here();
      if (index == 22) throw td::IoError("file 22 is damaged");
    };
    SequentialSampler sampler(40);
    DataLoader loader(numbers, sampler, {.batch_size = 5, .num_workers = workers});
    int batches = 0;
    try {
      for (auto& batch : loader) {
        EXPECT_EQ(batch.target.to_vector<int64_t>().front(), 5 * batches);
        ++batches;
      }
      FAIL() << "no error was thrown";
    } catch (const td::IoError& error) {
      EXPECT_STREQ(error.what(),
                   "file 22 is damaged\n  in item 22 of the dataset\n  in batch 4 of 8, items 20, 21, 22, 23, ...");
    }
    EXPECT_EQ(batches, 4);
    EXPECT_EQ(live.count(), 0);
    numbers.on_get = nullptr;
    EXPECT_EQ(labels_of_epoch(loader).size(), 8u);  // the loader remains usable
  }
}

TEST(DataLoader, FirstBatchExceptionIsThrownByBegin) {
  for (const int workers : {0, 2}) {
    Numbers numbers(3);
    numbers.on_get = [](int64_t) { throw std::out_of_range("no"); };
    SequentialSampler sampler(3);
    DataLoader loader(numbers, sampler, {.batch_size = 3, .num_workers = workers});
    EXPECT_ERROR(std::out_of_range, loader.begin(), "no\n  in item 0 of the dataset\n  in batch 0 of 1, items 0, 1, 2");
  }
}

TEST(DataLoader, LeavingTheLoopStopsTheWorkers) {
  for (const int workers : {1, 3}) {
    for (const int leave_after : {1, 2, 5}) {
      LiveThreads live;
      Numbers numbers(100);
      numbers.on_get = [&](int64_t) { live.here(); };
      SequentialSampler sampler(100);
      DataLoader loader(numbers, sampler, {.batch_size = 2, .num_workers = workers});
      int batches = 0;
      for ([[maybe_unused]] auto& batch : loader) {
        if (++batches == leave_after) break;
      }
      EXPECT_EQ(live.count(), 0);
      EXPECT_EQ(sampler.state_dict().get<int64_t>("position"), 2 * leave_after);

      EXPECT_THROW(
          {
            for ([[maybe_unused]] auto& batch : loader) throw std::runtime_error("the training failed");
          },
          std::runtime_error);
      EXPECT_EQ(live.count(), 0);
    }
  }
}

TEST(DataLoader, DestroyingUnadvancedIteratorsStopsTheWorkers) {
  LiveThreads live;
  Numbers numbers(100);
  numbers.on_get = [&](int64_t) { live.here(); };
  SequentialSampler sampler(100);
  DataLoader loader(numbers, sampler, {.num_workers = 2});
  {
    auto first = loader.begin();
    auto moved = std::move(first);
    auto second = loader.begin();  // two concurrent epochs
    EXPECT_EQ(moved->target.item<int64_t>(), 0);
    EXPECT_EQ(second->target.item<int64_t>(), 0);
  }
  EXPECT_EQ(live.count(), 0);
}

TEST(DataLoader, SamplerStateResumesInsideAnEpoch) {
  const Numbers numbers(23);
  RandomSampler sampler(23, 4);
  DataLoader loader(numbers, sampler, {.batch_size = 4, .num_workers = 2});
  td::State state;
  std::vector<std::vector<int64_t>> rest;
  int batches = 0;
  for (auto& batch : loader) {
    if (++batches == 2) state = sampler.state_dict();  // workers are ahead of this
    if (batches > 2) rest.push_back(batch.target.to_vector<int64_t>());
  }
  RandomSampler restored(23, 0);
  restored.load_state_dict(state);
  DataLoader other(numbers, restored, {.batch_size = 4});
  EXPECT_EQ(labels_of_epoch(other), rest);
  EXPECT_EQ(labels_of_epoch(other), labels_of_epoch(loader));
}

TEST(DataLoader, ItemsOmittedByDropLastCountAsConsumed) {
  for (const int64_t size : {3, 7, 8}) {  // no batch, one batch and a remainder, two batches
    const Numbers numbers(size);
    RandomSampler sampler(size, 4);
    DataLoader loader(numbers, sampler, {.batch_size = 4, .drop_last = true});
    int64_t left = size / 4;
    EXPECT_EQ(loader.remaining(), left) << size;
    for ([[maybe_unused]] const auto& batch : loader) EXPECT_EQ(loader.remaining(), --left) << size;
    EXPECT_EQ(loader.remaining(), 0) << size;
    const auto state = sampler.state_dict();
    EXPECT_EQ(state.get<int64_t>("epoch"), 1) << size;
    EXPECT_EQ(state.get<int64_t>("position"), 0) << size;
  }
}

TEST(DataLoader, TransformsDependOnlyOnSeedEpochAndItem) {
  // The transformed image is (item, a random number).
  const td::data::Transform transform = [](td::data::Example example, td::data::ItemRandom& random) {
    const float draw = static_cast<float>(random.below(1 << 20));
    example.input = td::from_vector<float>({example.input.item<float>(), draw}, {2});
    return example;
  };
  const Numbers numbers(33);
  using Draws = std::map<int64_t, std::vector<float>>;
  const auto draws_of = [&](int workers, int64_t batch_size, int64_t epoch, uint64_t seed) {
    RandomSampler sampler(33, static_cast<uint64_t>(batch_size));  // another order and other batches
    sampler.set_epoch(epoch);
    Draws draws;
    for (auto& batch : DataLoader(
             numbers, sampler,
             {.batch_size = batch_size, .num_workers = workers, .transform = transform, .transform_seed = seed})) {
      const auto values = batch.input.to_vector<float>();
      const auto labels = batch.target.to_vector<int64_t>();
      for (size_t i = 0; i < labels.size(); ++i) {
        EXPECT_EQ(values[2 * i], static_cast<float>(labels[i]));
        draws[labels[i]].push_back(values[2 * i + 1]);
      }
    }
    return draws;
  };
  const Draws expected = draws_of(0, 4, 2, 7);
  EXPECT_EQ(expected.size(), 33u);
  for (const int workers : {0, 1, 3}) {
    for (const int64_t batch_size : {1, 7, 33}) EXPECT_EQ(draws_of(workers, batch_size, 2, 7), expected);
  }
  EXPECT_NE(draws_of(1, 4, 3, 7), expected);
  EXPECT_NE(draws_of(1, 4, 2, 8), expected);
}

TEST(DataLoader, BatchTransformsDependOnlyOnSeedEpochAndFirstItem) {
  // The labels of a batch are replaced by a random number.
  const td::data::BatchTransform transform = [](td::data::Batch batch, td::data::ItemRandom& random) {
    batch.target = td::full({batch.size}, static_cast<double>(random.below(1 << 20)), {td::kFloat32});
    return batch;
  };
  const Numbers numbers(12);
  const auto draws_of = [&](int workers, int64_t epoch, uint64_t seed) {
    SequentialSampler sampler(12);  // the same batches in each epoch
    sampler.set_epoch(epoch);
    std::map<float, float> draws;
    for (auto& batch :
         DataLoader(numbers, sampler,
                    {.batch_size = 4, .num_workers = workers, .batch_transform = transform, .transform_seed = seed})) {
      draws[batch.input.to_vector<float>()[0]] = batch.target.to_vector<float>()[0];
    }
    return draws;
  };
  const auto expected = draws_of(0, 2, 7);
  EXPECT_EQ(expected.size(), 3u);
  EXPECT_NE(expected.begin()->second, expected.rbegin()->second);
  EXPECT_EQ(draws_of(3, 2, 7), expected);
  EXPECT_NE(draws_of(0, 2, 8), expected);
  EXPECT_NE(draws_of(0, 3, 7), expected);
}

TEST(DataLoader, BatchesAreDeliveredOnTheConfiguredDevice) {
  td::set_cpu_device_count(2);
  const Numbers numbers(5);
  SequentialSampler sampler(5);
  const td::Device device("cpu:1");
  for (const int workers : {0, 1}) {
    DataLoader loader(numbers, sampler, {.batch_size = 5, .num_workers = workers, .device = device});
    for (auto& batch : loader) {
      EXPECT_EQ(batch.input.device(), device);
      EXPECT_EQ(batch.target.device(), device);
      EXPECT_EQ(batch.target.to_vector<int64_t>(), (std::vector<int64_t>{0, 1, 2, 3, 4}));
    }
  }
}

TEST(DataLoader, WorkersInheritTheRankButNotTheModes) {
  auto& context = td::RankContext::current();
  context.rank = 3;
  context.world_size = 5;
  context.grad_enabled = false;
  context.skip_init = true;
  context.module_scope = td::make_ref<td::ScopeName>("Net");
  Numbers numbers(8);
  std::atomic<int> wrong = 0;
  numbers.on_get = [&](int64_t) {
    const auto& mine = td::RankContext::current();
    if (&mine == &context || mine.rank != 3 || mine.world_size != 5 || !mine.grad_enabled || mine.skip_init ||
        mine.module_scope || td::num_threads() != 1 || mine.tensor_slot == nullptr ||
        mine.tensor_slot != context.tensor_slot) {
      ++wrong;
    }
  };
  SequentialSampler sampler(8);
  DataLoader loader(numbers, sampler, {.num_workers = 2});
  labels_of_epoch(loader);
  EXPECT_EQ(wrong, 0);
  EXPECT_FALSE(context.grad_enabled);
  context = td::RankContext();
}

TEST(DataLoader, TraceRecordsEachBatchOnItsWorker) {
  const Numbers numbers(12);
  SequentialSampler sampler(12);
  DataLoader loader(numbers, sampler, {.batch_size = 3, .num_workers = 2});
  td::start_trace();
  labels_of_epoch(loader);
  int made = 0;
  for (const td::TraceEvent& event : td::stop_trace()) {
    if (std::string_view(event.category) != "data") continue;
    ++made;
    EXPECT_EQ(event.name, "make batch");
    EXPECT_TRUE(event.thread == 2 || event.thread == 3) << event.thread;
  }
  EXPECT_EQ(made, 4);
}

TEST(DataLoader, InvalidOptionsAreRejected) {
  const Numbers numbers(1);
  SequentialSampler sampler(1);
  EXPECT_ERROR(td::ValueError, DataLoader(numbers, sampler, {.batch_size = 0}),
               "DataLoader: batch_size is 0, expected at least 1");
  EXPECT_ERROR(td::ValueError, DataLoader(numbers, sampler, {.num_workers = -1}),
               "DataLoader: num_workers is -1, expected at least 0");
  EXPECT_ERROR(td::ValueError, DataLoader(numbers, sampler, {.prefetch = 0}),
               "DataLoader: prefetch is 0, expected at least 1");
  EXPECT_ERROR(
      td::ValueError, DataLoader(numbers, sampler, {.shuffle = true}),
      "DataLoader: shuffle is set, expected an option of the sampler; without a sampler the loader has its own");
}

TEST(DataLoader, OwnSamplerDistributesTheItems) {
  const Numbers numbers(5);
  DataLoader in_order(numbers);
  EXPECT_EQ(labels_of_epoch(in_order), (std::vector<std::vector<int64_t>>{{0}, {1}, {2}, {3}, {4}}));
  struct {
    int rank() const { return 1; }
    int world_size() const { return 2; }
  } context;
  DataLoader own(numbers, {.batch_size = 2, .shuffle = true, .seed = 3}, context);
  td::data::DistributedSampler sampler(5, 1, 2, {.seed = 3});
  DataLoader loader(numbers, sampler, {.batch_size = 2});
  for (int epoch = 0; epoch < 2; ++epoch) EXPECT_EQ(labels_of_epoch(own), labels_of_epoch(loader));
}

}  // namespace
