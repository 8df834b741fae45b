#include <tandem/benchmarks/collectives/peers.h>

#include <sys/wait.h>
#include <unistd.h>

#include <cstdio>
#include <filesystem>
#include <iostream>
#include <sstream>

#include <tandem/base/error.h>

namespace tandem::benchmarks {

namespace {

/// Path of a source file of this folder in the runfiles of this program.
std::string source(const char* name) {
  const auto program = std::filesystem::read_symlink("/proc/self/exe");
  const std::string below = std::string("tandem/benchmarks/collectives/") + name;
  for (const auto& path : {std::filesystem::path(program.string() + ".runfiles") / below,
                           std::filesystem::current_path().parent_path() / below}) {
    if (std::filesystem::exists(path)) return path.string();
  }
  throw StateError(str("'", below, "' is not in the runfiles of '", program.string(), "'; start it by ./bazelw run"));
}

std::string quoted(const std::string& text) {
  std::string result = "'";
  for (const char c : text) result += c == '\'' ? std::string("'\\''") : std::string(1, c);
  return result + "'";
}

struct Outcome {
  int status = 0;
  std::string text;
};

Outcome run_shell(const std::string& command) {
  FILE* pipe = popen(command.c_str(), "r");
  TANDEM_CHECK(StateError, pipe != nullptr, "cannot start '", command, "'");
  Outcome outcome;
  char buffer[4096];
  while (const size_t n = fread(buffer, 1, sizeof buffer, pipe)) outcome.text.append(buffer, n);
  const int status = pclose(pipe);
  outcome.status = WIFEXITED(status) ? WEXITSTATUS(status) : -1;
  return outcome;
}

std::string arguments(const PeerCase& peer) {
  std::string text = str(" ", peer.op, " ", peer.dtype, " ", peer.step_bytes);
  for (const int64_t size : peer.sizes) text += str(" ", size);
  return text;
}

std::vector<PeerRow> parse(const std::string& text) {
  std::vector<PeerRow> rows;
  std::istringstream lines(text);
  for (std::string line; std::getline(lines, line);) {
    std::istringstream words(line);
    PeerRow row;
    std::string form;
    double p50 = 0, p99 = 0;
    if (!(words >> row.size >> form >> row.us >> p50 >> p99 >> row.wrong)) continue;
    row.in_place = form == "in";
    rows.push_back(row);
  }
  return rows;
}

/// Returns the output.
std::string run_mpirun(int world, const std::string& program) {
  // Like tandem's ranks: bound to one core each if there are enough cores, not bound otherwise.
  const bool enough = world <= sysconf(_SC_NPROCESSORS_ONLN);
  const std::string command = str("mpirun --allow-run-as-root --oversubscribe ",
                                  enough ? "--bind-to core" : "--bind-to none", " -np ", world, " ", program, " 2>&1");
  const Outcome outcome = run_shell(command);
  TANDEM_CHECK(StateError, outcome.status == 0, "'", command, "' failed\n", outcome.text);
  return outcome.text;
}

bool reduces(const std::string& op) { return op == "all_reduce" || op == "reduce" || op == "reduce_scatter"; }

}  // namespace

std::string compile_mpi_peer(const std::string& folder) {
  const std::string program = folder + "/peer_mpi";
  const Outcome outcome = run_shell("mpicc -O2 -o " + quoted(program) + " " + quoted(source("peer_mpi.c")) + " 2>&1");
  TANDEM_CHECK(StateError, outcome.status == 0, "--peer-mpi: mpicc failed\n", outcome.text);
  return program;
}

std::vector<PeerRow> run_mpi(const std::string& program, const PeerCase& peer) {
  if (peer.dtype != "float32" && reduces(peer.op)) return {};
  return parse(run_mpirun(peer.world, quoted(program) + arguments(peer)));
}

void run_by_mpirun(int world, const std::vector<std::string>& args) {
  std::string command = quoted(std::filesystem::read_symlink("/proc/self/exe").string());
  for (const std::string& arg : args) command += " " + quoted(arg);
  run_mpirun(world, command);
}

std::vector<PeerRow> run_torch(const std::string& python, const PeerCase& peer) {
  const int port = 20000 + static_cast<int>(getpid() % 20000);
  std::string command = str("export WORLD_SIZE=", peer.world, " MASTER_ADDR=127.0.0.1 MASTER_PORT=", port, "; ");
  for (int rank = 1; rank < peer.world; ++rank) {
    command += str("RANK=", rank, " ", quoted(python), " ", quoted(source("peer_torch.py")), arguments(peer),
                   " >/dev/null 2>&1 & ");
  }
  command += str("RANK=0 ", quoted(python), " ", quoted(source("peer_torch.py")), arguments(peer), " 2>&1; s=$?; ",
                 "wait; exit $s");
  const Outcome outcome = run_shell(command);
  if (outcome.status != 0) {
    const size_t last = outcome.text.find_last_of('\n', outcome.text.size() - 2);
    std::cerr << "# PyTorch failed in " << peer.op << " of " << peer.dtype << ": "
              << (last == std::string::npos ? outcome.text : outcome.text.substr(last + 1));
  }
  return parse(outcome.text);
}

}  // namespace tandem::benchmarks
