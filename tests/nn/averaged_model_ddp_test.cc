// Averages of a model that DistributedDataParallel trains.

#include <tandem/tandem.h>
#include <tandem/tests/nn/nn.h>

namespace td = tandem;
namespace nn = tandem::nn;

namespace {

TEST(AveragedModel, AveragesUnderDdpAreEqualOnAllRanks) {
  td::distributed::run_threads(2, [](td::distributed::Context& ctx) {
    td::manual_seed(static_cast<uint64_t>(ctx.rank()));
    nn::Linear model(3, 2);
    td::DistributedDataParallel ddp(model, ctx.group());
    nn::AveragedModel<nn::Linear> averaged(ddp.module(), {.avg_fn = nn::get_ema_avg_fn(0.5)}, 3, 2);
    td::optim::SGD sgd(model.parameters(), {.lr = 0.1});
    for (int step = 0; step < 3; ++step) {
      sgd.zero_grad();
      ddp(td::full({4, 3}, ctx.rank() + step)).sum().backward();
      sgd.step();
      averaged.update_parameters(ddp.module());
    }
    const td::Tensor all = td::empty({2, 2, 3});
    ctx.group()->all_gather(all, averaged.module.weight.detach());
    const auto values = all.to_vector<float>();
    EXPECT_EQ(std::vector<float>(values.begin(), values.begin() + 6),
              std::vector<float>(values.begin() + 6, values.end()));
    EXPECT_NE(averaged.module.weight.to_vector<float>(), model.weight.to_vector<float>());
  });
}

}  // namespace
