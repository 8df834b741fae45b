// Formats results as a table like nccl-tests', with percentiles and peers, or as JSON.
#pragma once

#include <nlohmann/json.hpp>
#include <string>
#include <vector>

namespace tandem::benchmarks {

using Json = nlohmann::ordered_json;

/// Result of one size and form of an operation. Times of peers that were not measured are negative.
struct Row {
  int64_t size = 0;  ///< requested size in bytes; `bytes` is rounded to whole elements per rank
  int64_t bytes = 0;
  int64_t count = 0;
  bool in_place = false;
  double us = 0;  ///< mean time of a call on the slowest rank
  double p50_us = 0;
  double p99_us = 0;
  int64_t wrong = 0;
  double mpi_us = -1;
  double torch_us = -1;
};

/// The columns that all rows of a table share.
struct TableInfo {
  std::string op;
  std::string backend;
  std::string dtype;
  std::string redop;  ///< "sum", or "none" for operations without a reduction
  int world = 2;
  double bus_factor = 1;
  bool has_root = false;
  bool shows_mpi = false;
  bool shows_torch = false;
};

std::string to_table(const TableInfo& info, const std::vector<Row>& rows);
Json to_json(const TableInfo& info, const Row& row);

}  // namespace tandem::benchmarks
