// Ranks as processes, of which one is killed.
#pragma once

#include <chrono>
#include <csignal>
#include <cstdlib>
#include <fstream>
#include <string>

#include <gtest/gtest.h>

#include <tandem/distributed/context.h>
#include <tandem/distributed/launch.h>
#include <tandem/tensor/cuda.h>
#include <tandem/tests/distributed/notification_time.h>
#include <tandem/tests/distributed/process_ranks.h>
#include <tandem/tests/support/error_text.h>
#include <tandem/tests/support/temporary_folder.h>

namespace tandem { inline namespace v0 { namespace distributed {

/// Result file of a rank: whether it was notified of the death in time, and the error.
inline void write_notified(Context& context, const std::string& folder, std::chrono::steady_clock::time_point notified,
                           const std::string& text) {
  using Clock = std::chrono::steady_clock;
  const auto died = Clock::duration(std::stoll(context.store()->get("died", kLongTimeout)));
  const auto took = notified.time_since_epoch() - died;
  const char* const when = took < Clock::duration(0) ? "before " : took > kNotifiedWithin ? "late " : "in time ";
  std::ofstream(folder + std::to_string(context.rank())) << when << text;
}

/// Waits for the GPU's work, also after a failure.
inline void drain(Device device) {
  try {
    cuda::synchronize(device);
  } catch (const CommError&) {
  }
}

/// Called by rank 0 after the calls that must succeed. Rank 1 does not die before that.
inline void expect_death(Context& context) { context.store()->set("death_expected", "yes"); }

/// Kills the calling rank after rank 0 has called expect_death. Stores the time of death for write_notified.
[[noreturn]] inline void die(Context& context) {
  context.store()->get("death_expected", kLongTimeout);
  context.store()->set("died", std::to_string(std::chrono::steady_clock::now().time_since_epoch().count()));
  raise(SIGKILL);
  abort();
}

/// The error of rank 0 of 2 after rank 1 was killed.
inline std::string errors_after_death(const std::string& function) {
  std::string notified;
  for (int attempt = 0; attempt < 3 && !notified.starts_with("in time"); ++attempt) {  // the machine may be loaded
    const tandem::testing::TemporaryFolder folder;
    EXPECT_EQ(tandem::testing::error_text<CommError>([&] { spawn(2, function, {folder / ""}); }),
              "spawn: rank 1 of 2 failed (killed by SIGKILL)");
    notified = tandem::testing::read_file(folder / "0");
  }
  return notified;
}

}}}  // namespace tandem::v0::distributed
