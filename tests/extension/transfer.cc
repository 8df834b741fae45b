// Transfer learning: trains a classifier of ten digits, saves it, loads all but the last layer into a classifier of two
// classes, and trains only its new last layer. Throws unless the second one has learned.
#include <filesystem>
#include <iostream>
#include <string>

#include <unistd.h>

#include <tandem/tandem.h>
#include <tandem/train/metrics.h>

namespace td = tandem;
namespace nn = tandem::nn;

namespace {

struct Classifier : nn::Layer {
  nn::Sequential& features = add<nn::Sequential>("features");
  nn::Replaceable<nn::Layer> head = add_replaceable<nn::Layer, nn::Linear>("head", 256, 10);

  Classifier() {
    features.append<nn::Linear>(784, 256);
    features.append<nn::ReLU>();
  }
  td::Tensor forward(const td::Tensor& x) override { return head(features(x.flatten(1))); }
};

/// Digits with other labels: whether the digit is 5 or more.
struct IsLarge : td::data::Dataset {
  td::data::DigitsDataset digits{2048, /*seed=*/2};
  int64_t size() const override { return digits.size(); }
  td::data::Example get(int64_t index) const override {
    td::data::Example example = digits.get(index);
    example.target = td::full({}, example.target.item<int64_t>() >= 5 ? 1 : 0, {td::kInt64});
    return example;
  }
};

/// Trains the parameters that require grad; returns the accuracy in the last epoch.
double train(Classifier& model, const td::data::Dataset& data, td::distributed::Context& ctx, int epochs) {
  std::vector<td::Tensor> trained;
  for (const td::Tensor& parameter : model.parameters()) {
    if (parameter.requires_grad()) trained.push_back(parameter);
  }
  td::data::DataLoader loader(
      data, {.batch_size = 64 / ctx.world_size(), .shuffle = true, .device = ctx.device(), .seed = 1}, ctx);
  td::DistributedDataParallel ddp(model, ctx.group());
  td::optim::AdamW adam(trained, {.lr = 1e-2});
  td::train::Accuracy accuracy({.group = ctx.group()});
  for (int epoch = 0; epoch < epochs; ++epoch) {
    accuracy.reset();
    for (auto& batch : loader) {
      adam.zero_grad();
      const td::Tensor logits = ddp(batch.input);
      td::cross_entropy(logits, batch.target).backward();
      adam.step();
      accuracy.update(logits.detach(), batch.target);
    }
  }
  return accuracy.compute();
}

}  // namespace

int main(int argc, char** argv) {
  return td::distributed::launch(argc, argv, [](td::distributed::Context& ctx) {
    td::manual_seed(1);
    td::State weights;
    {
      Classifier model;
      model.to(ctx.device());
      train(model, td::data::DigitsDataset(2048, /*seed=*/1), ctx, 10);
      weights = model.state_dict();
      if (ctx.rank() == 0) {
        const std::string file =
            (std::filesystem::temp_directory_path() / td::str("digits-", getpid(), ".safetensors")).string();
        td::io::save_state(file, weights);
        weights = td::io::load_state(file);
        std::filesystem::remove(file);
      }
    }

    Classifier model;
    model.replace_module("head", nn::Linear(256, 2));
    td::State wanted;
    for (const auto& [key, value] : weights.tensors()) {
      if (!key.starts_with("head.")) wanted.set(key, value);
    }
    const nn::LoadReport keys = model.load_state_dict(wanted, {.strict = false});
    TANDEM_CHECK(StateError, keys.missing_keys.size() == 2 && keys.unexpected_keys.empty(),
                 "expected only the head's weight and bias to be missing");
    model.to(ctx.device());
    model.get_submodule("features").requires_grad_(false);
    const std::string frozen = td::to_string(model.get_parameter("features.0.weight").sum());
    const double accuracy = train(model, IsLarge(), ctx, 20);
    TANDEM_CHECK(StateError, td::to_string(model.get_parameter("features.0.weight").sum()) == frozen,
                 "frozen weights have changed");
    if (ctx.rank() == 0) std::cout << "accuracy of the new head " << accuracy << "\n";
    TANDEM_CHECK(StateError, accuracy > 0.9, "the accuracy is ", accuracy, ", expected more than 0.9");
  });
}
