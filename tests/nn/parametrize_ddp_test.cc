// Parametrized layers under DistributedDataParallel.
#include <tandem/distributed/context.h>
#include <tandem/distributed/distributed_data_parallel.h>
#include <tandem/distributed/launch.h>
#include <tandem/optim/sgd.h>
#include <tandem/tests/nn/nn.h>

namespace td = tandem;
namespace nn = tandem::nn;
using td::Tensor;

namespace {

struct Net : nn::Layer {
  nn::Linear& fc = nn::weight_norm(add<nn::Linear>("fc", 3, 4));
  nn::Linear& head = nn::spectral_norm(add<nn::Linear>("head", 4, 2));
  Tensor forward(const Tensor& input) override { return head(fc(input)); }
};

template <class Model>
void train(Model& model, const std::vector<Tensor>& parameters, const Tensor& input) {
  td::optim::SGD sgd(parameters, {.lr = 0.1});
  for (int step = 0; step < 3; ++step) {
    for (const Tensor& parameter : parameters) parameter.zero_grad();
    td::mse_loss(model(input), td::zeros({input.size(0), 2}, {td::kFloat64})).backward();
    sgd.step();
  }
}

TEST(ParametrizeDdp, RanksMatchOneProcessOnTheWholeBatch) {
  td::manual_seed(1);
  Net start;
  start.to(td::kFloat64);
  const Tensor batch = td::randn({4, 3}, {td::kFloat64});
  const auto whole = nn::clone(start);
  train(*whole, whole->parameters(), batch);
  td::distributed::run_threads(2, [&](td::distributed::Context& context) {
    const auto net = nn::clone(start);
    td::DistributedDataParallel ddp(*net, context.group());
    train(ddp, net->parameters(), batch.slice(0, 2 * context.rank(), 2 * context.rank() + 2));
    for (const auto& [path, parameter] : whole->named_parameters())
      EXPECT_TRUE(td::allclose(net->get_parameter(path), parameter, 0, 1e-12)) << path;
  });
}

}  // namespace
