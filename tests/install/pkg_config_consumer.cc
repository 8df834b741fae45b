// Trains two steps on two thread ranks, to link tensors, autograd, layers, optimizers and a process group.
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
    own::SignSGD(model.parameters()).step();
    const td::Tensor ranks = td::ones({2});
    ctx.group()->all_reduce(ranks);
    if (ctx.rank() == 0) std::printf("gradient %g, ranks %g\n", model.bias.grad().sum().item(), ranks.sum().item() / 2);
  });
}
