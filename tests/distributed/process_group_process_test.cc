// Common first uses of a process group on process ranks.
#include <gtest/gtest.h>

#include <cstdlib>
#include <cstring>
#include <fstream>
#include <set>
#include <string>
#include <vector>

#include <tandem/base/error.h>
#include <tandem/distributed/init.h>
#include <tandem/distributed/launch.h>
#include <tandem/distributed/process_group.h>
#include <tandem/tensor/factories.h>
#include <tandem/tests/distributed/failing_ranks.h>
#include <tandem/tests/support/sanitizers.h>
#include <tandem/tests/support/temporary_folder.h>

namespace {

namespace td = tandem;
using namespace td::distributed;

/// For a rank's function: fails the rank, and thereby the test.
void require(bool condition, const std::string& what) {
  if (!condition) throw td::StateError(what);
}

TANDEM_RANK_MAIN(say_hello) {
  for (const char* name : {"MASTER_ADDR", "MASTER_PORT"}) require(std::getenv(name) != nullptr, name);
  default_group()->barrier();
  std::ofstream(args.at(0), std::ios::app) << td::str("hello from rank ", get_rank(), " of ", get_world_size(), "\n");
}

TEST(ProcessGroup, ProcessesReportRankAndWorldSize) {
  const td::testing::TemporaryFolder folder;
  const std::string path = folder / "lines";
  spawn(4, "say_hello", {path});
  std::multiset<std::string> lines;
  std::ifstream in(path);
  for (std::string line; std::getline(in, line);) lines.insert(line);
  EXPECT_EQ(lines, (std::multiset<std::string>{"hello from rank 0 of 4", "hello from rank 1 of 4",
                                               "hello from rank 2 of 4", "hello from rank 3 of 4"}));
}

/// "VmRSS:", "VmHWM:".
double kib_of_process(const std::string& label) {
  std::ifstream status("/proc/self/status");
  double kib = 0;
  for (std::string word; status >> word;) {
    if (word == label) status >> kib;
  }
  require(kib > 0, label);
  return kib;
}

TANDEM_RANK_MAIN(broadcast_much) {
  [[maybe_unused]] const double program_kib = kib_of_process("VmRSS:");
  const auto group = ProcessGroup::create({.store = context.store(),
                                           .rank = context.rank(),
                                           .world_size = context.world_size(),
                                           .name = "much",
                                           .backend = args.at(0)});
  const int64_t rows = td::testing::kThreadSanitizer ? 100 : 10000;
  constexpr int64_t kColumns = 10000;
  const td::Tensor x = td::zeros({rows, kColumns}, {td::kFloat16});
  // Row r is pattern[r, r + kColumns): no two rows are equal.
  std::vector<uint16_t> pattern;
  for (uint64_t i = 0; i < 2 * kColumns; ++i) pattern.push_back(static_cast<uint16_t>(i * 2654435761u >> 13));
  auto* const bits = reinterpret_cast<uint16_t*>(x.data_ptr());
  constexpr size_t kRowBytes = kColumns * sizeof(uint16_t);
  for (int64_t r = 0; group->rank() == 1 && r < rows; ++r) {
    std::memcpy(bits + r * kColumns, pattern.data() + r, kRowBytes);
  }
  group->broadcast(x, 1);
  for (int64_t r = 0; r < rows; ++r) {
    require(std::memcmp(bits + r * kColumns, pattern.data() + r, kRowBytes) == 0, td::str("wrong elements in row ", r));
  }
#if !defined(__SANITIZE_THREAD__) && !defined(__SANITIZE_ADDRESS__)  // they keep memory of their own
  const double peak_kib = kib_of_process("VmHWM:") - program_kib;
  require(peak_kib * 1024 < 1.1 * 200e6, td::str("a peak of ", peak_kib, " KiB"));
#endif
}

TEST(Broadcast, ProcessesNeedNoSecondBuffer) {
  spawn(4, "broadcast_much", {"shm"});
  spawn(4, "broadcast_much", {"gloo"});
}

TANDEM_RANK_MAIN(mix_devices) { fail_in_the_middle(context, args, make_backend); }

TEST(ArgumentChecks, UncaughtDeviceErrorFailsOtherRanks) {
  expect_notified_after(
      0, "mix_devices", "all_reduce", "mixes_devices",
      "all_reduce: devices differ\n *output  float32 \\[3\\] on cpu\n *input   float32 \\[3\\] on cpu:1");
}

}  // namespace
