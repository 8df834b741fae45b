// Exchanges a tiny GPT-2 with Hugging Face's libraries, for tools/fixtures/check_huggingface.py.
//
//     gpt2_folder write FOLDER MAX_SHARD_SIZE  writes random weights; FOLDER/state/model.safetensors by save_state
//     gpt2_folder read FOLDER                  loads weights, and prints the skipped tensors and the report
//
// Both write FOLDER/tandem_logits.safetensors: the model's logits [2, 16, 96] of the tokens i * i % 96, i < 32.
#include <exception>
#include <filesystem>
#include <iostream>
#include <string>
#include <vector>

#include <tandem/models/gpt2.h>
#include <tandem/tandem.h>

namespace td = tandem;

namespace {

constexpr td::models::Gpt2Config kConfig = {
    .vocab_size = 96, .n_positions = 32, .n_embd = 24, .n_layer = 2, .n_head = 4};

void save_logits(td::models::Gpt2& model, const std::string& folder) {
  const td::Tensor numbers = td::arange(0, 32);
  const td::Tensor tokens = td::remainder(numbers * numbers, kConfig.vocab_size).view({2, 16});
  const td::NoGradGuard no_grad;
  model.eval();
  td::io::save_safetensors(folder + "/tandem_logits.safetensors", {{"logits", model(tokens)}});
}

void write(const std::string& folder, int64_t max_shard_size) {
  td::manual_seed(7);
  td::models::Gpt2 model(kConfig);
  for (const td::Tensor& parameter : model.parameters()) parameter.detach().normal_(0, 0.3);
  const td::State state = model.transformers_state_dict();
  td::io::save_pretrained(folder, state.tensors(), {.max_shard_size = max_shard_size});
  std::filesystem::create_directories(folder + "/state");
  td::io::save_state(folder + "/state/model.safetensors", state);
  save_logits(model, folder);
}

void read(const std::string& folder) {
  const td::io::SafetensorsFile file = td::io::load_pretrained(folder);
  for (const auto& [name, dtype] : file.skipped) std::cout << "skipped " << name << " of " << dtype << "\n";
  td::models::Gpt2 model(kConfig);
  std::cout << model.load_transformers_state_dict(file.tensors) << "\n";
  save_logits(model, folder);
}

}  // namespace

int main(int argc, char** argv) {
  const std::vector<std::string> arguments(argv + 1, argv + argc);
  try {
    if (arguments.size() == 3 && arguments[0] == "write") {
      write(arguments[1], std::stoll(arguments[2]));
    } else if (arguments.size() == 2 && arguments[0] == "read") {
      read(arguments[1]);
    } else {
      std::cerr << "usage: gpt2_folder write FOLDER MAX_SHARD_SIZE | read FOLDER\n";
      return 2;
    }
  } catch (const std::exception& error) {
    std::cerr << error.what() << "\n";
    return 1;
  }
  return 0;
}
