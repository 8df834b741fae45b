// What a rank pays for each process group that it holds: threads, file descriptors and resident memory. Hosts are
// simulated by the host identity of each rank.
//
//     ./bazelw run //benchmarks:group_cost
#include <CLI/CLI.hpp>
#include <cstdint>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <iostream>
#include <iterator>
#include <memory>
#include <string>
#include <vector>

#include <unistd.h>

#include <tandem/benchmarks/support/program.h>
#include <tandem/tandem.h>

namespace td = tandem;

namespace {

constexpr int kRanks = 16;
constexpr int kGroups = 8;

struct Layout {
  const char* name;
  const char* backend;
  int num_ranks;
  int ranks_per_host;
};
constexpr Layout kLayouts[] = {{"shm, 2 ranks", "shm", 2, 2},      {"shm, 16 ranks", "shm", 16, 16},
                               {"network, 2 ranks", "gloo", 2, 2}, {"network, 16 ranks", "gloo", 16, 16},
                               {"2 hosts x 4", "auto", 8, 4},      {"4 hosts x 4", "auto", 16, 4}};

int64_t entries_of(const char* folder) {
  return std::distance(std::filesystem::directory_iterator(folder), std::filesystem::directory_iterator());
}

struct Usage {
  int64_t threads = entries_of("/proc/self/task"), descriptors = entries_of("/proc/self/fd"), bytes = 0;
  Usage() {
    int64_t pages = 0;
    std::ifstream("/proc/self/statm") >> pages >> pages;  // the second number is the resident part
    bytes = pages * sysconf(_SC_PAGESIZE);
  }
};

TANDEM_RANK_MAIN(group_cost) {
  if (context.rank() == 0) std::cout << "group               threads  descriptors  KiB   (per held group and rank)\n";
  context.group()->barrier();
  for (const Layout& layout : kLayouts) {
    if (context.rank() < layout.num_ranks) {
      std::vector<std::shared_ptr<td::distributed::ProcessGroup>> groups;
      const auto add = [&] {
        groups.push_back(td::distributed::ProcessGroup::create(
            {.store = context.store(),
             .rank = context.rank(),
             .world_size = layout.num_ranks,
             .name = td::str(layout.name, " ", groups.size()),
             .backend = layout.backend,
             .host_id = td::str("host ", context.rank() / layout.ranks_per_host)}));
        groups.back()->all_reduce(td::ones({1024}));  // all connections exist
      };
      add();  // what a process pays once
      const Usage before;
      for (int i = 0; i < kGroups; ++i) add();
      const Usage after;
      groups.front()->barrier();
      if (context.rank() == 0) {
        std::printf("%-18s  %7.1f  %11.1f  %4lld\n", layout.name,
                    static_cast<double>(after.threads - before.threads) / kGroups,
                    static_cast<double>(after.descriptors - before.descriptors) / kGroups,
                    static_cast<long long>((after.bytes - before.bytes) / kGroups / 1024));
      }
      groups.front()->barrier();
    }
    context.group()->barrier();
  }
}

}  // namespace

int main(int argc, char** argv) {
  if (const auto status = td::distributed::rank_main_entry(argc, argv)) return *status;
  CLI::App app("Measures what a rank pays for each process group");
  return td::benchmarks::run_program(
      app, argc, argv, [] { td::distributed::spawn(kRanks, "group_cost", {}); }, 1);
}
