// Iterator over the batches of a loader.
#pragma once

#include <iterator>
#include <memory>
#include <optional>

#include <tandem/base/macros.h>
#include <tandem/data/dataset.h>

namespace tandem { inline namespace v0 { namespace data {

/// A source of batches, one epoch of a loader.
class TANDEM_API BatchSource {
 public:
  virtual ~BatchSource();
  /// The next batch, or nullopt after the last.
  virtual std::optional<Batch> next() = 0;
};

/// A single-pass input iterator over an epoch's batches; movable. A moved-from iterator may only be destroyed.
class TANDEM_API BatchIterator {
 public:
  /// Moves to the first batch.
  explicit BatchIterator(std::unique_ptr<BatchSource> source);
  Batch& operator*() { return batch_; }    ///< the current batch
  Batch* operator->() { return &batch_; }  ///< the current batch
  /// Moves to the next batch. Rethrows the exception that was thrown while the batch was created.
  BatchIterator& operator++();
  bool operator==(std::default_sentinel_t) const { return at_end_; }

 private:
  std::unique_ptr<BatchSource> source_;
  Batch batch_;
  bool at_end_ = false;
};

}}}  // namespace tandem::v0::data
