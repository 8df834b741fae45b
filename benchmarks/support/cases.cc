#include <tandem/benchmarks/support/cases.h>

#include <algorithm>
#include <utility>

#include <tandem/examples/models/dcgan.h>
#include <tandem/examples/models/gpt.h>
#include <tandem/examples/models/lenet.h>
#include <tandem/examples/models/lstm.h>
#include <tandem/examples/models/mlp.h>
#include <tandem/examples/models/mobilenet.h>
#include <tandem/examples/models/resnet.h>
#include <tandem/examples/models/unet.h>

namespace tandem::benchmarks {

namespace {

std::unique_ptr<optim::Optimizer> sgd(const nn::Module& model, double lr, double weight_decay = 0) {
  return std::make_unique<optim::SGD>(model.parameters(),
                                      optim::SGDOptions{.lr = lr, .momentum = 0.9, .weight_decay = weight_decay});
}

/// Random images in one of ten classes.
TrainingCase images(std::shared_ptr<nn::Layer> model, const Shape& shape, std::unique_ptr<optim::Optimizer> optimizer) {
  const double lr = optimizer->lr();
  return {shape[0], std::move(model), randn(shape), randint(0, 10, {shape[0]}), std::move(optimizer), lr};
}

TrainingCase mlp() {
  auto model = std::make_shared<models::Mlp>();
  return images(model, {128, 1, 28, 28}, sgd(*model, 0.01));
}

TrainingCase lenet() {
  auto model = std::make_shared<models::LeNet>();
  return images(model, {64, 1, 28, 28}, sgd(*model, 0.01));
}

TrainingCase resnet18() {
  auto model = std::make_shared<models::ResNet18>();
  TrainingCase training = images(model, {32, 3, 32, 32}, sgd(*model, 0.1, 5e-4));
  training.compared_lr = 1e-4;
  return training;
}

TrainingCase resnet50() {
  auto model = std::make_shared<models::ResNet50>();
  TrainingCase training = images(model, {256, 3, 224, 224}, sgd(*model, 0.1, 1e-4));
  training.compared_lr = 1e-4;
  return training;
}

TrainingCase mobilenet_v2() {
  auto model = std::make_shared<models::MobileNetV2>(10, /*dropout=*/0);
  TrainingCase training = images(model, {8, 3, 128, 128}, sgd(*model, 0.01, 4e-5));
  training.compared_lr = 1e-6;
  return training;
}

std::unique_ptr<optim::Optimizer> adam(const nn::Module& model, double lr, double beta1) {
  return std::make_unique<optim::Adam>(model.parameters(), optim::AdamOptions{.lr = lr, .betas = {beta1, 0.999}});
}

/// Both networks of a DCGAN are trained towards 1 (X. Mao et al., "Least squares generative adversarial networks",
/// 2017), which costs what the two steps of adversarial training cost.
TrainingCase dcgan() {
  auto model = std::make_shared<models::Dcgan>();
  constexpr double kLr = 2e-4;
  return {16, model, randn({16, 100, 1, 1}), ones({16, 1}), adam(*model, kLr, 0.5), 1e-6};
}

/// Removes the noise of random images.
TrainingCase unet() {
  auto model = std::make_shared<models::UNet>();
  constexpr double kLr = 1e-3;
  return {4, model, randn({4, 3, 64, 64}), randn({4, 3, 64, 64}), adam(*model, kLr, 0.9), 1e-4};
}

/// Random tokens with random targets.
TrainingCase gpt(const models::GptOptions& options, int64_t batch) {
  auto model = std::make_shared<models::Gpt>(options);
  const int64_t items = batch * options.context;
  constexpr double kLr = 1e-3;
  return {items,
          model,
          randint(0, options.vocabulary, {batch, options.context}),
          randint(0, options.vocabulary, {items}),
          std::make_unique<optim::AdamW>(model->parameters(), optim::AdamWOptions{.lr = kLr}),
          kLr};
}

TrainingCase gpt_small() { return gpt({.vocabulary = 65, .context = 128, .layers = 4, .heads = 4, .width = 128}, 16); }

TrainingCase gpt_384() { return gpt({.vocabulary = 65, .context = 256, .layers = 6, .heads = 6, .width = 384}, 4); }

TrainingCase gpt2_124m(int64_t batch) {
  return gpt({.vocabulary = 50304, .context = 1024, .layers = 12, .heads = 12, .width = 768}, batch);
}
TrainingCase gpt2_124m_4() { return gpt2_124m(4); }
TrainingCase gpt2_124m_64() { return gpt2_124m(64); }

TrainingCase lstm() {
  const models::LstmOptions options;
  auto model = std::make_shared<models::LstmLanguageModel>(options);
  constexpr int64_t kBatch = 32, kLength = 64;
  constexpr double kLr = 1e-3;
  return {kBatch * kLength,
          model,
          randint(0, options.vocabulary, {kBatch, kLength}),
          randint(0, options.vocabulary, {kBatch * kLength}),
          adam(*model, kLr, 0.9),
          kLr};
}

struct Case {
  const char* name;
  TrainingCase (*make)();
};
constexpr Case kCases[] = {
    {"mlp", mlp},
    {"lenet", lenet},
    {"resnet18", resnet18},
    {"mobilenet-v2", mobilenet_v2},
    {"dcgan", dcgan},
    {"unet", unet},
    {"lstm", lstm},
    {"gpt-small", gpt_small},
    {"gpt-384", gpt_384},
    {"gpt2-124m-4", gpt2_124m_4},
    {"gpt2-124m-64", gpt2_124m_64},  // the last number is the batch size; this case and the next are too large for CPUs
    {"resnet50-256", resnet50},
};

}  // namespace

const std::vector<std::string>& case_names() {
  static const std::vector<std::string> kNames = [] {
    std::vector<std::string> names;
    for (const Case& c : kCases) names.emplace_back(c.name);
    return names;
  }();
  return kNames;
}

TrainingCase make_case(const std::string& name) {
  const auto found = std::find_if(std::begin(kCases), std::end(kCases), [&](const Case& c) { return c.name == name; });
  TANDEM_CHECK(ValueError, found != std::end(kCases), "make_case: unknown case '", name, "'; see case_names()");
  return found->make();
}

distributed::CommHooks make_hooks(const std::vector<std::string>& names) {
  distributed::CommHooks hooks;
  for (const std::string& name : names) {
    if (name == "fp16") hooks.push_back(distributed::fp16_compress());
    if (name == "bf16") hooks.push_back(distributed::bf16_compress());
    if (name == "power_sgd") hooks.push_back(distributed::power_sgd({.start_step = 0}));
  }
  return hooks;
}

void move_case(TrainingCase& training, Device device) {
  training.model->to(device);
  training.input = training.input.to(device);
  training.target = training.target.to(device);
}

void save_case(const TrainingCase& training, const std::string& path) {
  State state;
  state.set("model", training.model->state_dict());
  state.set("input", training.input);
  state.set("target", training.target);
  io::save_safetensors(path, state.tensors());
}

void load_case(TrainingCase& training, const std::string& path) {
  State state;
  for (const auto& [name, tensor] : io::load_safetensors(path).tensors) state.set(name, tensor);
  training.model->load_state_dict(state.get<State>("model"));
  for (auto& [name, tensor] : {std::pair{"input", &training.input}, std::pair{"target", &training.target}}) {
    const Tensor loaded = state.get<Tensor>(name);
    TANDEM_CHECK(StateError, loaded.shape() == tensor->shape() && loaded.dtype() == tensor->dtype(), "load_case: '",
                 path, "' is not of this case: '", name, "' is ", loaded.dtype(), ' ', loaded.shape(), ", expected ",
                 tensor->dtype(), ' ', tensor->shape());
    *tensor = loaded;
  }
}

}  // namespace tandem::benchmarks
