#include <tandem/tests/data/idx_files.h>
#include <tandem/tests/examples/run_example.h>

namespace {

using namespace tandem::testing_support;
using tandem::testing::TemporaryFolder;

/// Flags of a small model.
Arguments small(const Arguments& more) {
  return joined({"--layers", "1", "--width", "16", "--heads", "2", "--context", "8", "--batch-size", "4"}, more);
}

std::string write_text(const TemporaryFolder& folder, const std::string& text, int times = 1) {
  std::string all;
  for (int i = 0; i < times; ++i) all += text;
  return folder.write("text.txt", all);
}

/// A text that changes of the documentation do not change.
std::string fixed_text() {
  std::string text;
  for (size_t i = 0; i < 4000; ++i) text += "the quick brown fox jumps over a lazy dog.\n"[(i * i / 7 + 3 * i) % 43];
  return text;
}

/// The output after the line "saved ...".
std::string sample_of(const std::string& out) {
  const size_t saved = out.rfind("\nsaved ");
  if (saved == std::string::npos) return "";
  return out.substr(out.find('\n', saved + 1) + 1);
}

TEST(LanguageModelExample, LearnsTheDocumentationAndSamplesText) {
  const std::string out = fresh_folder("docs");
  const auto result =
      run_example("language_model",
                  {"--nproc",      "2", "--layers", "1",     "--width",     "32",  "--heads",  "2",  "--context", "32",
                   "--batch-size", "8", "--lr",     "0.005", "--max-steps", "800", "--sample", "50", "--out",     out});
  ASSERT_EQ(result.status, 0) << result.err;
  EXPECT_EQ(result.err, "");
  EXPECT_EQ(result.out.find("GPT of 1 layer of width 32 on 2 ranks; tandem's documentation, "), 0u) << result.out;
  EXPECT_NE(result.out.find("\nbatch 8 per rank, 16 over all ranks; 800 steps\n"), std::string::npos) << result.out;
  EXPECT_NE(result.out.find("\nstep 100: loss "), std::string::npos) << result.out;
  EXPECT_NE(result.out.find(" after 800 steps\n"), std::string::npos) << result.out;
  // A uniform guess has about 4.5, character frequencies alone 3.2. Seeds 1 to 5 give 2.56 to 2.67; the margin allows
  // for changes of the documentation.
  EXPECT_LT(number_after(result.out, "\nvalidation loss "), 2.8) << result.out;
  const std::string sample = sample_of(result.out);
  EXPECT_EQ(sample.size(), 51u) << result.out;  // 50 characters and a newline
}

void expect_resumed_sample(const Arguments& model, const std::string& name) {
  const TemporaryFolder data;
  const std::string file = write_text(data, "abcdefgh", 200);
  Arguments training = small({"--data", file, "--max-steps", "150", "--lr", "0.02", "--save-every", "100", "--prompt",
                              "fgh", "--top-k", "1", "--sample", "20", "--out", fresh_folder(name)});
  training.insert(training.end(), model.begin(), model.end());
  const auto first = run_example("language_model", training);
  ASSERT_EQ(first.status, 0) << first.err;
  EXPECT_EQ(sample_of(first.out), "abcdefghabcdefghabcd\n");  // continues the periodic text after the prompt
  Arguments resuming = training;
  resuming.push_back("--resume");
  const auto second = run_example("language_model", resuming);
  ASSERT_EQ(second.status, 0) << second.err;
  EXPECT_NE(second.out.find(": 150 steps of 150 done\n"), std::string::npos) << second.out;
  EXPECT_EQ(sample_of(second.out), sample_of(first.out));
}

TEST(LanguageModelExample, ResumedModelReproducesItsSample) { expect_resumed_sample({}, "saved"); }

TEST(LanguageModelExample, ResumedLstmReproducesItsSample) {
  expect_resumed_sample({"--model", "lstm", "--lstm-layers", "1", "--lstm-width", "16"}, "saved_lstm");
}

TEST(LanguageModelExample, BothModelsAreDrawnInOneChart) {
  const TemporaryFolder data;
  const std::string file = write_text(data, "abcdefgh", 100);
  const std::string out = fresh_folder("both");
  Arguments arguments = small({"--model", "both", "--lstm-layers", "1", "--lstm-width", "16", "--nproc", "3", "--data",
                               file, "--max-steps", "40", "--lr", "0.02", "--save-every", "20", "--out", out});
  const auto run = [&] {
    const auto result = run_example("language_model", arguments);
    EXPECT_EQ(result.status, 0) << result.err;
    return result.out;
  };
  const std::string first = run();
  const size_t lstm = first.find("\nLSTM of 1 layer of width 16 on 3 ranks; text.txt, ");
  ASSERT_NE(lstm, std::string::npos) << first;
  EXPECT_EQ(first.find("GPT of 1 layer of width 16 on 3 ranks; text.txt, 800 characters, 8 different ones"), 0u)
      << first;
  EXPECT_LT(number_after(first.substr(0, lstm), "\nvalidation loss "), 1) << first;  // starts at ln 8 = 2.1
  EXPECT_LT(number_after(first.substr(lstm), "\nvalidation loss "), 1) << first;
  const std::string chart = read_file(out + "/loss.svg");
  for (const char* label :
       {"GPT and LSTM on text.txt", ">GPT, training<", ">GPT, validation<", ">LSTM, training<", ">LSTM, validation<"}) {
    EXPECT_NE(chart.find(label), std::string::npos) << label << "\n" << chart;
  }
  // A run that was killed while the LSTM was trained.
  const std::string weights = read_file(out + "/lstm/model.safetensors");
  std::filesystem::remove_all(out + "/lstm/checkpoints/step-00000040");
  std::filesystem::remove(out + "/loss.svg");
  arguments.push_back("--resume");
  const std::string second = run();
  EXPECT_NE(second.find(": 40 steps of 40 done\n"), std::string::npos) << second;
  EXPECT_NE(second.find(": 20 steps of 40 done\n"), std::string::npos) << second;
  EXPECT_TRUE(read_file(out + "/lstm/model.safetensors") == weights);
  EXPECT_EQ(read_file(out + "/loss.svg"), chart);
}

TEST(LanguageModelExample, LearnsWithHalfPrecisionTypes) {
  const TemporaryFolder data;
  const std::string file = write_text(data, "abcdefgh", 100);
  for (const std::string model : {"gpt", "lstm"}) {
    for (const std::string dtype : {"bfloat16", "float16"}) {
      const auto result = run_example(
          "language_model",
          small({"--model", model, "--lstm-layers", "1", "--lstm-width", "32", "--nproc", "2", "--data", file,
                 "--max-steps", "40", "--lr", "0.02", "--amp", dtype, "--out", fresh_folder(model + dtype)}));
      ASSERT_EQ(result.status, 0) << result.err;
      EXPECT_LT(number_after(result.out, "\nvalidation loss "), 0.5) << result.out;  // starts at ln 8 = 2.1
    }
  }
}

// With batches of one character, gradients overflow float16 at the initial loss scale.
TEST(LanguageModelExample, LossScaleIsRestoredOnResume) {
  const TemporaryFolder data;
  const std::string file = write_text(data, "abcdefgh", 100);
  const auto run = [&](const std::string& out, const Arguments& more) {
    Arguments arguments = {"--nproc", "2",       "--layers",  "1", "--width",      "16", "--heads", "2",
                           "--data",  file,      "--context", "1", "--batch-size", "1",  "--lr",    "0.1",
                           "--amp",   "float16", "--out",     out};
    arguments.insert(arguments.end(), more.begin(), more.end());
    const auto result = run_example("language_model", arguments);
    EXPECT_EQ(result.status, 0) << result.err;
    return result.out;
  };
  const std::string skipped = "step 1 skipped: gradients are not finite; loss scale reduced to 32768\n";
  const std::string whole = fresh_folder("whole"), parts = fresh_folder("parts");
  // The schedule depends on the number of steps, so the interrupted run is made from the checkpoints of the whole run.
  EXPECT_NE(run(whole, {"--max-steps", "12", "--save-every", "6"}).find(skipped), std::string::npos);
  std::filesystem::create_directories(parts);
  std::filesystem::copy(whole + "/checkpoints", parts + "/checkpoints", std::filesystem::copy_options::recursive);
  std::filesystem::remove_all(parts + "/checkpoints/step-00000012");
  const std::string rest = run(parts, {"--max-steps", "12", "--save-every", "6", "--resume"});
  EXPECT_NE(rest.find(": 6 steps of 12 done\n"), std::string::npos) << rest;
  EXPECT_EQ(rest.find(" skipped: "), std::string::npos) << rest;
  EXPECT_TRUE(read_file(whole + "/model.safetensors") == read_file(parts + "/model.safetensors"));
}

void expect_equal_training_of(const Arguments& model) {
  const TemporaryFolder data;
  Arguments arguments = {"--data", write_text(data, fixed_text()), "--context", "8", "--max-steps", "8", "--lr",
                         "0.005"};
  arguments.insert(arguments.end(), model.begin(), model.end());
  expect_equal_training("language_model", arguments);
}

TEST(LanguageModelExample, RanksAndAccumulationMatchSingleRank) {
  expect_equal_training_of({"--layers", "1", "--width", "16", "--heads", "2"});
}

TEST(LanguageModelExample, LstmRanksAndAccumulationMatchSingleRank) {
  expect_equal_training_of({"--model", "lstm", "--lstm-layers", "2", "--lstm-width", "16"});
}

TEST(LanguageModelExample, MissingOrShortTextIsRejected) {
  const TemporaryFolder data;
  const std::string out = fresh_folder("rejected");
  const std::string missing = data.path() + "/missing.txt";
  const auto no_file = run_example("language_model", small({"--data", missing, "--out", out}));
  EXPECT_EQ(no_file.status, 1);
  EXPECT_NE(no_file.err.find(missing), std::string::npos) << no_file.err;
  const auto too_short = run_example("language_model", small({"--data", write_text(data, "hello"), "--out", out}));
  EXPECT_EQ(too_short.status, 1);
  EXPECT_NE(too_short.err.find("4 tokens, expected at least context + 1 = 9"), std::string::npos) << too_short.err;
}

TEST(LanguageModelExample, PromptOutsideTheVocabularyIsRejected) {
  const TemporaryFolder data;
  const auto result =
      run_example("language_model", small({"--data", write_text(data, "abcd", 100), "--max-steps", "1", "--sample", "5",
                                           "--prompt", "abz", "--out", fresh_folder("prompt")}));
  EXPECT_EQ(result.status, 1);
  EXPECT_NE(result.err.find("the byte 122 at position 2 is not in the vocabulary"), std::string::npos) << result.err;
  EXPECT_EQ(result.out, "");  // rejected before training
}

TEST(LanguageModelExample, HelpListsFlagsAndInvalidWidthIsRejected) {
  const auto result = run_example("language_model", {"--help"});
  EXPECT_EQ(result.status, 0);
  for (const char* flag : {"--model", "--lstm-layers", "--lstm-width", "--layers", "--width", "--heads", "--context",
                           "--dropout", "--sample", "--prompt", "--temperature", "--top-k", "--nproc", "--data"}) {
    EXPECT_NE(result.out.find(flag), std::string::npos) << flag;
  }
  const auto wrong = run_example("language_model", {"--width", "0"});
  EXPECT_EQ(wrong.status, 2);
  EXPECT_EQ(
      wrong.err,
      "language_model: --width: expected a whole number from 1 to 65536, got '0'\nusage: language_model [--nproc N] "
      "[FLAG VALUE]...; --help lists all flags\n");
}

}  // namespace
