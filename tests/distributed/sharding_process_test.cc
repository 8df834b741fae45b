// A model that fits on no rank alone trains on four, each a process with a memory limit.
#include <gtest/gtest.h>

#include <algorithm>
#include <fstream>
#include <iomanip>
#include <optional>
#include <sstream>
#include <string>
#include <vector>

#include <tandem/distributed/distributed_data_parallel.h>
#include <tandem/distributed/launch.h>
#include <tandem/models/gpt2.h>
#include <tandem/nn/defer_guard.h>
#include <tandem/ops/loss.h>
#include <tandem/ops/random.h>
#include <tandem/ops/view.h>
#include <tandem/optim/adam.h>
#include <tandem/optim/clip_grad.h>
#include <tandem/tensor/allocator.h>
#include <tandem/tensor/generator.h>
#include <tandem/tests/support/error_text.h>

namespace tandem::distributed { namespace {

const models::Gpt2Config kConfig = {.vocab_size = 2000, .n_positions = 32, .n_embd = 64, .n_layer = 8, .n_head = 4};

// Arguments: the level, the limit in units of the state of the whole model (0: none), and a file for the losses.
TANDEM_RANK_MAIN(train_gpt2) {
  const ReducerOptions options = {.shard = args.at(0) == "none" ? Shard::kNone : Shard::kParameters};
  manual_seed(1);
  std::optional<DeferGuard> guard;
  guard.emplace();
  models::Gpt2 model(kConfig);
  guard.reset();
  const auto state_bytes = static_cast<double>(memory_plan(model, 1, {}).total());
  set_memory_limit(Device("cpu"), static_cast<int64_t>(std::stod(args.at(1)) * state_bytes));
  DistributedDataParallel ddp(model, context.group(), options);
  optim::AdamW adam(model.parameters(), {.lr = 1e-3});
  std::ostringstream losses;
  for (int step = 0; step < 20; ++step) {
    const Tensor tokens = randint(kConfig.vocab_size, {1, kConfig.n_positions + 1});
    adam.zero_grad();
    const Tensor logits = ddp(tokens.slice(1, 0, kConfig.n_positions)).flatten(0, 1);
    const Tensor loss = cross_entropy(logits, tokens.slice(1, 1, kConfig.n_positions + 1).flatten());
    loss.backward();
    adam.step();
    losses << std::setprecision(17) << loss.item() << "\n";
  }
  if (context.rank() == 0) std::ofstream(args.at(2)) << losses.str();
}

std::string losses_of(const std::string& level, const std::string& limit) {
  const std::string path = ::testing::TempDir() + "/losses-" + level;
  spawn(4, "train_gpt2", {level, limit, path});
  std::ostringstream text;
  text << std::ifstream(path).rdbuf();
  return text.str();
}

TEST(ShardingProcesses, TrainAModelThatFitsOnNoRank) {
  const std::string unlimited = losses_of("none", "0");
  EXPECT_EQ(std::count(unlimited.begin(), unlimited.end(), '\n'), 20);
  const std::string text = testing::error_text<Error>([] { losses_of("none", "1"); });
  EXPECT_NE(text.find("cpu is out of memory"), std::string::npos) << text;
  EXPECT_EQ(losses_of("parameters", "1"), unlimited);
}

}}  // namespace tandem::distributed
