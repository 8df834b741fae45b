// Thread ranks, each with a group whose tuning the test chooses.
#pragma once

#include <gtest/gtest.h>

#include <exception>
#include <functional>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include <tandem/base/error.h>
#include <tandem/distributed/backends/backend.h>
#include <tandem/distributed/backends/shm/shm_backend.h>
#include <tandem/distributed/group/process_group_access.h>
#include <tandem/distributed/store.h>

namespace tandem { inline namespace v0 { namespace distributed {

/// Number of ranks and their transport.
struct Setting {
  int world_size = 2;
  const char* backend = "";  ///< as ThreadRanks::backend
  const char* hosts = "";    ///< as ThreadRanks::hosts
};

/// "shm4", "gloo2", "aabb": in the names of tests.
inline std::string setting_name(const ::testing::TestParamInfo<Setting>& info) {
  const Setting& setting = info.param;
  if (setting.hosts[0] != 0) return setting.hosts;
  return str(setting.backend[0] != 0 ? setting.backend : "shm", setting.world_size);
}

/// Runs f(make(rank)) on one thread per rank; returns their errors by rank.
inline std::vector<std::exception_ptr> run_on_threads(int world_size,
                                                      const std::function<std::shared_ptr<ProcessGroup>(int)>& make,
                                                      const std::function<void(ProcessGroup&)>& f) {
  std::vector<std::exception_ptr> errors(static_cast<size_t>(world_size));
  std::vector<std::thread> threads;
  for (int rank = 0; rank < world_size; ++rank) {
    threads.emplace_back([&, rank] {
      try {
        const auto group = make(rank);
        try {
          f(*group);
        } catch (const std::exception& e) {
          errors[static_cast<size_t>(rank)] = std::current_exception();
          group->abort(e.what());
        }
      } catch (...) {
        errors[static_cast<size_t>(rank)] = std::current_exception();
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  return errors;
}

inline void rethrow_first(const std::vector<std::exception_ptr>& errors) {
  for (const std::exception_ptr& error : errors) {
    if (error) std::rethrow_exception(error);
  }
}

struct ThreadRanks {
  int world_size = 2;
  std::shared_ptr<Store> store = make_memory_store();
  std::string name = "default";
  std::chrono::milliseconds timeout{20000};
  shm::Tuning tuning = {};
  std::chrono::milliseconds stall = kStall;
  std::vector<int> ranks = {};  // ranks in the job
  std::string backend = {};     // as in ProcessGroupOptions; empty: shm with `tuning`
  std::string hosts = {};       // one letter per job rank: its host; empty: one host

  std::shared_ptr<ProcessGroup> make(int rank) const {
    ProcessGroupOptions options{store, rank, world_size, name, timeout, true};
    options.ranks = ranks;
    if (backend.empty()) return ProcessGroupAccess::make(options, shm::make_shm_backend(options, tuning), stall);
    options.backend = backend;
    if (!hosts.empty()) options.host_id = hosts.substr(static_cast<size_t>(job_rank(options, rank)), 1);
    return ProcessGroupAccess::make(options, make_backend(options), stall);
  }

  /// Runs f(group) on all ranks; rethrows the error of the lowest failing rank.
  void run(const std::function<void(ProcessGroup&)>& f) const {
    rethrow_first(run_on_threads(
        world_size, [this](int rank) { return make(rank); }, f));
  }
};

}}}  // namespace tandem::v0::distributed
