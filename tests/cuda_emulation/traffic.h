// Counts the memory accesses of kernels as requests of warps, the unit of a GPU's memory system.
//
// A request is the accesses of a warp's lanes to one instruction, which the return address of the hook identifies, the
// n-th time that each lane executes it. Lanes run one after another, so a request is collected until its warp
// synchronizes, and n starts at zero again: at a barrier, at a shuffle of all lanes, and when all lanes have
// ended.
#pragma once

#include <array>
#include <cstdint>
#include <unordered_map>
#include <vector>

#include <cuda_emulation/control.h>

namespace cuda_emulation {

class Traffic {
 public:
  /// Discards the requests of a launch that failed.
  void begin_launch(const void* function, uint64_t num_blocks);
  void end_launch();
  /// The launches that have ended, in their order.
  std::vector<KernelTraffic> records() const;

  /// Adds an access of a thread that is not atomic. False if too many requests are incomplete.
  [[nodiscard]] bool access(uintptr_t pc, uintptr_t address, size_t num_bytes, bool writes, bool shared,
                            uint32_t thread);
  /// Completes the requests of a warp.
  void end_interval(uint32_t warp);

  static constexpr size_t kMaxRequests = size_t{1} << 18;  // maximum number of incomplete requests: 66 MiB

 private:
  struct Request {
    std::array<uintptr_t, 32> addresses;
    uint32_t lanes = 0;  // bit set of the lanes that have an address
  };
  /// An instruction that a warp has executed.
  struct Site {
    uint8_t num_bytes = 0;
    bool writes = false, shared = false;
    std::array<uint32_t, 32> num_executions{};  // per lane, in this interval
    std::vector<Request> requests;              // of this interval, by execution
  };
  struct Warp {
    std::unordered_map<uint64_t, Site> sites;
    std::vector<Site*> executed;  // in this interval
  };

  bool add(uintptr_t pc, uintptr_t address, size_t num_bytes, bool writes, bool shared, uint32_t thread);
  void complete_global(const Site& site, const Request& request);
  void complete_shared(const Site& site, const Request& request);
  bool is_first_touch(uintptr_t sector, bool writes);

  struct Launch {
    const void* function;
    KernelTraffic counts;
  };
  std::vector<Launch> launches_;
  const void* function_ = nullptr;
  KernelTraffic counts_;  // of the current launch
  std::array<Warp, 32> warps_;
  size_t num_requests_ = 0;  // number of incomplete requests

  using Page = std::array<uint8_t, 128>;  // for each sector of 4 KiB: 1: was read, 2: was written
  std::unordered_map<uintptr_t, Page> pages_;
  uintptr_t page_number_ = 0;
  Page* page_ = nullptr;  // the page that was used last
};

}  // namespace cuda_emulation
