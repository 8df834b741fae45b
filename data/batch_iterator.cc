#include <tandem/data/batch_iterator.h>

#include <utility>

namespace tandem { inline namespace v0 { namespace data {

BatchSource::~BatchSource() = default;

BatchIterator::BatchIterator(std::unique_ptr<BatchSource> source) : source_(std::move(source)) { ++*this; }

BatchIterator& BatchIterator::operator++() {
  batch_ = {};  // frees its memory for the next batch
  std::optional<Batch> next = source_->next();
  at_end_ = !next.has_value();
  if (next) batch_ = std::move(*next);
  return *this;
}

}}}  // namespace tandem::v0::data
