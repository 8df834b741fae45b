// Reads files of earlier versions, in tests/fixtures/earlier. Its README says how this program wrote them.
#include <tandem/tandem.h>
#include <tandem/tests/support/temporary_folder.h>
#include <tandem/tests/support/test.h>
#include <tandem/train/trainer.h>

namespace td = tandem;
namespace fs = std::filesystem;
using td::testing::TemporaryFolder;

namespace {

const std::string kFolder = "tests/fixtures/earlier/";
constexpr const char* kVersions[] = {"0.1.0-dev", "0.1.0"};
constexpr int kSavedStep = 6;
constexpr const char* kError = "hook 0.memory.fc1.weight.error";  // in the state of a reducer with power_sgd
const std::vector<int64_t> kTokens = {0, 1, 255, 256, 50256};

/// A tensor of each dtype.
td::io::NamedTensors tensors() {
  td::io::NamedTensors result;
  for (const td::DType dtype : {td::kBool, td::kUInt8, td::kInt8, td::kInt16, td::kInt32, td::kInt64, td::kFloat16,
                                td::kBFloat16, td::kFloat32, td::kFloat64}) {
    result.emplace_back(td::str(dtype), (td::arange(0, 6, 1, {td::kFloat64}) * 0.75).view({2, 3}).to(dtype));
  }
  result.emplace_back("scalar", td::full({}, -1.5));
  result.emplace_back("empty", td::empty({0, 2}));
  return result;
}

struct Net : td::nn::Layer {
  td::nn::Linear& fc1 = add<td::nn::Linear>("fc1", 4, 6);
  td::nn::Dropout& dropout = add<td::nn::Dropout>("dropout", 0.25);
  td::nn::Linear& fc2 = add<td::nn::Linear>("fc2", 6, 2);
  td::Tensor forward(const td::Tensor& x) override { return fc2(dropout(td::relu(fc1(x)))); }
};

struct Pair : td::nn::Module {
  Net& first = add<Net>("first");
  Net& second = add<Net>("second");
};

struct Job {
  explicit Job(td::distributed::Context& ctx)
      : sampler(48, ctx.rank(), ctx.world_size()),
        pair((td::manual_seed(4), std::make_unique<Pair>())),
        first(pair->first, ctx.group(),
              {.hooks = {td::distributed::power_sgd({.rank = 1, .start_step = 1}), td::distributed::fp16_compress()}}),
        second(pair->second, ctx.group(), {.hooks = {td::distributed::bf16_compress()}}) {}
  static td::Tensor loss(auto& net, const td::Tensor& x, double factor) {
    return td::mse_loss(net(x).to(td::kFloat32), x.narrow(1, 0, 2) * factor);
  }
  /// The loss of the first network on all data, in evaluation mode.
  double first_loss() {
    pair->eval();
    return loss(pair->first, numbers, 8).item();
  }

