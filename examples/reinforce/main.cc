// Trains a policy to balance a pole on a cart by REINFORCE, on one process or on several.
//
//     ./bazelw run //examples/reinforce -- --nproc 2
//     ./bazelw run //examples/reinforce -- --nproc 2 --max-steps 100 --save-every 20 --resume
#include <tandem/base/file.h>
#include <tandem/examples/reinforce/cart_pole.h>
#include <tandem/examples/support/flags.h>
#include <tandem/tandem.h>
#include <tandem/train/metrics.h>
#include <tandem/train/plot.h>
#include <tandem/train/trainer.h>

#include <algorithm>
#include <cmath>
#include <numeric>
#include <utility>
#include <vector>

namespace td = tandem;

namespace {

constexpr uint64_t kTestSeed = 0x7e57;  // the starts of test episodes do not depend on --seed
constexpr int64_t kTestEpisodes = 64;

struct ReinforceFlags {
  int64_t episodes = 1024;
  int64_t width = 64;
  double gamma = 0.99;
};

/// Logits of the actions in a state.
struct Policy : td::nn::Layer {
  td::nn::Linear& fc1;
  td::nn::Linear& fc2;
  explicit Policy(int64_t width)
      : fc1(add<td::nn::Linear>("fc1", 4, width)),
        fc2(add<td::nn::Linear>("fc2", width, examples::CartPoles::kNumActions)) {}
  td::Tensor forward(const td::Tensor& states) override { return fc2(td::tanh(fc1(states))); }
};

/// Initial states of episodes: all numbers are uniform in [-0.05, 0.05).
td::data::TensorDataset starts(int64_t episodes, uint64_t seed) {
  td::Generator generator(seed);
  return td::data::TensorDataset({.input = td::rand({episodes, 4}, {}, &generator) * 0.1 - 0.05});
}

/// All steps of some episodes, one after the other.
struct Steps {
  td::Tensor states;            ///< float32 [n, 4]
  td::Tensor actions;           ///< int64 [n]
  td::Tensor returns;           ///< float64 [n]: the discounted sum of the rewards from this step on
  std::vector<double> lengths;  ///< of each episode: its sum of rewards
};

/// Runs an episode from each initial state. Actions are sampled from the policy, or are the most likely actions.
Steps play(Policy& policy, const td::Tensor& starts, double gamma, bool is_greedy, td::Device device) {
  const td::NoGradGuard no_grad;
  examples::CartPoles carts(starts);
  const auto num_carts = static_cast<size_t>(carts.size());
  std::vector<std::vector<float>> states(num_carts);
  std::vector<std::vector<int64_t>> actions(num_carts);
  while (!carts.are_all_over()) {
    const td::Tensor now = carts.states();
    const td::Tensor logits = policy(now.to(device));
    const td::Tensor chosen = is_greedy ? logits.argmax(1) : td::multinomial(td::softmax(logits, 1), 1).squeeze(1);
    const std::vector<int64_t> pushes = chosen.to_vector<int64_t>();
    for (size_t i = 0; i < num_carts; ++i) {
      if (!carts.is_balanced(static_cast<int64_t>(i))) continue;
      states[i].insert(states[i].end(), now.data<float>() + 4 * i, now.data<float>() + 4 * (i + 1));
      actions[i].push_back(pushes[i]);
    }
    carts.step(pushes);
  }
  std::vector<float> all_states;
  std::vector<int64_t> all_actions;
  std::vector<double> returns, lengths;
  for (size_t i = 0; i < num_carts; ++i) {
    all_states.insert(all_states.end(), states[i].begin(), states[i].end());
    all_actions.insert(all_actions.end(), actions[i].begin(), actions[i].end());
    lengths.push_back(static_cast<double>(actions[i].size()));
    returns.resize(all_actions.size());
    double sum = 0;
    for (size_t k = 1; k <= actions[i].size(); ++k) returns[returns.size() - k] = sum = 1 + gamma * sum;
  }
  const auto count = static_cast<int64_t>(all_actions.size());
  return {td::from_vector(all_states, {count, 4}), td::from_vector(all_actions, {count}),
          td::from_vector(returns, {count}), lengths};
}

void train(td::distributed::Context& ctx, const examples::TrainingFlags& flags, const ReinforceFlags& reinforce) {
  td::manual_seed(flags.seed);
  const td::data::TensorDataset training = starts(reinforce.episodes, flags.seed);
  const td::data::TensorDataset test = starts(kTestEpisodes, kTestSeed);
  td::data::DataLoader loader(
      training, {.batch_size = flags.batch_size, .shuffle = true, .drop_last = true, .seed = flags.seed}, ctx);

  td::data::DistributedSampler test_sampler(
      test.size(), ctx.rank(), ctx.world_size(),
      {.shuffle = false, .mode = td::data::DistributedSamplerOptions::Mode::kEvaluation});
  td::data::DataLoader test_loader(test, test_sampler, {.batch_size = kTestEpisodes});

  Policy policy(reinforce.width);
  policy.to(ctx.device());
  td::DistributedDataParallel ddp(policy, ctx.group(), flags.reducer_options());
  td::optim::Adam adam(policy.parameters(), {.lr = flags.lr});
  std::vector<double> returns;                // of each step: the mean over the episodes of all ranks
  double episode_sums = 0, num_episodes = 0;  // of the batches of the current step

  td::train::TrainerOptions options = flags.trainer;
  options.name = "reinforce";
  options.title = "REINFORCE on CartPole";
  options.items = "episodes";
  options.evaluation_set = "test";
  options.after_step = [&] { returns.push_back(std::exchange(episode_sums, 0) / std::exchange(num_episodes, 0)); };
  options.identity.emplace_back("episodes", td::str(training.size()));
  td::train::Trainer trainer(
      ctx, options,
      {.model = policy,
       .reducer = ddp.reducer(),
       .optimizer = adam,
       .loader = loader,
       .state_dict =
           [&] {
             td::State state;
             const auto count = static_cast<int64_t>(returns.size());
             state.set("returns", td::from_vector(returns, {count}));
             return state;
           },
       .load_state_dict =
           [&](const td::State& state) { returns = state.get<td::Tensor>("returns").to_vector<double>(); }});
  trainer.note(td::str("policy of width ", reinforce.width, " on ", td::format_count(ctx.world_size(), "rank"), ", ",
                       training.size(), " episodes per epoch"));

  // Each step plays an episode from each start of the batch. R. Williams, "Simple statistical gradient-following
  // algorithms for connectionist reinforcement learning", Machine Learning 8, 1992: the gradient of the expected return
  // is the mean of (return - baseline) * gradient of log p(action). Returns are normalized over the steps of all ranks.
  const auto policy_loss = [&](const td::data::Batch& batch) {
    const Steps steps = play(policy, batch.input, reinforce.gamma, false, ctx.device());
    double episode_sum = 0;
    for (const double length : steps.lengths) episode_sum += length;
    const td::Tensor sums =
        td::tensor({static_cast<double>(steps.actions.size(0)), steps.returns.sum().item(),
                    steps.returns.square().sum().item(), episode_sum, static_cast<double>(batch.size)},
                   {td::kFloat64});
    ctx.group()->all_reduce(sums);
    const std::vector<double> all = sums.to_vector<double>();
    const double mean = all[1] / all[0], variance = all[2] / all[0] - mean * mean;
    episode_sums += all[3];
    num_episodes += all[4];
    const td::Tensor advantage =
        ((steps.returns - mean) / (std::sqrt(std::max(variance, 0.0)) + 1e-8)).to(td::kFloat32);
    const td::Tensor losses = td::cross_entropy(ddp(steps.states.to(ctx.device())), steps.actions.to(ctx.device()),
                                                {.reduction = td::Reduction::kNone});
    // DistributedDataParallel averages the gradients of the ranks, which have different numbers of steps.
    return (losses * advantage.to(ctx.device())).sum() * (ctx.world_size() / all[0]);
  };
  trainer.fit(policy_loss, [&] {
    td::train::Mean result({.group = ctx.group()});
    for (auto& batch : test_loader) {
      for (const double length : play(policy, batch.input, reinforce.gamma, true, ctx.device()).lengths) {
        result.update(length);
      }
    }
    return td::train::Evaluation{{"return", result.compute()}};
  });
  if (ctx.rank() != 0) return;
  std::vector<double> numbers(returns.size());
  std::iota(numbers.begin(), numbers.end(), 1);
  td::write_file("reinforce", options.out + "/returns.svg",
                 td::train::to_svg({.title = "REINFORCE on CartPole",
                                    .x_label = "step",
                                    .y_label = "mean return of an episode",
                                    .series = {{.label = "return", .x = numbers, .y = returns}},
                                    .y_from_zero = true}));
}

}  // namespace

int main(int argc, char** argv) {
  examples::TrainingFlags flags;
  flags.trainer.epochs = 5;
  flags.trainer.max_steps = 80;
  flags.batch_size = 16;
  flags.lr = 0.01;
  ReinforceFlags reinforce;
  const int status = examples::parse_training_flags(
      argc, argv,
      {.description = "Trains a policy to balance a pole on a cart by REINFORCE, on one process or on several.",
       .batch_help = "episodes per rank and step",
       .flags =
           {{.name = "--episodes", .help = "episodes per epoch", .value = &reinforce.episodes, .min = 1, .max = 1e7},
            examples::fixed_number("--width", "hidden features of the policy", &reinforce.width, 1, 65536),
            examples::fixed_number("--gamma", "discount of a reward per step", &reinforce.gamma, 0, 1)}},
      flags);
  if (status >= 0) return status;
  return td::distributed::launch(argc, argv, [&](td::distributed::Context& ctx) { train(ctx, flags, reinforce); });
}
