#include <tandem/data/stream.h>

#include <tandem/data/collate.h>
#include <tandem/tensor/factories.h>
#include <tandem/tests/support/test.h>

namespace td = tandem;
using td::data::Example;
using td::data::StreamLoader;
using td::data::StreamOptions;
using td::data::StreamShard;
using td::testing::error_text;

namespace {

using Batches = std::vector<std::vector<int64_t>>;

/// The numbers 1000 epoch + i, i < size, of which shard s of n has those with i % n == s. `on_next` is called first.
class Numbers : public td::data::IterableDataset {
 public:
  explicit Numbers(int64_t size) : size_(size) {}
  std::unique_ptr<td::data::ExampleStream> stream(const StreamShard& shard) const override {
    return std::make_unique<Stream>(*this, shard);
  }
  std::function<void(int64_t)> on_next;

 private:
  class Stream : public td::data::ExampleStream {
   public:
    Stream(const Numbers& numbers, const StreamShard& shard)
        : numbers_(numbers), shard_(shard), position_(shard.index) {}
    std::optional<Example> next() override {
      if (position_ >= numbers_.size_) return std::nullopt;
      if (numbers_.on_next) numbers_.on_next(position_);
      const int64_t number = 1000 * shard_.epoch + position_;
      position_ += shard_.count;
      return Example{.input = td::from_vector<float>({static_cast<float>(number)}, {1}),
                     .target = td::scalar_tensor(number, {td::kInt64})};
    }

   private:
    const Numbers& numbers_;
    const StreamShard shard_;
    int64_t position_;
  };

