#include <tandem/distributed/ddp/bucket_plan.h>

#include <algorithm>

#include <tandem/base/math.h>

namespace tandem { inline namespace v0 { namespace distributed {

namespace {

constexpr int64_t kAlignBytes = 64;

std::string module_of(const std::string& name) {
  const size_t dot = name.rfind('.');
  return dot == std::string::npos ? name : name.substr(0, dot);
}

/// Consecutive parameters of one module in one buffer; elements [begin, end).
struct Run {
  int64_t begin;
  int64_t end;
  int first_parameter;
  int last_parameter;
};

/// Splits the runs of one buffer into buckets.
void cut(int buffer, int64_t element_bytes, const std::vector<Run>& runs, const BucketSizes& sizes,
         std::vector<BucketPlan::Bucket>& buckets) {
  const auto bytes = [&](int64_t begin, int64_t end) { return (end - begin) * element_bytes; };
  const int64_t align = kAlignBytes / element_bytes;
  const int64_t cap = std::max(round_up(sizes.bucket_bytes / element_bytes, align), align);
  const auto join = [&](size_t first, size_t last) {  // runs [first, last) as one bucket
    buckets.push_back(
        {buffer, runs[first].begin, runs[last - 1].end, runs[last - 1].first_parameter, runs[first].last_parameter});
  };
  size_t next = 0;
  bool is_first = true;
  while (next < runs.size()) {
    const Run& run = runs[next];
    if (run.end - run.begin > cap && sizes.split) {  // larger than a bucket: split evenly
      const int64_t pieces = (run.end - run.begin + cap - 1) / cap;
      const int64_t piece = round_up((run.end - run.begin + pieces - 1) / pieces, align);
      for (int64_t begin = run.begin; begin < run.end; begin += piece) {
        buckets.push_back({buffer, begin, std::min(begin + piece, run.end), run.first_parameter, run.last_parameter});
      }
      ++next;
    } else {
      // Limit the last buckets to half of the remaining bytes, so that little is left to send when backward ends.
      const int64_t left = bytes(run.begin, runs.back().end);
      const int64_t limit =
          is_first ? sizes.first_bytes
                   : std::clamp(left / 2, sizes.last_bytes, std::max(sizes.bucket_bytes, sizes.last_bytes));
      size_t last = next + 1;
      while (last < runs.size() && bytes(run.begin, runs[last].end) <= limit) ++last;
      join(next, last);
      next = last;
    }
    is_first = false;
  }
}

/// Rounds the sizes of the buckets, which split no parameter, up to multiples of num_pieces * kAlignBytes.
void pad(BucketPlan& plan, int num_pieces) {
  for (size_t b = 0; b < plan.buffers.size(); ++b) {
    const int64_t multiple = num_pieces * kAlignBytes / size_of(plan.buffers[b].dtype);
    int64_t padding = 0;
    for (BucketPlan::Bucket& bucket : plan.buckets) {  // those of one buffer are in the order of its memory
      if (bucket.buffer != static_cast<int>(b)) continue;
      for (int p = bucket.first_parameter; p <= bucket.last_parameter; ++p) {
        BucketPlan::Placement& placement = plan.placements[static_cast<size_t>(p)];
        if (placement.buffer == bucket.buffer) placement.offset += padding;
      }
      const int64_t unpadded = bucket.end - bucket.begin, size = round_up(unpadded, multiple);
      bucket.begin += padding;
      bucket.end = bucket.begin + size;
      padding += size - unpadded;
    }
    plan.buffers[b].num_elements += padding;
  }
}

}  // namespace

BucketPlan plan_buckets(const std::vector<ParameterInfo>& parameters, BucketSizes sizes, int num_pieces) {
  if (num_pieces > 0) sizes.split = false;
  BucketPlan plan;
  plan.placements.resize(parameters.size());
  std::vector<std::vector<Run>> runs;
  std::vector<std::string> open_module;
  for (int i = static_cast<int>(parameters.size()) - 1; i >= 0; --i) {
    const ParameterInfo& p = parameters[static_cast<size_t>(i)];
    auto found = std::find_if(plan.buffers.begin(), plan.buffers.end(),
                              [&](const auto& b) { return b.dtype == p.dtype && b.device == p.device; });
    const auto index = static_cast<size_t>(found - plan.buffers.begin());
    if (found == plan.buffers.end()) {
      plan.buffers.push_back({p.dtype, p.device, 0});
      runs.emplace_back();
      open_module.emplace_back();
    }
    int64_t& used = plan.buffers[index].num_elements;
    plan.placements[static_cast<size_t>(i)] = {static_cast<int>(index), used};
    const int64_t begin = used;
    used += round_up(p.num_elements, kAlignBytes / size_of(p.dtype));
    const std::string module = module_of(p.name);
    const bool is_full = num_pieces > 0 && !runs[index].empty() &&
                         (begin - runs[index].back().begin) * size_of(p.dtype) >= sizes.bucket_bytes;
    if (runs[index].empty() || open_module[index] != module || is_full) {
      runs[index].push_back({begin, used, i, i});
      open_module[index] = module;
    } else {
      runs[index].back().end = used;
      runs[index].back().first_parameter = i;
    }
  }
  for (size_t b = 0; b < runs.size(); ++b) {
    cut(static_cast<int>(b), size_of(plan.buffers[b].dtype), runs[b], sizes, plan.buckets);
  }
  // Interleave the buckets of all buffers in the order in which they become ready.
  std::stable_sort(plan.buckets.begin(), plan.buckets.end(),
                   [](const auto& a, const auto& b) { return a.first_parameter > b.first_parameter; });
  if (num_pieces > 0) pad(plan, num_pieces);
  return plan;
}

BucketPlan plan_units(const std::vector<ParameterInfo>& parameters, const std::vector<size_t>& unit_of,
                      int num_pieces) {
  BucketPlan plan;
  plan.placements.resize(parameters.size());
  const size_t last = unit_of.empty() ? 0 : *std::max_element(unit_of.begin(), unit_of.end());
  for (size_t next = last + 1; next-- > 0;) {
    const size_t begin = plan.buffers.size();  // of the unit
    for (size_t i = parameters.size(); i-- > 0;) {
      const ParameterInfo& p = parameters[i];
      if (unit_of[i] != next) continue;
      size_t b = begin;
      while (b < plan.buffers.size() && (plan.buffers[b].dtype != p.dtype || plan.buffers[b].device != p.device)) ++b;
      const int buffer = static_cast<int>(b), parameter = static_cast<int>(i);
      if (b == plan.buffers.size()) {
        plan.buffers.push_back({p.dtype, p.device, 0});
        plan.buckets.push_back({buffer, 0, 0, parameter, parameter});
      }
      plan.placements[i] = {buffer, plan.buffers[b].num_elements};
      plan.buffers[b].num_elements += round_up(p.num_elements, kAlignBytes / size_of(p.dtype));
      plan.buckets[b].end = plan.buffers[b].num_elements;
      plan.buckets[b].first_parameter = parameter;
    }
  }
  pad(plan, num_pieces);
  return plan;
}

}}}  // namespace tandem::v0::distributed
