// A program's global locale does not change what tandem writes and reads.
#include <tandem/distributed/launch.h>
#include <tandem/tandem.h>
#include <tandem/tests/support/program_locale.h>
#include <tandem/tests/support/temporary_folder.h>
#include <tandem/tests/support/test.h>
#include <tandem/train/plot.h>
#include <tandem/train/trainer.h>

namespace td = tandem;
namespace fs = std::filesystem;
using td::testing::ProgramLocale;
using td::testing::read_file;
using td::testing::TemporaryFolder;

namespace {

constexpr int64_t kStep = 1234567;

/// Writes a file of each format, and texts.
void write_files(const std::string& folder) {
  fs::create_directory(folder);
  const td::Tensor tensor = td::full({1200, 3}, 1234.5);
  td::State state;
  state.set("weight", tensor);
  state.set("lr", 1234.5);
  td::io::save_npy(folder + "/array.npy", tensor);
  td::io::save_safetensors(folder + "/weights.safetensors", {{"weight", tensor}});
  td::io::save_pretrained(folder + "/pretrained", {{"a", tensor}, {"b", tensor.clone()}}, {.max_shard_size = 15000});
  td::io::Checkpointer(folder + "/checkpoints").save(kStep, {.model = state, .shared = state, .rank = state});
  fs::remove(folder + "/checkpoints/lock");  // has the process
  td::text::write_tokens(folder + "/tokens", std::vector<int64_t>(2000, 1234));
  td::data::write_png(folder + "/image.png", td::zeros({1, 2, 1200}));
  td::profile::write_chrome_trace(folder + "/trace",
                                  {{.name = "a", .category = "op", .begin_ns = 1234567, .end_ns = 7654321}});
  const td::train::Plot plot = {"title", "x", "y", {{"loss", {1, 1234567}, {0.5, 1234.5}, true}}};
  td::testing::write_file(folder + "/plot.svg", td::train::to_svg(plot));
  td::testing::write_file(
      folder + "/texts",
      td::str(1234.5, true, td::to_string(tensor),
              td::to_string(td::MovePlan{.requirements = {}, .expected_time = std::chrono::milliseconds(1234567)}),
              td::Device("cpu:1"), td::distributed::to_string(td::distributed::OverlapReport{.step_ms = 1234.5})));
}

TEST(Locale, FilesAndTextsAreTheSame) {
  const TemporaryFolder folder;
  write_files(folder / "classic");
  const ProgramLocale locale;
  write_files(folder / "german");
  int num_files = 0;
  for (const auto& entry : fs::recursive_directory_iterator(folder / "classic")) {
    if (entry.is_directory()) continue;
    const std::string name = fs::relative(entry.path(), folder / "classic");
    EXPECT_EQ(read_file(entry.path()), read_file(folder / "german/" + name)) << name;
    ++num_files;
  }
  EXPECT_EQ(num_files, 15);
  const td::Tensor tensor = td::full({1200, 3}, 1234.5);
  EXPECT_TRUE(td::equal(td::io::load_npy(folder / "classic/array.npy"), tensor));
  EXPECT_TRUE(td::equal(td::io::load_safetensors(folder / "classic/weights.safetensors").tensors[0].second, tensor));
  EXPECT_EQ(td::io::load_pretrained(folder / "classic/pretrained").tensors.size(), 2u);
  const auto checkpoint = td::io::load_checkpoint(folder / "classic/checkpoints");
  EXPECT_EQ(checkpoint->step, kStep);
  EXPECT_EQ(checkpoint->state.shared.get<double>("lr"), 1234.5);
  EXPECT_EQ(td::text::TokenFile(folder / "classic/tokens", 50257).size(), 2000);
}

/// Trains an epoch, then resumes for another.
TANDEM_RANK_MAIN(train_and_resume) {
  std::optional<ProgramLocale> locale;
  if (args.at(1) == "german") locale.emplace();
  for (const int64_t epochs : {1, 2}) {
    td::manual_seed(1);
    td::data::DigitsDataset digits(200, 1);
    td::data::DistributedSampler sampler(digits.size(), context.rank(), context.world_size());
    td::data::DataLoader loader(digits, sampler, {.batch_size = 10, .drop_last = true});
    td::nn::Sequential net(td::nn::Flatten(), td::nn::Linear(784, 10));
    td::DistributedDataParallel ddp(net, context.group());
    td::optim::SGD sgd(net.parameters(), {.lr = 0.1});
    td::train::Trainer trainer(context, {.epochs = epochs, .out = args.at(0), .save_every = 3, .resume = epochs == 2},
                               {.model = net, .reducer = ddp.reducer(), .optimizer = sgd, .loader = loader});
    trainer.fit([&](const td::data::Batch& batch) { return td::cross_entropy(ddp(batch.input), batch.target); });
  }
}

TEST(Locale, TrainingOnTwoRanksIsResumed) {
  const TemporaryFolder folder;
  td::distributed::spawn(2, "train_and_resume", {folder / "classic", ""});
  const ProgramLocale locale;
  td::distributed::spawn(2, "train_and_resume", {folder / "german", "german"});
  for (const std::string name : {"/model.safetensors", "/loss.svg", "/checkpoints/latest"})
    EXPECT_EQ(read_file(folder / "classic" + name), read_file(folder / "german" + name)) << name;
  EXPECT_EQ(td::io::load_checkpoint(folder / "german/checkpoints")->step, 20);
}

}  // namespace
