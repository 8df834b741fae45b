#include <tandem/data/stream.h>

#include <condition_variable>
#include <limits>
#include <mutex>
#include <utility>
#include <vector>

#include <tandem/base/math.h>
#include <tandem/data/collate.h>
#include <tandem/data/prefetcher.h>

namespace tandem { inline namespace v0 { namespace data {

namespace {

constexpr int64_t kMaxShards = 1 << 20;
constexpr int64_t kNoEnd = std::numeric_limits<int64_t>::max();

}  // namespace

ExampleStream::~ExampleStream() = default;

void ExampleStream::skip(int64_t count) {
  while (count-- > 0 && next()) {
  }
}

IterableDataset::~IterableDataset() = default;

/// One pass over the batches of an epoch.
class StreamLoader::Epoch : public BatchSource {
 public:
  explicit Epoch(StreamLoader& loader)
      : loader_(loader),
        epoch_(loader.position_.epoch),
        shards_(shards_from(loader.position_.turn, loader.options_.shards)),
        prefetcher_([this](int64_t turn) { return make(turn); },
                    [this](int64_t turn) {
                      const StreamShard shard = shard_of(turn);
                      return str("in batch ", turn / num_shards(), " of shard ", shard.index, " of ", shard.count);
                    },
                    loader.loader_, loader.position_.turn, kNoEnd) {}

  std::optional<Batch> next() override {
    for (int64_t num_empty = 0; num_empty < num_shards(); ++num_empty) {  // an ended shard remains empty
      Batch batch = prefetcher_.next();
      ++loader_.position_.turn;
      if (batch.size > 0) return batch;
    }
    loader_.position_.is_at_end = true;
    return std::nullopt;
  }

 private:
  struct Shard {
    std::mutex mutex;  // guards the other members
    std::condition_variable changed;
    int64_t next_batch = 0;                ///< number of the batch that is read next
    bool is_open = false;                  ///< `items` has been set
    std::unique_ptr<ExampleStream> items;  ///< null after the end
  };

  /// Shards at the turn `first`.
  static std::vector<Shard> shards_from(int64_t first, int64_t count) {
    std::vector<Shard> shards(static_cast<size_t>(count));
    for (int64_t i = 0; i < count; ++i) shards[static_cast<size_t>(i)].next_batch = (first - i + count - 1) / count;
    return shards;
  }

  int64_t num_shards() const { return loader_.options_.shards; }
  StreamShard shard_of(int64_t turn) const {
    const StreamOptions& options = loader_.options_;
    return {options.rank * options.shards + turn % options.shards, options.world_size * options.shards, epoch_};
  }

  Batch make(int64_t turn) {
    const DataLoaderOptions& options = loader_.loader_;
    std::vector<Example> examples = read(turn);
    if (examples.empty()) return {};
    const StreamShard shard = shard_of(turn);
    const int64_t first = turn / num_shards() * options.batch_size * shard.count + shard.index;
    if (options.transform) {
      int64_t index = first;
      for (Example& example : examples) {
        ItemRandom random = item_random(options.transform_seed, epoch_, index);
        example = options.transform(std::move(example), random);
        index += shard.count;
      }
    }
    Batch batch = options.collate ? options.collate(examples) : default_collate(examples);
    if (options.batch_transform) {
      ItemRandom random = batch_random(options.transform_seed, epoch_, first);
      batch = options.batch_transform(std::move(batch), random);
    }
    return batch;
  }

  /// The items of a turn. Waits until the items of the shard's batch before have been read.
  std::vector<Example> read(int64_t turn) {
    const int64_t number = turn / num_shards();
    const auto batch_size = static_cast<size_t>(loader_.loader_.batch_size);
    Shard& shard = shards_[static_cast<size_t>(turn % num_shards())];
    std::vector<Example> examples;
    std::exception_ptr error;
    {
      std::unique_lock lock(shard.mutex);
      shard.changed.wait(lock, [&] { return shard.next_batch == number; });
      try {
        if (!shard.is_open) open(shard, turn);
        while (shard.items && examples.size() < batch_size) {
          std::optional<Example> item = shard.items->next();
          item ? examples.push_back(std::move(*item)) : shard.items.reset();
        }
      } catch (...) {
        error = std::current_exception();
        shard.items.reset();
      }
      ++shard.next_batch;
      shard.changed.notify_all();
    }
    if (error) std::rethrow_exception(error);
    if (loader_.loader_.drop_last && examples.size() < batch_size) examples.clear();
    return examples;
  }

  void open(Shard& shard, int64_t turn) const {
    shard.is_open = true;
    shard.items = loader_.dataset_->stream(shard_of(turn));
    if (shard.items && turn >= num_shards()) shard.items->skip(turn / num_shards() * loader_.loader_.batch_size);
  }

  StreamLoader& loader_;
  const int64_t epoch_;
  std::vector<Shard> shards_;
  Prefetcher prefetcher_;  // the last member: its threads use the others
};

StreamLoader::StreamLoader(DatasetRef<IterableDataset> dataset, DataLoaderOptions loader, StreamOptions options)
    : dataset_(std::move(dataset)), loader_(std::move(loader)), options_(options) {
  check_options("StreamLoader", loader_);
  TANDEM_CHECK(ValueError, options.world_size >= 1, "StreamLoader: world_size is ", options.world_size,
               ", expected at least 1");
  TANDEM_CHECK(ValueError, options.rank >= 0 && options.rank < options.world_size, "StreamLoader: rank is ",
               options.rank, ", expected 0 <= rank < world_size ", options.world_size);
  TANDEM_CHECK(ValueError, options.shards >= 1 && options.shards <= kMaxShards, "StreamLoader: shards is ",
               options.shards, ", expected 1 <= shards <= ", kMaxShards);
}

StreamLoader::Iterator StreamLoader::begin() {
  if (position_.is_started) position_ = {.epoch = saturating_add(position_.epoch, 1)};
  position_.is_started = true;
  return Iterator(std::make_unique<Epoch>(*this));
}

State StreamLoader::state_dict() const {
  State state;
  state.set("epoch", saturating_add(position_.epoch, position_.is_at_end ? 1 : 0));
  state.set("position", position_.is_at_end ? int64_t{0} : position_.turn);
  state.set("batch_size", loader_.batch_size);
  state.set("shards", options_.shards);
  state.set("world_size", int64_t{options_.world_size});
  state.set("drop_last", loader_.drop_last);
  return state;
}

void StreamLoader::load_state_dict(const State& state) {
  const auto epoch = state.get<int64_t>("epoch");
  const auto position = state.get<int64_t>("position");
  TANDEM_CHECK(StateError, epoch >= 0, "StreamLoader: epoch is ", epoch, ", expected at least 0");
  const int64_t most = kNoEnd / loader_.batch_size / options_.shards / options_.world_size;
  TANDEM_CHECK(StateError, position >= 0 && position < most, "StreamLoader: position in the state is ", position,
               ", expected the number of a batch");
  const auto check = [&](const char* name, auto value) {
    const auto saved = state.get<decltype(value)>(name);
    TANDEM_CHECK(StateError, position == 0 || saved == value, "StreamLoader: the state was saved within an epoch with ",
                 name, " ", saved, ", but this loader has ", value);
  };
  check("batch_size", loader_.batch_size);
  check("shards", options_.shards);
  check("world_size", int64_t{options_.world_size});
  check("drop_last", loader_.drop_last);
  position_ = {.epoch = epoch, .turn = position};
}

}}}  // namespace tandem::v0::data