  td::Tensor numbers = td::arange(0, 192, 1, {td::kFloat32}).view({48, 4}) / 64 - 1;
  td::data::TensorDataset dataset{{.input = numbers}};
  td::data::DistributedSampler sampler;
  td::data::DataLoader loader{dataset, sampler, {.batch_size = 2}};
  std::unique_ptr<Pair> pair;
  td::DistributedDataParallel<Net> first, second;
  td::optim::SGD sgd{pair->first.parameters(), {.lr = 0.02, .momentum = 0.5}};
  td::optim::Adam adam{pair->second.parameters(), {.lr = 0.01}};
  td::optim::CosineAnnealingLR cosine{sgd, {.T_max = 2 * loader.size()}};
  td::optim::StepLR step_lr{adam, {.step_size = 3, .gamma = 0.5}};
};

/// Trains two networks in float16 with an optimizer each; 12 steps per epoch on two ranks. Calls use(job, trainer,
/// context) on each rank.
void train(int num_ranks, const std::string& out, td::train::TrainerOptions options,
           const std::function<void(Job&, td::train::Trainer&, td::distributed::Context&)>& use = {}) {
  options.epochs = 2;
  options.amp = td::kFloat16;
  options.out = out;
  options.save_every = 100;
  options.verbose = false;
  td::distributed::run_threads(num_ranks, [&](td::distributed::Context& ctx) {
    Job job(ctx);
    td::train::TrainerComponents components = {.model = *job.pair,
                                               .reducer = job.first.reducer(),
                                               .optimizer = job.sgd,
                                               .schedule = &job.cosine,
                                               .loader = job.loader};
    components.further.push_back(
        {.name = "second",
         .loss = [&](const td::data::Batch& batch) { return Job::loss(job.second, batch.input, -3); },
         .reducer = job.second.reducer(),
         .optimizer = job.adam,
         .schedule = &job.step_lr});
    td::train::Trainer trainer(ctx, options, components);
    trainer.fit([&](const td::data::Batch& batch) { return Job::loss(job.first, batch.input, 8); });
    if (use) use(job, trainer, ctx);
  });
}

void write(const std::string& folder) {
  train(2, folder + "/training", {.max_steps = kSavedStep});
  train(2, folder + "/whole", {});
  td::io::save_safetensors(folder + "/tensors.safetensors", tensors(), {{"key", "value"}});
  td::text::write_tokens(folder + "/tokens16", kTokens);
  td::text::write_tokens(folder + "/tokens32", kTokens, {.type = td::text::TokenType::kUInt32});
}

TEST(EarlierFiles, TensorsAndTokensAreRead) {
  const td::io::SafetensorsFile file = td::io::load_safetensors(kFolder + "tensors.safetensors");
  EXPECT_EQ(file.metadata, (td::io::Metadata{{"key", "value"}}));
  std::map<std::string, td::Tensor> read(file.tensors.begin(), file.tensors.end());
  EXPECT_EQ(read.size(), tensors().size());
  for (const auto& [name, tensor] : tensors()) EXPECT_TRUE(td::equal(read[name], tensor)) << name;
  for (const auto& [name, type] :
       {std::pair("tokens16", td::text::TokenType::kUInt16), std::pair("tokens32", td::text::TokenType::kUInt32)}) {
    std::vector<int64_t> tokens(kTokens.size());
    td::text::TokenFile(kFolder + name, 50257, type).read(0, tokens);
    EXPECT_EQ(tokens, kTokens);
  }
}

class EarlierCheckpoint : public ::testing::TestWithParam<std::tuple<const char*, int>> {};

TEST_P(EarlierCheckpoint, IsResumed) {
  const auto [version, ranks] = GetParam();
  const TemporaryFolder folder;
  const std::string out = folder / "out";
  for (const std::string& copy : {out, folder / "loaded"}) {
    fs::copy(kFolder + version, copy, fs::copy_options::recursive);
  }
  const auto saved = td::io::load_checkpoint(out + "/checkpoints");
  ASSERT_TRUE(saved);
  const auto error_of = [&](int rank) {
    const td::State state = td::io::load_checkpoint(out + "/checkpoints", rank)->state.rank;
    return state.get<td::Tensor>(std::string("gradient_hooks.") + kError);
  };
  const td::Tensor mean = (error_of(0) + error_of(1)) * 0.5;
  EXPECT_GT(mean.abs().amax({0, 1}).item(), 1e-3);
  EXPECT_LT(saved->state.shared.get<double>("scaler.scale"), 65536);  // a step was skipped
  double loss = 0;
  train(ranks, folder / "loaded", {.max_steps = kSavedStep, .resume = true},
        [&](Job& job, td::train::Trainer& trainer, td::distributed::Context& ctx) {
          EXPECT_EQ(trainer.step(), kSavedStep);
          const td::Tensor error = job.first.reducer().state_dict().get<td::Tensor>(kError);
          ctx.group()->all_reduce(error, td::distributed::ReduceOp::kAvg);
          EXPECT_LT((error - mean).abs().amax({0, 1}).item(), 1e-6);
          if (ctx.rank() == 0) loss = job.first_loss();
        });
  // Epochs have 48 items; 24 were trained. The cosine schedule ends with the last epoch.
  train(ranks, out, {.resume = true}, [&](Job& job, td::train::Trainer& trainer, td::distributed::Context& ctx) {
    EXPECT_EQ(trainer.step(), kSavedStep + 72 / (2 * ranks));
    EXPECT_NEAR(job.sgd.lr(), 0, 1e-12);
    if (ctx.rank() == 0) {
      EXPECT_LT(job.first_loss(), 0.5 * loss);
    }
  });
  if (ranks != 2) return;
  const auto expected = td::io::load_safetensors(kFolder + "trained.safetensors").tensors;
  const auto trained = td::io::load_safetensors(out + "/model.safetensors").tensors;
  ASSERT_EQ(trained.size(), expected.size());
  for (size_t i = 0; i < expected.size(); ++i) {
    EXPECT_TRUE(td::equal(trained[i].second, expected[i].second)) << expected[i].first;
  }
}

INSTANTIATE_TEST_SUITE_P(VersionsAndRanks, EarlierCheckpoint,
                         ::testing::Combine(::testing::ValuesIn(kVersions), ::testing::Values(1, 2, 3)));

}  // namespace

int main(int argc, char** argv) {
  if (argc == 3 && std::string(argv[1]) == "--write") {
    write(argv[2]);
    return 0;
  }
  ::testing::InitGoogleTest(&argc, argv);
  return RUN_ALL_TESTS();
}
