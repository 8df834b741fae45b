// Runs the collectives of OpenMPI and of PyTorch's gloo in separate processes.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace tandem::benchmarks {

/// One line of a peer's output.
struct PeerRow {
  int64_t size = 0;
  bool in_place = false;
  double us = 0;
  int64_t wrong = 0;
};

struct PeerCase {
  std::string op;
  std::string dtype;
  int world = 2;
  int64_t step_bytes = 0;  ///< number of calls: this divided by the size, clamped to [5, 500]
  std::vector<int64_t> sizes;
};

/// Compiles the MPI program into `folder` and returns its path. Throws StateError with the compiler's output.
std::string compile_mpi_peer(const std::string& folder);
/// Runs the program under mpirun. Returns no rows for reductions of bfloat16, which MPI lacks. Throws StateError if the
/// program fails.
std::vector<PeerRow> run_mpi(const std::string& program, const PeerCase& peer);
/// Runs this program under mpirun. Throws StateError if it fails.
void run_by_mpirun(int world, const std::vector<std::string>& args);
/// Runs peer_torch.py, one process per rank. Returns no rows, after a line on stderr, if PyTorch's gloo lacks the
/// operation.
std::vector<PeerRow> run_torch(const std::string& python, const PeerCase& peer);

}  // namespace tandem::benchmarks
