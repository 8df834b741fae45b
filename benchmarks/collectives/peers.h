// The same operations by OpenMPI and by PyTorch's gloo, as programs of their own.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace tandem::benchmarks {

/// What a peer printed for one size and form.
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
  int64_t step_bytes = 0;  ///< calls are as many as move this, within bounds
  std::vector<int64_t> sizes;
};

/// Compiles the MPI program into `folder` and returns its path.  Throws StateError with the compiler's text.
std::string compile_mpi_peer(const std::string& folder);
/// Rows of a run under mpirun; none where MPI has no such operation (sums of bfloat16).  Throws StateError if it fails.
std::vector<PeerRow> run_mpi(const std::string& program, const PeerCase& which);
/// Rows of a run by this Python, one process per rank; none where its gloo has no such operation.
std::vector<PeerRow> run_torch(const std::string& python, const PeerCase& which);

}  // namespace tandem::benchmarks
