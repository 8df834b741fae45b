// Datasets and batches.
#pragma once

#include <concepts>
#include <cstdint>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include <tandem/base/macros.h>
#include <tandem/tensor/tensor.h>

namespace tandem { inline namespace v0 { namespace data {

/// One item of a dataset, on the CPU: an input with its target, tensors with names, or both. All items of a dataset
/// have the same tensors.
struct Example {
  Tensor input = {};                           ///< any shape and dtype; may be undefined
  Tensor target = {};                          ///< any shape and dtype; class labels are 0-dim int64; may be undefined
  std::map<std::string, Tensor> tensors = {};  ///< further tensors by name, of any shape and dtype
};

/// Examples along a new first dimension.
struct Batch {
  Tensor input = {};                           ///< [size, ...]; undefined if examples have no input
  Tensor target = {};                          ///< [size, ...]; undefined if examples have no target
  int64_t size = 0;                            ///< number of examples
  std::map<std::string, Tensor> tensors = {};  ///< [size, ...], by the names of the examples' tensors

  /// The tensor with this name. Throws IndexError, which lists all names, if the batch has no such tensor.
  TANDEM_API const Tensor& operator[](const std::string& name) const;
};

/// A map-style dataset: examples that can be read in any order. Several threads call its const members concurrently, so
/// they must be thread-safe.
class TANDEM_API Dataset {
 public:
  virtual ~Dataset();

  /// Number of items.
  virtual int64_t size() const = 0;
  /// Item `index`, 0 <= index < size(). The result depends only on the index.
  virtual Example get(int64_t index) const = 0;
  /// Stacks the items `indices` (at least one) to a batch on the CPU. Throws StateError, ShapeError or DTypeError if
  /// items have different tensors, or if a tensor's shape or dtype differs. An exception of get is rethrown with the
  /// same type and a text that names the item. Override it if reading many items together is faster.
  virtual Batch get_batch(std::span<const int64_t> indices) const;
};

/// An argument of type Base: refers to a variable, which must outlive each copy of this object, or owns a temporary
/// that is moved in. Implicit, so that functions take both. An element of a temporary container, as in
/// std::vector{a, b}[0], counts as a variable; keep the container.
template <class Base>
class DatasetRef {
 public:
  /// Refers to `dataset`.
  DatasetRef(const Base& dataset) : dataset_(std::shared_ptr<const Base>(), &dataset) {}
  /// Owns the temporary; copies of this object share it.
  template <std::derived_from<Base> D>
  DatasetRef(D&& dataset) : dataset_(std::make_shared<D>(std::move(dataset))) {}
  const Base& operator*() const { return *dataset_; }        ///< the dataset
  const Base* operator->() const { return dataset_.get(); }  ///< the dataset

 private:
  std::shared_ptr<const Base> dataset_;
};

/// Throws IndexError unless 0 <= index < size; the error text begins with `dataset`.
TANDEM_API void check_item(const char* dataset, int64_t index, int64_t size);

/// Item i has element i of each tensor: torch.utils.data.TensorDataset.
///
///     const data::TensorDataset pairs({.input = x, .target = y});
///     const data::TensorDataset named({.tensors = {{"input_ids", ids}, {"attention_mask", mask}}});
class TANDEM_API TensorDataset : public Dataset {
 public:
  /// Tensors on the CPU of shape [size, ...], which items are views of. Throws ValueError without a tensor, ShapeError
  /// for a 0-dim tensor or different sizes, DeviceError for a tensor that is not on the CPU.
  explicit TensorDataset(Example columns);
  int64_t size() const override { return size_; }
  Example get(int64_t index) const override;

 private:
  Example columns_;
  int64_t size_ = -1;
};

/// The items `indices` of another dataset (DatasetRef): torch.utils.data.Subset.
class TANDEM_API Subset : public Dataset {
 public:
  /// Throws IndexError for an index outside the dataset.
  Subset(DatasetRef<Dataset> dataset, std::vector<int64_t> indices);
  int64_t size() const override { return static_cast<int64_t>(indices_.size()); }
  Example get(int64_t index) const override;
  Batch get_batch(std::span<const int64_t> indices) const override;
  const std::vector<int64_t>& indices() const { return indices_; }  ///< the argument of the constructor

 private:
  DatasetRef<Dataset> dataset_;
  std::vector<int64_t> indices_;
};

/// The parts of random_split. `[i]` of a temporary is a temporary too, which a loader then owns.
struct RandomSplit : std::vector<Subset> {
  const Subset& operator[](size_t i) const& { return data()[i]; }  ///< part i
  Subset operator[](size_t i) && { return std::move(data()[i]); }  ///< part i, moved
};

/// Splits a dataset (DatasetRef) into disjoint random parts: torch.utils.data.random_split. `lengths` are numbers of
/// items with the sum dataset.size(), or fractions with the sum 1, which are rounded down; the remaining items are
/// distributed one by one over the parts, beginning with the first. The permutation is a function of the seed. Throws
/// ValueError for other lengths.
TANDEM_API RandomSplit random_split(DatasetRef<Dataset> dataset, const std::vector<double>& lengths, uint64_t seed = 0);

/// The items of several datasets (DatasetRef), one dataset after the other: torch.utils.data.ConcatDataset.
///
///     const data::ConcatDataset both({first, second});
class TANDEM_API ConcatDataset : public Dataset {
 public:
  /// Throws ValueError without a dataset.
  explicit ConcatDataset(std::vector<DatasetRef<Dataset>> datasets);
  int64_t size() const override { return ends_.back(); }
  Example get(int64_t index) const override;

 private:
  std::vector<DatasetRef<Dataset>> datasets_;
  std::vector<int64_t> ends_;  ///< number of items of the datasets up to each one
};

}}}  // namespace tandem::v0::data
