#include <tandem/benchmarks/collectives/table.h>

#include <cstdio>

namespace tandem::benchmarks {

namespace {

template <class... Args>
std::string format(const char* text, Args... args) {
  char line[256];
  std::snprintf(line, sizeof line, text, args...);
  return line;
}

/// GB/s as in nccl-tests: algbw for factor 1, busbw for factor bus_factor.
double bandwidth(const Row& row, double factor) {
  return row.us > 0 ? static_cast<double>(row.bytes) / row.us * 1e-3 * factor : 0;
}

std::string peer_columns(double peer_us, double us) {
  if (peer_us < 0 || us <= 0) return format(" %10s %6s", "-", "-");
  return format(" %10.2f %6.2f", peer_us, peer_us / us);
}

}  // namespace

std::string to_table(const TableInfo& info, const std::vector<Row>& rows) {
  std::string text = format("# %s, %s, %d ranks\n", info.op.c_str(), info.backend.c_str(), info.world);
  text += format("# %10s %11s %9s %7s %5s %5s %10s %8s %8s %7s %10s %10s", "size", "count", "type", "redop", "root",
                 "place", "time", "algbw", "busbw", "#wrong", "p50", "p99");
  if (info.shows_mpi) text += format(" %10s %6s", "mpi", "ratio");
  if (info.shows_torch) text += format(" %10s %6s", "torch", "ratio");
  text += format("\n# %10s %11s %9s %7s %5s %5s %10s %8s %8s %7s %10s %10s", "(B)", "(elements)", "", "", "", "",
                 "(us)", "(GB/s)", "(GB/s)", "", "(us)", "(us)");
  if (info.shows_mpi) text += format(" %10s %6s", "(us)", "");
  if (info.shows_torch) text += format(" %10s %6s", "(us)", "");
  text += "\n";
  for (const Row& row : rows) {
    text +=
        format("%12lld %11lld %9s %7s %5d %5s", static_cast<long long>(row.bytes), static_cast<long long>(row.count),
               info.dtype.c_str(), info.redop.c_str(), info.has_root ? 0 : -1, row.in_place ? "in" : "out");
    text += format(" %10.2f %8.2f %8.2f %7lld %10.2f %10.2f", row.us, bandwidth(row, 1),
                   bandwidth(row, info.bus_factor), static_cast<long long>(row.wrong), row.p50_us, row.p99_us);
    if (info.shows_mpi) text += peer_columns(row.mpi_us, row.us);
    if (info.shows_torch) text += peer_columns(row.torch_us, row.us);
    text += "\n";
  }
  return text;
}

Json to_json(const TableInfo& info, const Row& row) {
  Json json = {{"op", info.op},
               {"backend", info.backend},
               {"world", info.world},
               {"dtype", info.dtype},
               {"redop", info.redop},
               {"in_place", row.in_place},
               {"bytes", row.bytes},
               {"count", row.count},
               {"us", row.us},
               {"algbw_gbs", bandwidth(row, 1)},
               {"busbw_gbs", bandwidth(row, info.bus_factor)},
               {"wrong", row.wrong},
               {"p50_us", row.p50_us},
               {"p99_us", row.p99_us}};
  if (row.mpi_us >= 0) json["mpi_us"] = row.mpi_us;
  if (row.torch_us >= 0) json["torch_us"] = row.torch_us;
  return json;
}

}  // namespace tandem::benchmarks
