#include <tandem/io/pretrained.h>
#include <tandem/models/gpt2.h>
#include <tandem/tests/data/idx_files.h>
#include <tandem/tests/examples/run_example.h>

namespace {

using namespace tandem::testing_support;
using tandem::testing::TemporaryFolder;

// Made by transformers, see tools/fixtures/gpt2_folder.py.
constexpr const char* kFolder = "tests/fixtures/gpt2";

std::string expected_text(const std::string& name) {
  return tandem::io::load_safetensors(std::string(kFolder) + "/expected.safetensors").metadata.at(name);
}

Arguments with_model(const Arguments& more) {
  return joined({"--model", kFolder, "--context", "16", "--batch-size", "4", "--lr", "0.002"}, more);
}

/// A text of one repeated sentence, on which the model was not trained.
std::string write_text(const TemporaryFolder& folder) {
  std::string text;
  for (int i = 0; i < 120; ++i) text += "the cat sat on the mat, and so it was.\n";
  return folder.write("cat.txt", text);
}

TEST(FinetuneGpt2Example, GreedyTextEqualsTransformers) {
  for (const std::string ranks : {"1", "2"}) {
    const auto result = run_example("finetune_gpt2", {"--model", kFolder, "--nproc", ranks, "--prompt",
                                                      expected_text("prompt"), "--max-new-tokens", "48"});
    ASSERT_EQ(result.status, 0) << result.err;
    EXPECT_EQ(result.err, "");
    EXPECT_EQ(result.out, expected_text("generated") + "\n");
  }
}

TEST(FinetuneGpt2Example, SamplesDependOnTheSeed) {
  const auto sample = [](const std::string& seed, const std::string& top_k) {
    const auto result =
        run_example("finetune_gpt2", {"--model", kFolder, "--prompt", expected_text("prompt"), "--max-new-tokens", "48",
                                      "--temperature", "1.0", "--seed", seed, "--top-k", top_k});
    EXPECT_EQ(result.status, 0) << result.err;
    return result.out;
  };
  const std::string first = sample("1", "20");
  EXPECT_EQ(first.find(expected_text("prompt")), 0u) << first;
  EXPECT_EQ(sample("1", "20"), first);
  EXPECT_NE(sample("2", "20"), first);
  EXPECT_EQ(sample("3", "1"), expected_text("generated") + "\n");
}

TEST(FinetuneGpt2Example, LearnsATextOnThreeRanksAndSavesAFolderThatItLoads) {
  const TemporaryFolder data;
  const std::string out = fresh_folder("cat");
  const auto result =
      run_example("finetune_gpt2", with_model({"--nproc", "3", "--data", write_text(data), "--epochs", "8", "--out",
                                               out, "--prompt", "the cat sat", "--max-new-tokens", "24"}));
  ASSERT_EQ(result.status, 0) << result.err;
  EXPECT_EQ(result.out.find("GPT-2 of 2 layers of width 24 on 3 ranks; cat.txt, "), 0u) << result.out;
  EXPECT_LT(number_after(result.out, "\nvalidation loss "), 1.0) << result.out;  // about 5 at the start
  const std::string folder = out + "/transformers";
  EXPECT_NE(result.out.find("\nsaved " + folder + "\n"), std::string::npos) << result.out;
  for (const char* name : {"/config.json", "/vocab.json", "/merges.txt"})
    EXPECT_EQ(read_file(folder + name), read_file(kFolder + std::string(name))) << name;
  const auto again =
      run_example("finetune_gpt2", {"--model", folder, "--prompt", "the cat sat", "--max-new-tokens", "24"});
  ASSERT_EQ(again.status, 0) << again.err;
  EXPECT_NE(again.out.find("the cat sat on the mat"), std::string::npos) << again.out;
  EXPECT_TRUE(result.out.ends_with("\n" + again.out)) << result.out << again.out;
}

TEST(FinetuneGpt2Example, RanksAndAccumulationMatchSingleRank) {
  const TemporaryFolder data, model;
  // Without dropout, which ranks draw differently.
  for (const char* name : {"vocab.json", "merges.txt", "model.safetensors"})
    model.write(name, read_file(std::string(kFolder) + "/" + name));
  const std::string config = R"({"model_type": "gpt2", "vocab_size": 640, "n_positions": 64, "n_embd": 24, "n_layer": 2,
    "n_head": 3, "resid_pdrop": 0, "embd_pdrop": 0, "attn_pdrop": 0})";
  model.write("config.json", config);
  expect_equal_training("finetune_gpt2", {"--model", model.path(), "--context", "16", "--data", write_text(data),
                                          "--max-steps", "8", "--lr", "0.0001"});
}

TEST(FinetuneGpt2Example, MissingOrWrongFilesAreRejected) {
  const auto no_model = run_example("finetune_gpt2", {"--prompt", "a"});
  EXPECT_EQ(no_model.status, 2);
  EXPECT_EQ(no_model.err, "finetune_gpt2: --model is missing; expected a folder of transformers\n");
  const TemporaryFolder model;
  const auto error = [&] {
    const auto result = run_example("finetune_gpt2", {"--model", model.path(), "--prompt", "a"});
    EXPECT_EQ(result.status, 1);
    return result.err;
  };
  EXPECT_NE(error().find("cannot open '" + model.path() + "/config.json'"), std::string::npos) << error();
  const std::string config = R"({"model_type": "gpt2", "vocab_size": 600, "n_positions": 8, "n_embd": 4, "n_layer": 1,
    "n_head": 1})";
  model.write("config.json", config);
  EXPECT_NE(error().find("has neither 'model.safetensors' nor"), std::string::npos) << error();
  const tandem::models::Gpt2 small(tandem::models::read_gpt2_config(model.path() + "/config.json"));
  tandem::io::save_pretrained(model.path(), small.transformers_state_dict().tensors());
  EXPECT_NE(error().find("cannot open '" + model.path() + "/vocab.json'"), std::string::npos) << error();
  for (const char* name : {"vocab.json", "merges.txt"}) model.write(name, read_file(kFolder + std::string("/") + name));
  EXPECT_NE(error().find("vocab.json' has 640 tokens, expected at most 600"), std::string::npos) << error();
  // Before the training.
  const auto too_long =
      run_example("finetune_gpt2", with_model({"--data", "tests/fixtures/gpt2/vocab.json", "--out",
                                               fresh_folder("too_long"), "--prompt", "a", "--max-new-tokens", "100"}));
  EXPECT_EQ(too_long.out, "");
  EXPECT_EQ(too_long.status, 1);
  EXPECT_NE(too_long.err.find("--max-new-tokens is 100, but the model has 64 positions"), std::string::npos)
      << too_long.err;
}

}  // namespace
