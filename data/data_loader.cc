#include <tandem/data/data_loader.h>

#include <algorithm>
#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include <tandem/base/math.h>
#include <tandem/data/error_context.h>
#include <tandem/data/prefetcher.h>

namespace tandem { inline namespace v0 { namespace data {

namespace {

int64_t num_batches(int64_t num_items, const DataLoaderOptions& options) {
  return options.drop_last ? num_items / options.batch_size : ceil_div(num_items, options.batch_size);
}

/// Items that a batch's error text shows.
std::string shown(std::span<const int64_t> items) {
  std::string text = str(items.front());
  for (size_t i = 1; i < std::min<size_t>(items.size(), 4); ++i) text += str(", ", items[i]);
  return text + (items.size() > 4 ? ", ..." : "");
}

/// One pass over the batches of an epoch.
class Epoch : public BatchSource {
 public:
  Epoch(DatasetRef<Dataset> dataset, Sampler& sampler, const DataLoaderOptions& options)
      : dataset_(std::move(dataset)),
        sampler_(sampler),
        options_(options),
        indices_(sampler.begin_epoch()),
        epoch_(sampler.epoch()),
        num_batches_(num_batches(static_cast<int64_t>(indices_.size()), options)),
        prefetcher_([this](int64_t number) { return make(items_of(number)); },
                    [this](int64_t number) {
                      return str("in batch ", number, " of ", num_batches_, ", items ", shown(items_of(number)));
                    },
                    options, 0, num_batches_) {
    if (num_batches_ == 0) sampler.advance(static_cast<int64_t>(indices_.size()));
  }

  std::optional<Batch> next() override {
    if (consumed_ == num_batches_) return std::nullopt;
    const int64_t number = consumed_++;
    Batch batch = prefetcher_.next();
    // Items that drop_last omits count as consumed with the last batch, so that a state saved after it resumes at the
    // next epoch.
    const bool is_last = consumed_ == num_batches_;
    sampler_.advance(is_last ? static_cast<int64_t>(indices_.size()) - number * options_.batch_size
                             : options_.batch_size);
    return batch;
  }

 private:
  std::span<const int64_t> items_of(int64_t number) const {
    const std::span<const int64_t> rest =
        std::span(indices_).subspan(static_cast<size_t>(number * options_.batch_size));
    return rest.first(std::min(rest.size(), static_cast<size_t>(options_.batch_size)));
  }

  Batch make(std::span<const int64_t> items) const {
    const uint64_t seed = options_.transform_seed;
    Batch batch = options_.collate     ? options_.collate(examples(items))
                  : options_.transform ? transform_items(*dataset_, items, options_.transform, seed, epoch_)
                                       : dataset_->get_batch(items);
    if (options_.batch_transform) {
      ItemRandom random = batch_random(seed, epoch_, items.front());
      batch = options_.batch_transform(std::move(batch), random);
    }
    return batch;
  }

  /// The transformed items.
  std::vector<Example> examples(std::span<const int64_t> items) const {
    std::vector<Example> result;
    for (const int64_t index : items) {
      try {
        result.push_back(dataset_->get(index));
        if (!options_.transform) continue;
        ItemRandom random = item_random(options_.transform_seed, epoch_, index);
        result.back() = options_.transform(std::move(result.back()), random);
      } catch (...) {
        rethrow_with_context(str("in item ", index, " of the dataset"));
      }
    }
    return result;
  }

  const DatasetRef<Dataset> dataset_;
  Sampler& sampler_;  // used by the consumer's thread only
  const DataLoaderOptions options_;
  const std::vector<int64_t> indices_;
  const int64_t epoch_;
  const int64_t num_batches_;
  int64_t consumed_ = 0;
  Prefetcher prefetcher_;  // the last member: its threads use the others
};

}  // namespace

DataLoader::DataLoader(DatasetRef<Dataset> dataset, Sampler& sampler, DataLoaderOptions options)
    : dataset_(std::move(dataset)), sampler_(std::shared_ptr<Sampler>(), &sampler), options_(std::move(options)) {
  check_options("DataLoader", options_);
}

DataLoader::DataLoader(DatasetRef<Dataset> dataset, const DataLoaderOptions& options, int rank, int world_size)
    : dataset_(std::move(dataset)),
      sampler_(std::make_shared<DistributedSampler>(
          dataset_->size(), rank, world_size,
          DistributedSamplerOptions{.shuffle = options.shuffle, .seed = options.seed})),
      options_(options) {
  check_options("DataLoader", options_, true);
}

int64_t DataLoader::size() const { return num_batches(sampler_->size(), options_); }

int64_t DataLoader::remaining() const { return num_batches(std::max<int64_t>(sampler_->remaining(), 0), options_); }

DataLoader::Iterator DataLoader::begin() { return Iterator(std::make_unique<Epoch>(dataset_, *sampler_, options_)); }

}}}  // namespace tandem::v0::data
