#include <tandem/tests/cuda_emulation/traffic.h>

#include <algorithm>
#include <bit>
#include <map>
#include <regex>

#include <tandem/tests/cuda_emulation/symbols.h>

namespace cuda_emulation {
namespace {

constexpr uintptr_t kSectorBytes = 32;
constexpr uintptr_t kBankBytes = 4;
constexpr uint32_t kNumBanks = 32;
constexpr uint32_t kPhaseBytes = kNumBanks * kBankBytes;  // of shared memory

/// "copy_kernel<float>" for "void tandem::(anonymous namespace)::copy_kernel<float>(float*)".
std::string short_name(const std::string& name) {
  static const std::regex qualifiers(R"((\(anonymous namespace\)|[A-Za-z_]\w*)::)");
  std::string text = std::regex_replace(name, qualifiers, "");
  text = text.starts_with("void ") ? text.substr(5) : text;
  int depth = 0;
  for (size_t i = 0; i < text.size(); ++i) {
    depth += text[i] == '<' ? 1 : text[i] == '>' ? -1 : 0;
    if (text[i] == '(' && depth == 0) {
      return text.substr(0, i);
    }
  }
  return text;
}

/// Sorts the first `n` values and moves the distinct values to the front; returns their number.
template <size_t kSize>
size_t make_distinct(std::array<uintptr_t, kSize>& values, size_t n) {
  const auto end = values.begin() + static_cast<ptrdiff_t>(n);
  if (!std::is_sorted(values.begin(), end)) {
    std::sort(values.begin(), end);
  }
  return static_cast<size_t>(std::unique(values.begin(), end) - values.begin());
}

void add_to(AccessCounts& sum, const AccessCounts& other) {
  sum.requests += other.requests;
  sum.sectors += other.sectors;
  sum.bytes += other.bytes;
  sum.least_sectors += other.least_sectors;
}

}  // namespace

void KernelTraffic::add(const KernelTraffic& other) {
  launches += other.launches;
  blocks = std::max(blocks, other.blocks);
  add_to(reads, other.reads);
  add_to(writes, other.writes);
  for (size_t i = 0; i < widths.size(); ++i) {
    widths[i] += other.widths[i];
  }
  wavefronts += other.wavefronts;
  least_wavefronts += other.least_wavefronts;
}

void Traffic::begin_launch(const void* function, uint64_t num_blocks) {
  function_ = function;
  counts_ = {};
  counts_.launches = 1;
  counts_.blocks = static_cast<int64_t>(num_blocks);
  warps_ = {};
  num_requests_ = 0;
  pages_.clear();
  page_ = nullptr;
}

void Traffic::end_launch() { launches_.push_back({function_, counts_}); }

std::vector<KernelTraffic> Traffic::records() const {
  std::map<const void*, std::string> names;
  std::vector<KernelTraffic> records;
  for (const Launch& launch : launches_) {
    std::string& name = names[launch.function];
    if (name.empty()) {
      name = short_name(function_name(launch.function));
    }
    records.push_back(launch.counts);
    records.back().kernel = name;
  }
  return records;
}

// A GPU's instruction accesses 1, 2, 4, 8 or 16 bytes: a copy of another size is several, as wide as the size permits.
bool Traffic::access(uintptr_t pc, uintptr_t address, size_t num_bytes, bool writes, bool shared, uint32_t thread) {
  const size_t width = std::min<size_t>(num_bytes & -num_bytes, 16);
  for (size_t done = 0; done < num_bytes; done += width) {
    if (!add(pc, address + done, width, writes, shared, thread)) {
      return false;
    }
  }
  return true;
}

bool Traffic::add(uintptr_t pc, uintptr_t address, size_t num_bytes, bool writes, bool shared, uint32_t thread) {
  Warp& warp = warps_[thread / 32];
  const uint32_t lane = thread % 32;
  Site& site = warp.sites[pc << 8 | num_bytes << 1 | (shared ? 1 : 0)];
  if (site.requests.empty()) {
    site.num_bytes = static_cast<uint8_t>(num_bytes);
    site.writes = writes;
    site.shared = shared;
    warp.executed.push_back(&site);
  }
  const uint32_t execution = site.num_executions[lane]++;
  if (execution >= site.requests.size()) {
    if (num_requests_ == kMaxRequests) {
      return false;
    }
    ++num_requests_;
    site.requests.emplace_back();
  }
  Request& request = site.requests[execution];
  request.addresses[lane] = address;
  request.lanes |= 1U << lane;
  return true;
}

void Traffic::end_interval(uint32_t warp) {
  for (Site* site : warps_[warp].executed) {
    for (const Request& request : site->requests) {
      if (site->shared) {
        complete_shared(*site, request);
      } else {
        complete_global(*site, request);
      }
    }
    num_requests_ -= site->requests.size();
    site->requests.clear();
    site->num_executions = {};
  }
  warps_[warp].executed.clear();
}

void Traffic::complete_global(const Site& site, const Request& request) {
  AccessCounts& counts = site.writes ? counts_.writes : counts_.reads;
  const int num_lanes = std::popcount(request.lanes);
  std::array<uintptr_t, 64> sectors;  // an access of at most 16 bytes, which may be unaligned, has one or two
  size_t n = 0;
  for (uint32_t left = request.lanes; left != 0; left &= left - 1) {
    const uintptr_t address = request.addresses[static_cast<size_t>(std::countr_zero(left))];
    for (uintptr_t s = address / kSectorBytes; s <= (address + site.num_bytes - 1) / kSectorBytes; ++s) {
      sectors[n++] = s;
    }
  }
  n = make_distinct(sectors, n);
  ++counts.requests;
  counts.sectors += static_cast<int64_t>(n);
  counts.bytes += num_lanes * site.num_bytes;
  for (size_t i = 0; i < n; ++i) {
    counts.least_sectors += is_first_touch(sectors[i], site.writes) ? 1 : 0;
  }
  counts_.widths[static_cast<size_t>(std::countr_zero(site.num_bytes))] += num_lanes;
}

bool Traffic::is_first_touch(uintptr_t sector, bool writes) {
  const uintptr_t number = sector / Page{}.size();
  if (page_ == nullptr || page_number_ != number) {
    page_ = &pages_[number];
    page_number_ = number;
  }
  uint8_t& state = (*page_)[sector % Page{}.size()];
  const uint8_t bit = writes ? 2 : 1;
  const bool first = (state & bit) == 0;
  state |= bit;
  return first;
}

// A phase transfers one word of each bank. Accesses of 8 and 16 bytes take one phase per half and quarter of the warp.
void Traffic::complete_shared(const Site& site, const Request& request) {
  const uint32_t lanes_of_phase = std::min(32U, kPhaseBytes / site.num_bytes);
  for (uint32_t begin = 0; begin < 32; begin += lanes_of_phase) {
    std::array<uintptr_t, 64> words;
    size_t n = 0;
    for (uint32_t lane = begin; lane < begin + lanes_of_phase; ++lane) {
      if ((request.lanes >> lane & 1) == 0) {
        continue;
      }
      const uintptr_t address = request.addresses[lane];
      for (uintptr_t w = address / kBankBytes; w <= (address + site.num_bytes - 1) / kBankBytes; ++w) {
        words[n++] = w;
      }
    }
    n = make_distinct(words, n);
    std::array<int64_t, kNumBanks> of_bank{};
    for (size_t i = 0; i < n; ++i) {
      ++of_bank[words[i] % kNumBanks];
    }
    counts_.wavefronts += *std::max_element(of_bank.begin(), of_bank.end());
    counts_.least_wavefronts += n != 0 ? 1 : 0;
  }
}

}  // namespace cuda_emulation
