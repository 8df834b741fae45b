// The program of the documentation, as a user writes it: one header, one target.

#include <tandem/tandem.h>
#include <tandem/tests/support/test.h>

namespace td = tandem;

namespace {

struct Net : td::nn::Layer {
  td::nn::Linear& fc1 = add<td::nn::Linear>("fc1", 784, 64);
  td::nn::Linear& fc2 = add<td::nn::Linear>("fc2", 64, 10);
  td::Tensor forward(const td::Tensor& x) override { return fc2(td::relu(fc1(x.flatten(1)))); }
};

TEST(Tandem, DocumentedTrainingProgramReducesLoss) {
  char name[] = "program";
  char* argv[] = {name, nullptr};
  int argc = 1;
  std::vector<double> losses;
  const int status = td::distributed::launch(argc, argv, [&](td::distributed::Context& ctx) {
    td::manual_seed(1);
    const td::data::DigitsDataset digits(512, 1);
    td::data::DataLoader loader(
        digits, {.batch_size = 32, .shuffle = true, .num_workers = 1, .device = ctx.device(), .seed = 3}, ctx);
    Net model;
    model.to(ctx.device());
    td::DistributedDataParallel ddp(model, ctx.group());
    td::optim::SGD sgd(model.parameters(), {.lr = 0.05, .momentum = 0.9});
    for (int epoch = 0; epoch < 4; ++epoch) {
      double sum = 0;
      for (auto& batch : loader) {
        sgd.zero_grad();
        td::Tensor loss = td::cross_entropy(ddp(batch.input), batch.target);
        loss.backward();
        sgd.step();
        sum += loss.item();
      }
      losses.push_back(sum / static_cast<double>(loader.size()));
    }
  });
  EXPECT_EQ(status, 0);
  ASSERT_EQ(losses.size(), 4u);
  EXPECT_GT(losses[0], 1.5);  // ln 10 = 2.3 before the first step
  EXPECT_LT(losses[3], 0.8 * losses[0]);
}

TEST(Tandem, ReloadedModelGivesEqualOutputs) {
  const std::string path = ::testing::TempDir() + "/net.safetensors";
  Net model;
  td::io::save_safetensors(path, model.state_dict().tensors());
  Net other;
  td::State state;
  for (auto& [name, tensor] : td::io::load_safetensors(path).tensors) state.set(name, tensor);
  other.load_state_dict(state);
  const td::Tensor x = td::rand({3, 1, 28, 28});
  EXPECT_EQ(model(x).to_vector<float>(), other(x).to_vector<float>());
}

}  // namespace
