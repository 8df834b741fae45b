#include <tandem/benchmarks/ops/torch_ops.h>

#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>
#include <cstring>
#include <filesystem>

#include <tandem/base/error.h>
#include <tandem/ops/elementwise.h>

namespace tandem::benchmarks {

namespace {

/// Path of torch_ops.py in the runfiles of this program.
std::string script() {
  const auto program = std::filesystem::read_symlink("/proc/self/exe");
  const std::string name = "tandem/benchmarks/ops/torch_ops.py";
  for (const auto& path : {std::filesystem::path(program.string() + ".runfiles") / name,
                           std::filesystem::current_path().parent_path() / name}) {
    if (std::filesystem::exists(path)) return path.string();
  }
  throw StateError(str("'", name, "' is not in the runfiles of '", program.string(), "'; start it by ./bazelw run"));
}

}  // namespace

TorchOps::TorchOps(const std::string& python) {
  const std::string path = script();
  int request[2], answer[2];
  TANDEM_CHECK(StateError, pipe(request) == 0 && pipe(answer) == 0, "cannot create pipes");
  posix_spawn_file_actions_t actions;
  posix_spawn_file_actions_init(&actions);
  posix_spawn_file_actions_adddup2(&actions, request[0], 0);
  posix_spawn_file_actions_adddup2(&actions, answer[1], 1);
  for (const int fd : {request[0], request[1], answer[0], answer[1]}) posix_spawn_file_actions_addclose(&actions, fd);
  const char* argv[] = {python.c_str(), "-W", "ignore", path.c_str(), nullptr};
  std::signal(SIGPIPE, SIG_IGN);  // if the process dies, the missing answer is the error
  setenv("OMP_NUM_THREADS", "1", 1);
  const int error = posix_spawnp(&pid_, python.c_str(), &actions, nullptr, const_cast<char* const*>(argv), environ);
  posix_spawn_file_actions_destroy(&actions);
  close(request[0]);
  close(answer[1]);
  requests_ = fdopen(request[1], "w");
  answers_ = fdopen(answer[0], "r");
  if (error != 0) pid_ = -1;
  TANDEM_CHECK(StateError, error == 0, "--python: program '", python, "' cannot be started: ", std::strerror(error));
  try {
    version_ = read_answer().at("version").get<std::string>();
  } catch (const StateError& cause) {
    throw StateError(str("--python: ", python, " cannot import torch (", cause.what(),
                         "); give an interpreter with PyTorch: --python /path/to/python"));
  }
}

TorchOps::~TorchOps() {
  fclose(requests_);  // ends the process
  fclose(answers_);
  if (pid_ > 0) waitpid(pid_, nullptr, 0);
}

nlohmann::json TorchOps::read_answer() {
  std::string line;
  for (int c = fgetc(answers_); c != EOF && c != '\n'; c = fgetc(answers_)) line += static_cast<char>(c);
  const auto answer = nlohmann::json::parse(line, nullptr, /*allow_exceptions=*/false);
  TANDEM_CHECK(StateError, answer.is_object(), "the process ended without an answer");
  if (answer.contains("error")) throw StateError(answer["error"].get<std::string>());
  return answer;
}

void TorchOps::set_call(const std::string& expression, const TensorList& inputs) {
  nlohmann::json request = {{"expression", expression}, {"inputs", nlohmann::json::array()}};
  for (const Tensor& t : inputs) {
    request["inputs"].push_back({{"dtype", str(t.dtype())},
                                 {"shape", std::vector<int64_t>(t.shape().begin(), t.shape().end())},
                                 {"requires_grad", t.requires_grad()}});
  }
  fprintf(requests_, "%s\n", request.dump().c_str());
  for (const Tensor& t : inputs) {
    const Tensor bytes = contiguous(t.detach());
    fwrite(bytes.data_ptr(), 1, static_cast<size_t>(bytes.numel() * size_of(bytes.dtype())), requests_);
  }
  fflush(requests_);
  try {
    read_answer();
  } catch (const StateError& cause) {
    throw StateError(str("PyTorch failed in '", expression, "': ", cause.what()));
  }
}

double TorchOps::min_ms(bool both, double seconds) {
  fprintf(requests_, "%s\n", nlohmann::json({{"both", both}, {"seconds", seconds}}).dump().c_str());
  fflush(requests_);
  return read_answer().at("ms").get<double>();
}

}  // namespace tandem::benchmarks
