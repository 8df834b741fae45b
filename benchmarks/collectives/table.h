// Rows of the benchmark, and how they are shown: nccl-tests' table, with percentiles and peers.
#pragma once

#include <nlohmann/json.hpp>
#include <string>
#include <vector>

namespace tandem::benchmarks {

using Json = nlohmann::ordered_json;

/// One size and form of one operation.  A peer's time is negative where it has none.
struct Row {
  int64_t size = 0;  ///< as asked for; `bytes` is what was sent
  int64_t bytes = 0;
  int64_t count = 0;
  bool in_place = false;
  double us = 0;  ///< mean of the calls, of the slowest rank
  double p50_us = 0;
  double p99_us = 0;
  int64_t wrong = 0;
  double mpi_us = -1;
  double torch_us = -1;
};

/// What all rows of a table have in common.
struct TableInfo {
  std::string op;
  std::string backend;
  std::string dtype;
  std::string redop;  ///< "none" where nothing is reduced
  int world = 2;
  double bus_factor = 1;
  bool has_root = false;
  bool shows_mpi = false;
  bool shows_torch = false;
};

std::string to_table(const TableInfo& info, const std::vector<Row>& rows);
Json to_json(const TableInfo& info, const Row& row);

}  // namespace tandem::benchmarks
