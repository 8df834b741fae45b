#include <tandem/data/dataset.h>

#include <algorithm>
#include <cmath>
#include <utility>

#include <tandem/data/sampler.h>
#include <tandem/data/stack.h>

namespace tandem { inline namespace v0 { namespace data {

const Tensor& Batch::operator[](const std::string& name) const {
  const auto found = tensors.find(name);
  if (found != tensors.end()) return found->second;
  std::string names;
  for (const auto& [other, tensor] : tensors) names += (names.empty() ? "'" : ", '") + other + "'";
  throw IndexError(
      str("Batch: no tensor '", name, "'; ", names.empty() ? "it has no named tensors" : "its tensors are " + names));
}

Dataset::~Dataset() = default;

Batch Dataset::get_batch(std::span<const int64_t> indices) const {
  return stack_examples("Dataset", indices, [this](int64_t index) { return get(index); });
}

void check_item(const char* dataset, int64_t index, int64_t size) {
  TANDEM_CHECK(IndexError, index >= 0 && index < size, dataset, ": index is ", index, ", expected 0 <= index < ", size);
}

TensorDataset::TensorDataset(Example columns) : columns_(std::move(columns)) {
  for_each_tensor(columns_, [&](std::string_view name, const Tensor& tensor) {
    TANDEM_CHECK(DeviceError, tensor.device().is_cpu(), "TensorDataset: ", name, " is on ", tensor.device(),
                 ", expected the CPU; the loader's option device copies batches");
    TANDEM_CHECK(ShapeError, tensor.dim() >= 1 && (size_ < 0 || tensor.size(0) == size_), "TensorDataset: ", name,
                 " has shape ", tensor.shape(), ", expected [", size_ < 0 ? "size" : str(size_), ", ...]");
    size_ = tensor.size(0);
  });
  TANDEM_CHECK(ValueError, size_ >= 0, "TensorDataset: no tensors, expected at least one");
}

Example TensorDataset::get(int64_t index) const {
  check_item("TensorDataset", index, size_);
  Example item = columns_;
  for_each_tensor(item, [&](std::string_view, Tensor& tensor) { tensor = row_of(tensor, index); });
  return item;
}

Subset::Subset(DatasetRef<Dataset> dataset, std::vector<int64_t> indices)
    : dataset_(std::move(dataset)), indices_(std::move(indices)) {
  for (const int64_t index : indices_) check_item("Subset", index, dataset_->size());
}

Example Subset::get(int64_t index) const {
  check_item("Subset", index, size());
  return dataset_->get(indices_[static_cast<size_t>(index)]);
}

Batch Subset::get_batch(std::span<const int64_t> indices) const {
  std::vector<int64_t> chosen;
  for (const int64_t index : indices) {
    check_item("Subset", index, size());
    chosen.push_back(indices_[static_cast<size_t>(index)]);
  }
  return dataset_->get_batch(chosen);
}

RandomSplit random_split(DatasetRef<Dataset> dataset, const std::vector<double>& lengths, uint64_t seed) {
  const auto size = static_cast<double>(dataset->size());
  double sum = 0;
  bool are_whole = true;
  for (const double length : lengths) {
    TANDEM_CHECK(ValueError, length >= 0, "random_split: a length is ", length, ", expected at least 0");
    sum += length;
    are_whole = are_whole && length == std::floor(length);
  }
  are_whole = are_whole && sum == size;
  TANDEM_CHECK(ValueError, are_whole || std::abs(sum - 1) < 1e-9, "random_split: the sum of the lengths is ", sum,
               ", expected 1 for fractions or the dataset's size ", dataset->size(), " for whole numbers");
  std::vector<int64_t> counts;
  int64_t left = dataset->size();
  for (const double length : lengths) {
    counts.push_back(static_cast<int64_t>(are_whole ? length : std::floor(length * size)));
    left -= counts.back();
  }
  for (size_t i = 0; left > 0; ++i, --left) ++counts[i % counts.size()];

  RandomSampler sampler(dataset->size(), seed);
  const std::vector<int64_t> order = sampler.begin_epoch();
  RandomSplit parts;
  auto begin = order.begin();
  for (const int64_t count : counts) {
    parts.emplace_back(dataset, std::vector<int64_t>(begin, begin + count));
    begin += count;
  }
  return parts;
}

ConcatDataset::ConcatDataset(std::vector<DatasetRef<Dataset>> datasets) : datasets_(std::move(datasets)) {
  TANDEM_CHECK(ValueError, !datasets_.empty(), "ConcatDataset: no datasets, expected at least one");
  int64_t end = 0;
  for (const auto& dataset : datasets_) ends_.push_back(end += dataset->size());
}

Example ConcatDataset::get(int64_t index) const {
  check_item("ConcatDataset", index, size());
  const auto number = static_cast<size_t>(std::upper_bound(ends_.begin(), ends_.end(), index) - ends_.begin());
  return datasets_[number]->get(number == 0 ? index : index - ends_[number - 1]);
}

}}}  // namespace tandem::v0::data