  int64_t size_;
};

Batches batches_of(StreamLoader& loader) {
  Batches batches;
  for (auto& batch : loader) {
    EXPECT_EQ(batch.size, batch.target.numel());
    batches.push_back(batch.target.to_vector<int64_t>());
  }
  return batches;
}

TEST(StreamLoader, BatchesAlternateBetweenShardsForAnyNumberOfWorkers) {
  const Numbers numbers(11);
  for (const int num_workers : {0, 1, 2, 5}) {
    StreamLoader one(numbers, {.batch_size = 4, .num_workers = num_workers});
    EXPECT_EQ(batches_of(one), (Batches{{0, 1, 2, 3}, {4, 5, 6, 7}, {8, 9, 10}}));
    EXPECT_EQ(batches_of(one).front(), (std::vector<int64_t>{1000, 1001, 1002, 1003}));  // the next epoch
    StreamLoader three(numbers, {.batch_size = 2, .num_workers = num_workers}, {.shards = 3});
    EXPECT_EQ(batches_of(three), (Batches{{0, 3}, {1, 4}, {2, 5}, {6, 9}, {7, 10}, {8}})) << num_workers;
    StreamLoader dropped(numbers, {.batch_size = 2, .num_workers = num_workers, .drop_last = true}, {.shards = 3});
    EXPECT_EQ(batches_of(dropped), (Batches{{0, 3}, {1, 4}, {2, 5}, {6, 9}, {7, 10}})) << num_workers;
  }
}

TEST(StreamLoader, RanksAndShardsDivideTheItems) {
  const Numbers numbers(37);
  for (const int world_size : {1, 2, 3}) {
    for (const int64_t shards : {1, 2, 20}) {
      std::vector<int64_t> visited;
      for (int rank = 0; rank < world_size; ++rank) {
        StreamLoader loader(numbers, {.batch_size = 3, .num_workers = 2},
                            {.rank = rank, .world_size = world_size, .shards = shards});
        for (const auto& batch : batches_of(loader)) visited.insert(visited.end(), batch.begin(), batch.end());
      }
      std::sort(visited.begin(), visited.end());
      ASSERT_EQ(visited.size(), 37u);
      for (int64_t i = 0; i < 37; ++i) EXPECT_EQ(visited[static_cast<size_t>(i)], i);
    }
  }
}

TEST(StreamLoader, EmptyStreamHasNoBatches) {
  const Numbers none(0);
  for (const int num_workers : {0, 2}) {
    StreamLoader loader(none, {.num_workers = num_workers}, {.shards = 3});
    EXPECT_EQ(batches_of(loader), Batches());
    EXPECT_EQ(batches_of(loader), Batches());
    EXPECT_EQ(loader.state_dict().get<int64_t>("epoch"), 2);
  }
}

// Also a state after the last batch, and one of a shard that has ended.
TEST(StreamLoader, StateResumesAfterAnyBatch) {
  const Numbers numbers(23);
  const StreamOptions options = {.rank = 1, .world_size = 2, .shards = 3};
  const td::data::DataLoaderOptions of_batches = {.batch_size = 2, .num_workers = 2};
  StreamLoader whole(numbers, of_batches, options);
  const Batches first = batches_of(whole), second = batches_of(whole);
  ASSERT_EQ(first.size(), 6u);
  for (size_t stop = 0; stop <= first.size(); ++stop) {
    StreamLoader loader(numbers, of_batches, options);
    size_t count = 0;
    td::State state = loader.state_dict();
    if (stop > 0) {
      for ([[maybe_unused]] auto& batch : loader) {  // the workers are ahead of the state
        if (++count < stop) continue;
        state = loader.state_dict();
        break;
      }
    }
    for (const int num_workers : {0, 2}) {
      StreamLoader resumed(numbers, {.batch_size = 2, .num_workers = num_workers}, options);
      resumed.load_state_dict(state);
      EXPECT_EQ(batches_of(resumed), Batches(first.begin() + static_cast<std::ptrdiff_t>(stop), first.end())) << stop;
      EXPECT_EQ(batches_of(resumed), second) << stop;
    }
  }
}

TEST(StreamLoader, StateAfterAnEpochBeginsTheNext) {
  const Numbers numbers(7);
  StreamLoader loader(numbers, {.batch_size = 2});
  batches_of(loader);
  StreamLoader other(numbers, {.batch_size = 3}, {.shards = 2});  // may differ between epochs
  other.load_state_dict(loader.state_dict());
  EXPECT_EQ(batches_of(other).front(), (std::vector<int64_t>{1000, 1002, 1004}));
}

TEST(StreamLoader, IncompatibleStatesAreRejected) {
  const Numbers numbers(20);
  StreamLoader loader(numbers, {.batch_size = 2}, {.shards = 2});
  loader.begin();
  const td::State state = loader.state_dict();
  const auto error_of = [&](td::data::DataLoaderOptions batches, StreamOptions options) {
    StreamLoader other(numbers, batches, options);
    return error_text<td::StateError>([&] { other.load_state_dict(state); });
  };
  const std::string begin = "StreamLoader: the state was saved within an epoch with ";
  EXPECT_EQ(error_of({.batch_size = 3}, {.shards = 2}), begin + "batch_size 2, but this loader has 3");
  EXPECT_EQ(error_of({.batch_size = 2}, {.shards = 1}), begin + "shards 2, but this loader has 1");
  EXPECT_EQ(error_of({.batch_size = 2}, {.world_size = 2, .shards = 2}), begin + "world_size 1, but this loader has 2");
  EXPECT_EQ(error_of({.batch_size = 2, .drop_last = true}, {.shards = 2}),
            begin + "drop_last false, but this loader has true");
  const auto with = [&](const char* key, int64_t value) {
    td::State changed = state;
    changed.set(key, value);
    return error_text<td::StateError>([&] { loader.load_state_dict(changed); });
  };
  EXPECT_EQ(with("epoch", -1), "StreamLoader: epoch is -1, expected at least 0");
  EXPECT_EQ(with("position", -1), "StreamLoader: position in the state is -1, expected the number of a batch");
  EXPECT_EQ(with("position", std::numeric_limits<int64_t>::max()),
            "StreamLoader: position in the state is 9223372036854775807, expected the number of a batch");
}

TEST(StreamLoader, ExceptionNamesBatchAndShard) {
  Numbers numbers(20);
  numbers.on_next = [](int64_t number) {
    if (number == 9) throw td::IoError("line 9 is damaged");
  };
  for (const int num_workers : {0, 1, 3}) {
    StreamLoader loader(numbers, {.batch_size = 2, .num_workers = num_workers}, {.shards = 2});
    int batches = 0;
    EXPECT_EQ(error_text<td::IoError>([&] {
                for ([[maybe_unused]] auto& batch : loader) ++batches;
              }),
              "line 9 is damaged\n  in batch 2 of shard 1 of 2");
    EXPECT_EQ(batches, 5);
  }
}

TEST(StreamLoader, WorkersReadShardsAtTheSameTime) {
  Numbers numbers(8);
  std::atomic<int> waiting = 0;
  numbers.on_next = [&](int64_t number) {
    if (number > 1) return;
    ++waiting;
    while (waiting < 2) std::this_thread::yield();  // until the first items of both shards are read
  };
  StreamLoader loader(numbers, {.batch_size = 4, .num_workers = 2}, {.shards = 2});
  EXPECT_EQ(batches_of(loader), (Batches{{0, 2, 4, 6}, {1, 3, 5, 7}}));
}

TEST(StreamLoader, ManyWorkersReadOneShardInOrder) {
  Numbers numbers(300);
  numbers.on_next = [](int64_t) { std::this_thread::sleep_for(std::chrono::microseconds(20)); };  // others wait
  StreamLoader loader(numbers, {.num_workers = 4});
  int64_t number = 0;
  for (auto& batch : loader) EXPECT_EQ(batch.target.item<int64_t>(), number++);
  EXPECT_EQ(number, 300);
}

TEST(StreamLoader, LeavingTheLoopStopsTheWorkers) {
  Numbers numbers(1 << 20);
  std::atomic<int> num_read = 0;
  numbers.on_next = [&](int64_t) { ++num_read; };
  {
    StreamLoader loader(numbers, {.batch_size = 2, .num_workers = 2}, {.shards = 2});
    auto first = loader.begin();
    EXPECT_EQ(first->target.to_vector<int64_t>(), (std::vector<int64_t>{0, 2}));
  }
  EXPECT_LE(num_read, 2 * (1 + 2 * 2));  // prefetch 2
}

// The number of a transformed item does not depend on workers.
TEST(StreamLoader, TransformAndCollateAreApplied) {
  const Numbers numbers(30);
  const td::data::Transform transform = [](Example example, td::data::ItemRandom& random) {
    const float number = example.input.item<float>(), draw = static_cast<float>(random.below(1 << 20));
    example.input = td::from_vector<float>({number, draw}, {2});
    return example;
  };
  std::vector<std::vector<float>> expected;
  for (const int num_workers : {0, 1, 3}) {
    StreamLoader loader(numbers,
                        {.batch_size = 4,
                         .num_workers = num_workers,
                         .transform = transform,
                         .collate = td::data::pad_collate({{"input", 0}}),
                         .transform_seed = 5},
                        {.shards = 3});
    std::vector<std::vector<float>> images;
    for (auto& batch : loader) {
      EXPECT_EQ(batch["input_lengths"].to_vector<int64_t>(), std::vector<int64_t>(static_cast<size_t>(batch.size), 2));
      images.push_back(batch.input.to_vector<float>());
    }
    if (expected.empty()) expected = images;
    EXPECT_EQ(images, expected);
  }
  EXPECT_NE(expected[0][1], expected[1][1]);
}

TEST(StreamLoader, BatchesAreDeliveredOnTheConfiguredDevice) {
  td::set_cpu_device_count(2);
  const Numbers numbers(5);
  const td::Device device("cpu:1");
  for (const int num_workers : {0, 1}) {
    StreamLoader loader(numbers, {.batch_size = 5, .num_workers = num_workers, .device = device});
    for (auto& batch : loader) EXPECT_EQ(batch.input.device(), device);
  }
}

TEST(StreamLoader, InvalidOptionsAreRejected) {
  const Numbers numbers(1);
  const auto error_of = [&](td::data::DataLoaderOptions batches, StreamOptions options) {
    return error_text<td::ValueError>([&] { StreamLoader(numbers, batches, options); });
  };
  EXPECT_EQ(error_of({.batch_size = 0}, {}), "StreamLoader: batch_size is 0, expected at least 1");
  EXPECT_EQ(error_of({}, {.world_size = 0}), "StreamLoader: world_size is 0, expected at least 1");
  EXPECT_EQ(error_of({}, {.rank = 2, .world_size = 2}), "StreamLoader: rank is 2, expected 0 <= rank < world_size 2");
  EXPECT_EQ(error_of({}, {.shards = 0}), "StreamLoader: shards is 0, expected 1 <= shards <= 1048576");
}

}  // namespace
