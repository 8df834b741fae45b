// Checkpoints of the examples: resuming from them, rejected flags, and the other files of a run.
#include <tandem/io/safetensors.h>
#include <tandem/tests/data/idx_files.h>
#include <tandem/tests/examples/run_example.h>

namespace {

using namespace tandem::testing_support;
using tandem::testing::TemporaryFolder;
namespace fs = std::filesystem;

/// Flags of a short training of the mlp on two ranks, with five steps per epoch.
Arguments training(const TemporaryFolder& data, const std::string& out, const Arguments& more) {
  return joined({"--nproc", "2", "--batch-size", "4", "--data", data.path(), "--out", out}, more);
}

class ExampleCheckpoints : public ::testing::Test {
 protected:
  ExampleCheckpoints() { write_small_data(data.path()); }
  TemporaryFolder data;
};

TEST_F(ExampleCheckpoints, ResumedRunMatchesUninterruptedRunBitExactly) {
  const std::string whole = fresh_folder("whole");
  ASSERT_EQ(run_example("mnist", training(data, whole, {"--max-steps", "17"})).status, 0);
  const std::string parts = fresh_folder("parts");
  // A checkpoint of the last step is saved although 7 is not a multiple of 3.
  const auto first = run_example("mnist", training(data, parts, {"--max-steps", "7", "--save-every", "3"}));
  ASSERT_EQ(first.status, 0) << first.err;
  EXPECT_FALSE(read_file(whole + "/model.safetensors") == read_file(parts + "/model.safetensors"));
  const auto second = run_example(
      "mnist", training(data, parts, {"--max-steps", "17", "--save-every", "3", "--async-save", "--resume"}));
  ASSERT_EQ(second.status, 0) << second.err;
  EXPECT_NE(second.out.find("\nresumed from " + parts + "/checkpoints: 7 steps of 17 done\n"), std::string::npos)
      << second.out;
  EXPECT_NE(second.out.find(" % after 17 steps\n"), std::string::npos) << second.out;
  EXPECT_TRUE(read_file(whole + "/model.safetensors") == read_file(parts + "/model.safetensors"));

  // The chart contains the steps of both runs, with validations at steps 5, 7, 10, 15 and 17.
  const std::string chart = read_file(parts + "/loss.svg");
  EXPECT_EQ(count(chart, "<circle "), 5) << chart;
  EXPECT_EQ(count(read_file(whole + "/loss.svg"), "<circle "), 4);
}

TEST_F(ExampleCheckpoints, CommHookStateIsRestoredOnResume) {
  const Arguments compressed = {"--compress", "power_sgd,bf16", "--hook-report-every", "16"};
  const auto run = [&](const std::string& out, Arguments more) {
    more.insert(more.end(), compressed.begin(), compressed.end());
    return run_example("mnist", training(data, out, more));
  };
  const std::string whole = fresh_folder("whole");
  const auto all = run(whole, {"--max-steps", "19"});
  ASSERT_EQ(all.status, 0) << all.err;
  EXPECT_NE(all.out.find("\ngradients, step 16: relative error "), std::string::npos) << all.out;
  const std::string parts = fresh_folder("parts");
  ASSERT_EQ(run(parts, {"--max-steps", "13", "--save-every", "13"}).status, 0);
  const auto resumed = run(parts, {"--max-steps", "19", "--resume"});
  ASSERT_EQ(resumed.status, 0) << resumed.err;
  EXPECT_TRUE(read_file(whole + "/model.safetensors") == read_file(parts + "/model.safetensors"));

  const auto other = run_example("mnist", training(data, parts, {"--max-steps", "19", "--resume"}));
  EXPECT_EQ(other.status, 1);
  EXPECT_NE(other.err.find("\n  --compress  checkpoint: power_sgd,bf16, now: none\n"), std::string::npos) << other.err;
}

TEST_F(ExampleCheckpoints, DividedStateResumesBitExactlyAtEveryLevel) {
  const std::string whole = fresh_folder("whole"), parts = fresh_folder("parts");
  ASSERT_EQ(run_example("mnist", training(data, whole, {"--max-steps", "12"})).status, 0);
  int64_t steps = 0;
  for (const std::string level : {"optimizer", "none", "parameters", "gradients"}) {
    const std::string end = std::to_string(steps += 3);
    const auto part = run_example(
        "mnist",
        training(data, parts, {"--max-steps", end, "--save-every", "3", "--async-save", "--resume", "--shard", level}));
    ASSERT_EQ(part.status, 0) << part.err;
  }
  EXPECT_TRUE(read_file(whole + "/model.safetensors") == read_file(parts + "/model.safetensors"));
}

TEST_F(ExampleCheckpoints, ResumingFinishedTrainingSavesTheSameWeights) {
  const std::string out = fresh_folder("done");
  ASSERT_EQ(run_example("mnist", training(data, out, {"--max-steps", "6", "--save-every", "100"})).status, 0);
  const std::string bytes = read_file(out + "/model.safetensors");
  fs::remove(out + "/model.safetensors");
  const auto again = run_example("mnist", training(data, out, {"--max-steps", "6", "--resume"}));
  ASSERT_EQ(again.status, 0) << again.err;
  EXPECT_NE(again.out.find(": 6 steps of 6 done\n"), std::string::npos) << again.out;
  EXPECT_NE(again.out.find(", test accuracy "), std::string::npos) << again.out;
  EXPECT_TRUE(read_file(out + "/model.safetensors") == bytes);
}

TEST_F(ExampleCheckpoints, ResumeWithoutCheckpointStartsFromTheBeginning) {
  const std::string plain = fresh_folder("plain");
  ASSERT_EQ(run_example("mnist", training(data, plain, {"--max-steps", "3"})).status, 0);
  const std::string out = fresh_folder("nothing");
  const auto result = run_example("mnist", training(data, out, {"--max-steps", "3", "--resume"}));
  ASSERT_EQ(result.status, 0) << result.err;
  EXPECT_NE(result.out.find("\nno checkpoint in " + out + "/checkpoints; training starts from the beginning\n"),
            std::string::npos)
      << result.out;
  EXPECT_TRUE(read_file(plain + "/model.safetensors") == read_file(out + "/model.safetensors"));
}

TEST_F(ExampleCheckpoints, ChangedFlagsAreListedAndRejected) {
  const std::string out = fresh_folder("other_flags");
  ASSERT_EQ(run_example("mnist", training(data, out, {"--max-steps", "2", "--save-every", "2"})).status, 0);
  const auto result = run_example(
      "mnist", {"--nproc", "2", "--data", data.path(), "--out", out, "--resume", "--batch-size", "5", "--model",
                "lenet", "--lr", "0.125", "--seed", "7", "--amp", "bfloat16", "--accumulate", "2"});
  EXPECT_EQ(result.status, 1);
  EXPECT_TRUE(result.err.ends_with("mnist: the checkpoints in '" + out +
                                   "/checkpoints' were saved with other settings\n"
                                   "  --model     checkpoint: mlp, now: lenet\n"
                                   "  --lr        checkpoint: 0.05, now: 0.125\n"
                                   "  --seed      checkpoint: 1, now: 7\n"
                                   "  batch_size  checkpoint: 4, now: 5\n"
                                   "  accumulate  checkpoint: 1, now: 2\n"
                                   "  amp         checkpoint: none, now: bfloat16\n"
                                   "  use the checkpoint's settings, or choose another out\n"))
      << result.err;
}

TEST_F(ExampleCheckpoints, ResumingWithFewerRanksPrintsNotice) {
  const std::string out = fresh_folder("fewer_ranks");
  ASSERT_EQ(run_example("mnist", training(data, out, {"--max-steps", "3", "--save-every", "3"})).status, 0);
  const auto result =
      run_example("mnist", {"--data", data.path(), "--out", out, "--batch-size", "4", "--max-steps", "12", "--resume"});
  EXPECT_EQ(result.status, 0) << result.err;
  EXPECT_NE(
      result.out.find(
          "\nthe checkpoint was saved by 2 ranks: with 1 the results are not bit-identical to an uninterrupted run\n"),
      std::string::npos)
      << result.out;
  EXPECT_NE(result.out.find(" % after 12 steps\n"), std::string::npos) << result.out;
}

TEST_F(ExampleCheckpoints, InterruptedTrainingResumesBitExactly) {
  const std::string out = fresh_folder("interrupted");
  const Arguments endless = training(data, out, {"--epochs", "1000000"});
  Subprocess job(example_command("mnist", endless));
  ASSERT_TRUE(job.wait_for_output("epoch 2: "));
  job.send_signal(SIGTERM);
  const auto stopped = job.wait();
  EXPECT_EQ(stopped.status, 143);
  EXPECT_NE(stopped.out.find("\ncontinue with resume\n"), std::string::npos) << stopped.out;
  const auto steps = static_cast<int64_t>(number_after(stopped.out, "\nstopped by a signal after step "));
  const std::string end = std::to_string(steps + 6);
  const auto resumed = run_example("mnist", training(data, out, {"--max-steps", end, "--resume"}));
  EXPECT_EQ(resumed.status, 0) << resumed.err;
  const std::string whole = fresh_folder("uninterrupted");
  ASSERT_EQ(run_example("mnist", training(data, whole, {"--epochs", "1000000", "--max-steps", end})).status, 0);
  EXPECT_TRUE(read_file(out + "/model.safetensors") == read_file(whole + "/model.safetensors")) << steps;
}

TEST_F(ExampleCheckpoints, RunWritesChartsAndEventFiles) {
  const std::string out = fresh_folder("charts");
  ASSERT_EQ(run_example("mnist", training(data, out, {"--epochs", "2"})).status, 0);
  const std::string loss = read_file(out + "/loss.svg");
  for (const char* text :
       {">mlp on handwritten digits</text>", ">step</text>", ">loss</text>", ">training</text>", ">test</text>"}) {
    EXPECT_NE(loss.find(text), std::string::npos) << text;
  }
  EXPECT_EQ(count(loss, "<circle "), 2);
  std::vector<std::string> events;
  for (const auto& entry : fs::directory_iterator(out + "/events")) events.push_back(read_file(entry.path()));
  ASSERT_EQ(events.size(), 1u);
  EXPECT_EQ(count(events[0], "loss/training"), 10);
  EXPECT_EQ(count(events[0], "loss/test"), 2);
  EXPECT_EQ(count(events[0], "accuracy/test"), 2);
  EXPECT_GE(count(events[0], "images per second"), 7);
  EXPECT_FALSE(fs::exists(out + "/checkpoints"));
}

}  // namespace
