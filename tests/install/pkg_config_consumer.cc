// Trains one step on two thread ranks, to link tensors, autograd, layers, an optimizer, a process group and
// the parts of train/.
#include <tandem/tandem.h>

#include <cstdio>

namespace td = tandem;

int main() {
  td::distributed::run_threads(2, [](td::distributed::Context& ctx) {
    td::nn::Linear model(3, 2);
    td::DistributedDataParallel ddp(model, ctx.group());
    td::optim::SGD sgd(model.parameters(), {.lr = 0.5});
    ddp(td::ones({4, 3})).sum().backward();
    sgd.step();
    const td::Tensor ranks = td::ones({2});
    ctx.group()->all_reduce(ranks);
    td::train::Mean mean({.group = ctx.group()});
    mean.update(ctx.rank());
    const int64_t steps = td::train::TrainerOptions{.epochs = 2}.total_steps(3);
    if (mean.compute() != 0.5 || steps != 6)
      std::printf("mean %g, steps %d\n", mean.compute(), static_cast<int>(steps));
    if (ctx.rank() == 0) std::printf("gradient %g, ranks %g\n", model.bias.grad().sum().item(), ranks.sum().item() / 2);
  });
}
