// Collectives without a reduction: broadcast, scatter, gather, all_gather, all_to_all.
#include <tandem/examples/collectives/operations.h>
#include <tandem/tandem.h>

#include <sys/resource.h>

namespace td = tandem;

namespace examples {

namespace {

constexpr int kRoot = 0;

/// Peak memory so far: of a GPU's tensors, or resident memory of this process.
double peak_megabytes(td::Device device) {
  if (!device.is_cpu()) return static_cast<double>(td::memory_stats(device).peak_allocated) / 1e6;
  rusage usage{};
  getrusage(RUSAGE_SELF, &usage);
  return static_cast<double>(usage.ru_maxrss) * 1024 / 1e6;
}

/// Memory that a broadcast of x allocates in addition to x, rounded: small buffers are not counted.
std::string extra_memory(const Setup& setup, const td::Tensor& x) {
  td::reset_peak_memory(setup.device);
  const double before = peak_megabytes(setup.device);
  setup.group.broadcast(x, kRoot);
  const double share = (peak_megabytes(setup.device) - before) / (static_cast<double>(x.num_bytes()) / 1e6);
  if (share < 0.25) return "none";
  return 0.75 < share && share < 1.25 ? "another x" : td::str(share, " x");
}

td::Tensor number(const Setup& setup, double value) { return td::full({1}, value, {.device = setup.device}); }

/// One tensor of one element per rank.
std::vector<td::Tensor> output_list(const Setup& setup) {
  std::vector<td::Tensor> tensors;
  for (int r = 0; r < setup.group.size(); ++r) tensors.push_back(number(setup, 0));
  return tensors;
}

}  // namespace

OperationReport broadcast(const Setup& setup) {
  OperationReport report("broadcast", "group.broadcast(x, /*root=*/0)", "x of every rank becomes x of the root");
  const td::Tensor x = td::full({2}, 10.0 + setup.group.rank(), {.device = setup.device});
  report.show("before", x);
  setup.group.broadcast(x, kRoot);
  report.check("after", x, {10, 10});
  return report;
}

OperationReport broadcast_coalesced(const Setup& setup) {
  OperationReport report("broadcast_coalesced", "group.broadcast_coalesced({a, b}, /*root=*/0)",
                         "several tensors, one collective per dtype");
  const td::Tensor a = td::full({2}, 10.0 + setup.group.rank(), {.device = setup.device});
  const td::Tensor b = td::full({}, 20 + setup.group.rank(), {.dtype = td::kInt64, .device = setup.device});
  report.show("before", std::vector{a, b});
  setup.group.broadcast_coalesced({a, b}, kRoot);
  report.check("after", std::vector{a, b}, {10, 10, 20});
  return report;
}

OperationReport broadcast_large(const Setup& setup, int64_t side) {
  OperationReport report("broadcast", td::str("group.broadcast(x, /*root=*/0)  // float16 [", side, ", ", side, "]"),
                         "half the bytes of float32, without serialization and without a second copy");
  const bool is_root = setup.group.rank() == kRoot;
  const td::Tensor x = td::full({side, side}, is_root ? 0.5 : 0.0, {.dtype = td::kFloat16, .device = setup.device});
  if (is_root) x[side - 1].fill_(0.25);
  setup.group.broadcast(x.slice(0, 0, side / 4), kRoot);  // allocates the group's own buffers before the measurement

  report.show("MB", td::str(static_cast<double>(x.num_bytes()) / 1e6));
  report.check("memory", extra_memory(setup, x), "none");
  report.check("memory of x.t()", extra_memory(setup, x.t()),
               "another x");  // a tensor that is not contiguous is copied
  // Corners, and the sum of all, which is exact.
  const double sum = x.to(td::kFloat64).sum().item();
  const auto n = static_cast<double>(side);
  report.check("float16", td::tensor({x[0][0].item(), x[side - 1][side - 1].item(), sum}),
               {0.5, 0.25, n * (0.5 * (n - 1) + 0.25)});
  return report;
}

OperationReport scatter(const Setup& setup) {
  OperationReport report("scatter", "group.scatter(y, parts, /*root=*/0)",
                         "rank r gets element r of the root's list; the other ranks pass an empty list");
  std::vector<td::Tensor> parts;
  if (setup.group.rank() == kRoot) {
    for (int r = 0; r < setup.group.size(); ++r) parts.push_back(number(setup, r + 1));
  }
  const td::Tensor y = number(setup, 0);
  setup.group.scatter(y, parts, kRoot);
  report.show("parts", parts);
  report.check("after", y, {setup.group.rank() + 1.0});
  return report;
}

OperationReport gather(const Setup& setup) {
  OperationReport report("gather", "group.gather(parts, x, /*root=*/0)",
                         "the root gets x of every rank, in rank order; the other ranks pass an empty list");
  const td::Tensor x = number(setup, setup.group.rank());
  const std::vector<td::Tensor> parts = setup.group.rank() == kRoot ? output_list(setup) : std::vector<td::Tensor>();
  setup.group.gather(parts, x, kRoot);
  Values expected;
  if (setup.group.rank() == kRoot) {
    for (int r = 0; r < setup.group.size(); ++r) expected.push_back(r);
  }
  report.show("x", x);
  report.check("after", parts, expected);
  return report;
}

OperationReport all_gather(const Setup& setup) {
  OperationReport report("all_gather", "group.all_gather(parts, x)",
                         "every rank gets x of every rank, as a list or stacked in one tensor");
  const td::Tensor x = number(setup, setup.group.rank());
  const std::vector<td::Tensor> parts = output_list(setup);
  setup.group.all_gather(parts, x);
  const td::Tensor stacked = td::zeros({setup.group.size(), 1}, {.device = setup.device});
  setup.group.all_gather(stacked, x);
  Values expected;
  for (int r = 0; r < setup.group.size(); ++r) expected.push_back(r);
  report.show("x", x);
  report.check("list", parts, expected);
  report.check("tensor", stacked, expected);
  return report;
}

OperationReport all_gather_unequal(const Setup& setup) {
  OperationReport report("all_gather", "group.all_gather(parts, x)  // of unequal sizes",
                         "the shapes in the list give the size of each rank's x; rank 0 contributes an empty tensor");
  const td::Tensor x = td::full({setup.group.rank()}, 1.0 * setup.group.rank(), {.device = setup.device});
  std::vector<td::Tensor> parts;
  Values expected;
  for (int r = 0; r < setup.group.size(); ++r) {
    parts.push_back(td::zeros({r}, {.device = setup.device}));
    expected.insert(expected.end(), static_cast<size_t>(r), r);
  }
  setup.group.all_gather(parts, x);
  report.show("x", x);
  report.check("unequal", parts, expected);
  return report;
}

OperationReport all_gather_coalesced(const Setup& setup) {
  OperationReport report("all_gather_coalesced", "group.all_gather_coalesced({y, z}, {a, b})",
                         "several tensors, stacked, one collective per dtype");
  const td::Tensor a = number(setup, setup.group.rank());
  const td::Tensor b = td::full({}, 10 + setup.group.rank(), {.dtype = td::kInt64, .device = setup.device});
  const td::Tensor y = td::zeros({setup.group.size(), 1}, {.device = setup.device});
  const td::Tensor z = td::zeros({setup.group.size()}, {.dtype = td::kInt64, .device = setup.device});
  setup.group.all_gather_coalesced({y, z}, {a, b});
  Values expected;
  for (int r = 0; r < setup.group.size(); ++r) expected.push_back(r);
  for (int r = 0; r < setup.group.size(); ++r) expected.push_back(10 + r);
  report.show("a b", std::vector{a, b});
  report.check("after", std::vector{y, z}, expected);
  return report;
}

OperationReport all_to_all(const Setup& setup) {
  OperationReport report(
      "all_to_all", "group.all_to_all(y, x)",
      "row r of x is sent to rank r, and row r of y is received from rank r: a transpose over ranks");
  const int n = setup.group.size();
  const td::Tensor x = td::empty({n}, {.device = setup.device});
  for (int r = 0; r < n; ++r) x[r].fill_(10 * setup.group.rank() + r);  // from, to
  const td::Tensor y = td::zeros({n}, {.device = setup.device});
  setup.group.all_to_all(y, x);
  Values expected;
  for (int r = 0; r < n; ++r) expected.push_back(10 * r + setup.group.rank());
  report.show("x", x);
  report.check("after", y, expected);
  return report;
}

OperationReport all_to_all_uneven(const Setup& setup) {
  OperationReport report("all_to_all", "group.all_to_all(y, x, output_splits, input_splits)",
                         "all_to_all with parts of unequal sizes: here rank r receives r + 1 rows from every rank");
  const int n = setup.group.size();
  const int rows_each = setup.group.rank() + 1;
  std::vector<int64_t> output_splits(static_cast<size_t>(n), rows_each);
  std::vector<int64_t> input_splits;
  for (int r = 0; r < n; ++r) input_splits.push_back(r + 1);
  const td::Tensor x = td::full({n * (n + 1) / 2}, 1.0 * setup.group.rank(), {.device = setup.device});
  const td::Tensor y = td::zeros({n * rows_each}, {.device = setup.device});
  setup.group.all_to_all(y, x, output_splits, input_splits);
  Values expected;
  for (int r = 0; r < n; ++r) expected.insert(expected.end(), static_cast<size_t>(rows_each), r);
  report.show("x", x);
  report.check("uneven", y, expected);
  return report;
}

}  // namespace examples
