// Datasets of tensors, and datasets made of others.
#include <tandem/data/dataset.h>

#include <tandem/data/data_loader.h>
#include <tandem/data/stream.h>
#include <tandem/tensor/factories.h>
#include <tandem/tests/support/test.h>

namespace td = tandem;
using td::data::Batch;
using td::data::ConcatDataset;
using td::data::Example;
using td::data::Subset;
using td::data::TensorDataset;
using td::testing::error_text;

namespace {

using Indices = std::vector<int64_t>;

/// Item i has the image [10 i, 10 i + 1], the label i + first, and the tensor "half" i / 2.
TensorDataset numbers(int64_t size, int64_t first = 0) {
  std::vector<float> images, halves;
  Indices labels;
  for (int64_t i = 0; i < size; ++i) {
    images.insert(images.end(), {static_cast<float>(10 * i), static_cast<float>(10 * i + 1)});
    labels.push_back(i + first);
    halves.push_back(static_cast<float>(i) / 2);
  }
  return TensorDataset({.input = td::from_vector(images, {size, 2}),
                        .target = td::from_vector(labels, {size}),
                        .tensors = {{"half", td::from_vector(halves, {size})}}});
}

Indices labels_of(const td::data::Dataset& dataset) {
  Indices labels;
  for (int64_t i = 0; i < dataset.size(); ++i) labels.push_back(dataset.get(i).target.item<int64_t>());
  return labels;
}

/// Two items; `owner` counts the objects.
struct Counted : td::data::Dataset, td::data::IterableDataset {
  explicit Counted(std::shared_ptr<int> count) : owner(std::move(count)) {}
  int64_t size() const override { return 2; }
  Example get(int64_t index) const override { return {.target = td::scalar_tensor(index + 7, {td::kInt64})}; }
  std::unique_ptr<td::data::ExampleStream> stream(const td::data::StreamShard&) const override { return nullptr; }
  std::shared_ptr<int> owner;
};

TEST(DatasetRef, OwnsTemporariesAndRefersToVariables) {
  const auto owner = std::make_shared<int>();
  {
    const Counted variable(owner);
    td::data::SequentialSampler sampler(2);
    td::data::DataLoader over_variable(variable, sampler);
    EXPECT_EQ(&over_variable.dataset(), &variable);
    EXPECT_EQ(owner.use_count(), 2);
    const Subset subset(Counted(owner), {1, 0});
    const std::vector<Subset> parts = td::data::random_split(Counted(owner), {1, 1});
    const ConcatDataset both({Counted(owner), subset, parts[0]});
    td::data::DataLoader loader(Subset(Counted(owner), {1}), sampler);
    td::data::DataLoader over_part(td::data::random_split(Counted(owner), {0, 2})[1], sampler, {.batch_size = 2});
    EXPECT_EQ(over_part.begin()->size, 2);
    const ConcatDataset part({td::data::random_split(variable, {0, 2})[1]});
    EXPECT_EQ(labels_of(part).size(), 2u);
    const td::data::StreamLoader stream{Counted(owner)};
    EXPECT_EQ(owner.use_count(), 8);
    EXPECT_EQ(labels_of(subset), (Indices{8, 7}));
    EXPECT_EQ(labels_of(parts[0]), labels_of(both).back() == 7 ? Indices{7} : Indices{8});
    EXPECT_EQ(labels_of(both).size(), 5u);
    auto batches = td::data::DataLoader(Counted(owner), sampler, {.batch_size = 2}).begin();
    EXPECT_EQ(batches->target.to_vector<int64_t>(), (Indices{7, 8}));
  }
  EXPECT_EQ(owner.use_count(), 1);
}

TEST(TensorDataset, ItemsAreRowsOfAllTensors) {
  const TensorDataset dataset = numbers(4);
  EXPECT_EQ(dataset.size(), 4);
  const Example item = dataset.get(3);
  EXPECT_EQ(item.input.to_vector<float>(), (std::vector<float>{30, 31}));
  EXPECT_EQ(item.target.shape(), td::Shape());
  EXPECT_EQ(item.target.item<int64_t>(), 3);
  EXPECT_EQ(item.tensors.at("half").item<float>(), 1.5f);
  const Batch batch = dataset.get_batch(Indices{2, 0});
  EXPECT_EQ(batch.input.to_vector<float>(), (std::vector<float>{20, 21, 0, 1}));
  EXPECT_EQ(batch["half"].to_vector<float>(), (std::vector<float>{1, 0}));
  EXPECT_EQ(batch.size, 2);
}

TEST(TensorDataset, TensorsOfAnyStridesAndNamesAlone) {
  const td::Tensor matrix = td::from_vector<float>({1, 2, 3, 4, 5, 6}, {2, 3});
  const td::Tensor columns = td::make_view(matrix.storage(), td::kFloat32, {3, 2}, {1, 3}, 0);
  const TensorDataset dataset({.tensors = {{"column", columns}}});
  EXPECT_EQ(dataset.get(1).tensors.at("column").to_vector<float>(), (std::vector<float>{2, 5}));
  const Batch batch = dataset.get_batch(Indices{2, 0});
  EXPECT_FALSE(batch.input.defined());
  EXPECT_FALSE(batch.target.defined());
  EXPECT_EQ(batch["column"].to_vector<float>(), (std::vector<float>{3, 6, 1, 4}));
  EXPECT_ERROR(td::IndexError, batch["row"], "Batch: no tensor 'row'; its tensors are 'column'");
}

TEST(TensorDataset, InvalidTensorsAreRejected) {
  EXPECT_ERROR(td::ValueError, TensorDataset{Example()}, "TensorDataset: no tensors, expected at least one");
  EXPECT_ERROR(td::ShapeError, TensorDataset({.input = td::zeros({3, 2}), .target = td::zeros({4})}),
               "TensorDataset: the target has shape [4], expected [3, ...]");
  EXPECT_ERROR(td::ShapeError, TensorDataset({.tensors = {{"mask", td::zeros({})}}}),
               "TensorDataset: mask has shape [], expected [size, ...]");
  const TensorDataset dataset = numbers(3);
  EXPECT_ERROR(td::IndexError, dataset.get(3), "TensorDataset: index is 3, expected 0 <= index < 3");
}

/// Item i has the tensors that `make` gives.
struct Made : td::data::Dataset {
  std::function<Example(int64_t)> make;
  explicit Made(std::function<Example(int64_t)> f) : make(std::move(f)) {}
  int64_t size() const override { return 10; }
  Example get(int64_t index) const override { return make(index); }
};

TEST(Dataset, ItemsWithDifferentTensorsAreRejected) {
  const td::Tensor x = td::zeros({2});
  const auto error_of = [&](const Example& first, const Example& second) {
    const Made dataset([&](int64_t index) { return index == 0 ? first : second; });
    return error_text<td::StateError>([&] { dataset.get_batch(Indices{0, 4}); });
  };
  const std::string where = "\n  in item 4 of the dataset";
  EXPECT_EQ(error_of({.input = x, .tensors = {{"mask", x}}}, {.input = x}), "Dataset: mask is undefined" + where);
  EXPECT_EQ(error_of({.input = x}, {.input = x, .tensors = {{"mask", x}}}),
            "Dataset: mask is defined, expected undefined as in the items before" + where);
  EXPECT_EQ(error_of({.target = x}, {.input = x, .target = x}),
            "Dataset: the input is defined, expected undefined as in the items before" + where);
  EXPECT_EQ(error_of({.target = x}, {}), "Dataset: the example has no tensors" + where);
}

TEST(Subset, ItemsAndBatchesFollowTheIndices) {
  const TensorDataset dataset = numbers(6);
  const Subset subset(dataset, {5, 0, 5, 2});
  EXPECT_EQ(subset.size(), 4);
  EXPECT_EQ(labels_of(subset), (Indices{5, 0, 5, 2}));
  EXPECT_EQ(subset.get_batch(Indices{3, 0}).target.to_vector<int64_t>(), (Indices{2, 5}));
  EXPECT_ERROR(td::IndexError, Subset(dataset, {0, 6}), "Subset: index is 6, expected 0 <= index < 6");
  EXPECT_ERROR(td::IndexError, subset.get(4), "Subset: index is 4, expected 0 <= index < 4");
  EXPECT_ERROR(td::IndexError, subset.get_batch(Indices{-1}), "Subset: index is -1, expected 0 <= index < 4");
}

TEST(RandomSplit, PartsAreADisjointPermutation) {
  const TensorDataset dataset = numbers(101);
  const auto sizes_of = [&](const std::vector<double>& lengths) {
    Indices sizes;
    std::set<int64_t> all;
    for (const Subset& part : random_split(dataset, lengths, 3)) {
      sizes.push_back(part.size());
      for (const int64_t label : labels_of(part)) all.insert(label);
    }
    EXPECT_EQ(all.size(), 101u);
    return sizes;
  };
  EXPECT_EQ(sizes_of({0.8, 0.1, 0.1}), (Indices{81, 10, 10}));
  EXPECT_EQ(sizes_of({0.5, 0.5}), (Indices{51, 50}));
  EXPECT_EQ(sizes_of({100, 0, 1}), (Indices{100, 0, 1}));
  EXPECT_EQ(sizes_of({1}), Indices{101});
  const auto first = [&](uint64_t seed) { return random_split(dataset, {0.5, 0.5}, seed)[0].indices(); };
  EXPECT_EQ(first(3), first(3));
  EXPECT_NE(first(3), first(4));
  EXPECT_FALSE(std::is_sorted(first(3).begin(), first(3).end()));
}

TEST(RandomSplit, WrongLengthsAreRejected) {
  const TensorDataset dataset = numbers(10);
  EXPECT_ERROR(td::ValueError, random_split(dataset, {0.5, 0.4}),
               "random_split: the sum of the lengths is 0.9, expected 1 for fractions or the dataset's size 10 for "
               "whole numbers");
  EXPECT_THROW(random_split(dataset, {5, 4}), td::ValueError);
  EXPECT_THROW(random_split(dataset, {9.5, 0.5}), td::ValueError);
  EXPECT_ERROR(td::ValueError, random_split(dataset, {11, -1}), "random_split: a length is -1, expected at least 0");
}

TEST(ConcatDataset, ItemsFollowEachOther) {
  const TensorDataset first = numbers(2), none = numbers(0), last = numbers(3, 100);
  const ConcatDataset all({first, none, last});
  EXPECT_EQ(all.size(), 5);
  EXPECT_EQ(labels_of(all), (Indices{0, 1, 100, 101, 102}));
  EXPECT_EQ(all.get_batch(Indices{4, 1}).target.to_vector<int64_t>(), (Indices{102, 1}));
  EXPECT_ERROR(td::IndexError, all.get(5), "ConcatDataset: index is 5, expected 0 <= index < 5");
  EXPECT_ERROR(td::ValueError, ConcatDataset({}), "ConcatDataset: no datasets, expected at least one");
}

}  // namespace
