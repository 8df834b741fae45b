#include <tandem/data/collate.h>

#include <tandem/data/data_loader.h>
#include <tandem/tensor/factories.h>
#include <tandem/tests/support/test.h>

namespace td = tandem;
using td::data::Batch;
using td::data::default_collate;
using td::data::Example;
using td::data::pad_collate;

namespace {

/// Sentence i has the tokens i, i + 1, .. as image, i % 4 of them, one label per token, and a weight.
struct Sentences : td::data::Dataset {
  int64_t size() const override { return 10; }
  Example get(int64_t index) const override {
    std::vector<int64_t> tokens;
    for (int64_t i = 0; i < index % 4; ++i) tokens.push_back(index + i);
    const td::Tensor image = td::from_vector(tokens, {index % 4});
    return {.input = image, .target = image, .tensors = {{"weight", td::scalar_tensor(index * 0.5, {td::kFloat32})}}};
  }
};

TEST(DefaultCollate, StacksAsGetBatch) {
  const td::Tensor x = td::from_vector<float>({1, 2}, {2}), y = td::from_vector<float>({3, 4}, {2});
  const Batch batch =
      default_collate(std::vector<Example>{{.target = x, .tensors = {{"y", y}}}, {.target = y, .tensors = {{"y", x}}}});
  EXPECT_EQ(batch.size, 2);
  EXPECT_FALSE(batch.input.defined());
  EXPECT_EQ(batch.target.to_vector<float>(), (std::vector<float>{1, 2, 3, 4}));
  EXPECT_EQ(batch["y"].to_vector<float>(), (std::vector<float>{3, 4, 1, 2}));
  EXPECT_ERROR(
      td::ShapeError, default_collate(std::vector<Example>{{.input = x}, {.input = td::zeros({3})}}),
      "default_collate: the input has shape [3], expected [2] as in the items before\n  in example 1 of the batch");
  EXPECT_ERROR(td::ValueError, default_collate({}), "default_collate: empty batch, expected at least one example");
}

TEST(PadCollate, ExtendsToTheLongestAndKeepsLengths) {
  const Sentences sentences;
  const td::data::Collate collate = pad_collate({{"input", 0}, {"target", -100}});
  const Batch batch = collate(std::vector<Example>{sentences.get(5), sentences.get(4), sentences.get(3)});
  EXPECT_EQ(batch.size, 3);
  EXPECT_EQ(batch.input.shape(), td::Shape({3, 3}));
  EXPECT_EQ(batch.input.to_vector<int64_t>(), (std::vector<int64_t>{5, 0, 0, 0, 0, 0, 3, 4, 5}));
  EXPECT_EQ(batch.target.to_vector<int64_t>(), (std::vector<int64_t>{5, -100, -100, -100, -100, -100, 3, 4, 5}));
  EXPECT_EQ(batch["input_lengths"].to_vector<int64_t>(), (std::vector<int64_t>{1, 0, 3}));
  EXPECT_EQ(batch["target_lengths"].to_vector<int64_t>(), (std::vector<int64_t>{1, 0, 3}));
  EXPECT_EQ(batch["weight"].to_vector<float>(), (std::vector<float>{2.5, 2, 1.5}));
}

TEST(PadCollate, NamedMatricesArePaddedInTheirRows) {
  const auto boxes = [](int64_t count, double value) {
    return Example{.tensors = {{"boxes", td::full({count, 2}, value, {td::kFloat64})}}};
  };
  const Batch batch = pad_collate({{"boxes", -1}})(std::vector<Example>{boxes(1, 5), boxes(2, 6)});
  EXPECT_EQ(batch["boxes"].shape(), td::Shape({2, 2, 2}));
  EXPECT_EQ(batch["boxes"].to_vector<double>(), (std::vector<double>{5, 5, -1, -1, 6, 6, 6, 6}));
  EXPECT_EQ(batch["boxes_lengths"].to_vector<int64_t>(), (std::vector<int64_t>{1, 2}));
}

TEST(PadCollate, InvalidExamplesAreRejected) {
  const auto collate = pad_collate({{"input", 0}});
  const td::Tensor x = td::zeros({2}), matrix = td::zeros({3, 2});
  EXPECT_ERROR(td::ValueError, collate(std::vector<Example>{{.target = x}}),
               "pad_collate: no tensor 'input' in the first example of the batch");
  EXPECT_ERROR(td::ValueError, collate(std::vector<Example>{{.input = x, .tensors = {{"input_lengths", x}}}}),
               "pad_collate: example 0 has a tensor 'input_lengths' already; rename it");
  EXPECT_ERROR(td::ShapeError, collate(std::vector<Example>{{.input = x}, {.input = td::zeros({})}}),
               "pad_collate: 'input' of example 1 is 0-dim, expected at least one dimension");
  EXPECT_ERROR(
      td::ShapeError, collate(std::vector<Example>{{.input = x}, {.input = matrix}}),
      "pad_collate: the input has shape [3, 2], expected [3] as in the items before\n  in example 1 of the batch");
  EXPECT_ERROR(td::StateError, collate(std::vector<Example>{{.input = x, .target = x}, {.target = x}}),
               "pad_collate: the input is undefined\n  in example 1 of the batch");
}

TEST(DataLoader, CollateFunctionMakesTheBatchesForAnyNumberOfWorkers) {
  const Sentences sentences;
  const auto tokens_of = [&](int num_workers) {
    td::data::SequentialSampler sampler(sentences.size());
    td::data::DataLoader loader(
        sentences, sampler,
        {.batch_size = 4, .num_workers = num_workers, .collate = pad_collate({{"input", -1}, {"target", -1}})});
    std::vector<std::vector<int64_t>> tokens;
    for (auto& batch : loader) tokens.push_back(batch.input.to_vector<int64_t>());
    return tokens;
  };
  const std::vector<std::vector<int64_t>> expected = {
      {-1, -1, -1, 1, -1, -1, 2, 3, -1, 3, 4, 5}, {-1, -1, -1, 5, -1, -1, 6, 7, -1, 7, 8, 9}, {-1, 9}};
  for (const int num_workers : {0, 1, 3}) EXPECT_EQ(tokens_of(num_workers), expected) << num_workers;
}

TEST(DataLoader, CollateErrorNamesTheBatch) {
  const Sentences sentences;
  td::data::SequentialSampler sampler(sentences.size());
  for (const int num_workers : {0, 2}) {
    td::data::DataLoader loader(sentences, sampler,
                                {.batch_size = 5, .num_workers = num_workers, .collate = default_collate});
    EXPECT_ERROR(
        td::ShapeError, loader.begin(),
        "default_collate: the input has shape [1], expected [0] as in the items before\n  in example 1 of the batch"
        "\n  in batch 0 of 2, items 0, 1, 2, 3, ...");
  }
}

TEST(DataLoader, NamedTensorsAreDeliveredOnTheDevice) {
  td::set_cpu_device_count(2);
  const Sentences sentences;
  const td::Device device("cpu:1");
  for (const int num_workers : {0, 1}) {
    td::data::SequentialSampler sampler(sentences.size());
    td::data::DataLoader loader(sentences, sampler,
                                {.batch_size = 10,
                                 .num_workers = num_workers,
                                 .device = device,
                                 .collate = pad_collate({{"input", 0}, {"target", 0}})});
    for (auto& batch : loader) {
      EXPECT_EQ(batch.input.device(), device);
      EXPECT_EQ(batch["input_lengths"].device(), device);
      EXPECT_EQ(batch["weight"].device(), device);
      EXPECT_EQ(batch["weight"].to_vector<float>()[3], 1.5f);
    }
  }
}

}  // namespace
