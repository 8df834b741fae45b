#include <tandem/benchmarks/support/cases.h>

#include <tandem/examples/models/mlp.h>

namespace tandem::benchmarks {

namespace {

TrainingCase mlp() {
  constexpr int64_t kBatch = 128;
  auto model = std::make_shared<models::Mlp>();
  const Tensor images = randn({kBatch, 1, 28, 28});
  const Tensor labels = randint(0, 10, {kBatch});
  TrainingCase c;
  c.name = "mlp";
  c.items_per_step = kBatch;
  c.model = model;
  c.loss = [net = model.get(), images, labels] { return cross_entropy((*net)(images), labels); };
  c.optimizer = std::make_unique<optim::SGD>(model->parameters(), optim::SGDOptions{.lr = 0.01, .momentum = 0.9});
  return c;
}

}  // namespace

const std::vector<std::string>& case_names() {
  static const std::vector<std::string> kNames = {"mlp"};
  return kNames;
}

TrainingCase make_case(const std::string& name) {
  if (name == "mlp") return mlp();
  throw ValueError("unknown case '" + name + "'");
}

}  // namespace tandem::benchmarks
