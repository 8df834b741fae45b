// Trains a small network on generated digits, on any number of processes: train --nproc 2
#include <tandem/tandem.h>
#include <tandem/train/trainer.h>

namespace td = tandem;

int main(int argc, char** argv) {
  return td::distributed::launch(argc, argv, [](td::distributed::Context& ctx) {
    td::data::DigitsDataset digits(8192, /*seed=*/1);
    td::data::DataLoader loader(digits, {.batch_size = 64, .shuffle = true, .num_workers = 1, .device = ctx.device()},
                                ctx);

    td::nn::Sequential model{td::nn::Flatten(), td::nn::Linear(784, 128), td::nn::ReLU(), td::nn::Linear(128, 10)};
    model.to(ctx.device());
    td::DistributedDataParallel ddp(model, ctx.group());
    td::optim::AdamW adam(model.parameters(), {.lr = 3e-3});

    td::train::Trainer trainer(ctx, {.epochs = 2, .out = "results"},
                               {.model = model, .reducer = ddp.reducer(), .optimizer = adam, .loader = loader});
    trainer.fit([&](const td::data::Batch& batch) { return td::cross_entropy(ddp(batch.input), batch.target); });
  });
}
