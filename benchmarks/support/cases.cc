#include <tandem/benchmarks/support/cases.h>

#include <algorithm>
#include <utility>

#include <tandem/models/dcgan.h>
#include <tandem/models/gpt2.h>
#include <tandem/models/lenet.h>
#include <tandem/models/lstm.h>
#include <tandem/models/mlp.h>
#include <tandem/models/mobilenet.h>
#include <tandem/models/resnet.h>
#include <tandem/models/unet.h>

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
  auto model = std::make_shared<models::ResNet18>(models::ResNetOptions{.num_classes = 10, .small_images = true});
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
  auto model = std::make_shared<models::MobileNetV2>(models::MobileNetV2Options{.num_classes = 10, .dropout = 0});
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
TrainingCase gpt(models::Gpt2Config config, int64_t batch) {
  config.resid_pdrop = config.embd_pdrop = config.attn_pdrop = 0;
  auto model = std::make_shared<models::Gpt2>(config);
  const int64_t items = batch * config.n_positions;
  constexpr double kLr = 1e-3;
  return {items,
          model,
          randint(0, config.vocab_size, {batch, config.n_positions}),
          randint(0, config.vocab_size, {items}),
          std::make_unique<optim::AdamW>(model->parameters(), optim::AdamWOptions{.lr = kLr}),
          kLr};
}

TrainingCase gpt_small() {
  return gpt({.vocab_size = 65, .n_positions = 128, .n_embd = 128, .n_layer = 4, .n_head = 4}, 16);
}

TrainingCase gpt_384() {
  return gpt({.vocab_size = 65, .n_positions = 256, .n_embd = 384, .n_layer = 6, .n_head = 6}, 4);
}

TrainingCase gpt2_124m(int64_t batch) { return gpt({.vocab_size = 50304}, batch); }
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
