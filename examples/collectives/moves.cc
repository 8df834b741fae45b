// Numbers of one rank come to others: broadcast, scatter, gather, all_gather, all_to_all.
#include <tandem/examples/collectives/tour.h>
#include <tandem/tandem.h>

#include <sys/resource.h>

namespace td = tandem;

namespace examples {

namespace {

constexpr int kRoot = 0;

/// The most memory so far: that a GPU's tensors took, or that this process has had.
double peak_megabytes(td::Device device) {
  if (!device.is_cpu()) return static_cast<double>(td::memory_stats(device).peak_allocated) / 1e6;
  rusage usage{};
  getrusage(RUSAGE_SELF, &usage);
  return static_cast<double>(usage.ru_maxrss) * 1024 / 1e6;
}

/// What memory a broadcast of x takes beside x, within a quarter of it: what is on its way lies somewhere.
std::string further_memory(const Tour& tour, const td::Tensor& x) {
  td::reset_peak_memory(tour.device);
  const double before = peak_megabytes(tour.device);
  tour.group.broadcast(x, kRoot);
  const double share = (peak_megabytes(tour.device) - before) / (static_cast<double>(x.num_bytes()) / 1e6);
  if (share < 0.25) return "none";
  return 0.75 < share && share < 1.25 ? "another x" : td::str(share, " x");
}

td::Tensor number(const Tour& tour, double value) { return td::full({1}, value, {.device = tour.device}); }

/// A tensor of one element for each rank.
std::vector<td::Tensor> places(const Tour& tour) {
  std::vector<td::Tensor> tensors;
  for (int r = 0; r < tour.group.size(); ++r) tensors.push_back(number(tour, 0));
  return tensors;
}

}  // namespace

Stop broadcast(const Tour& tour) {
  Stop stop("broadcast", "group.broadcast(x, /*root=*/0)", "every rank's x becomes the root's");
  const td::Tensor x = td::full({2}, 10.0 + tour.group.rank(), {.device = tour.device});
  stop.show("before", x);
  tour.group.broadcast(x, kRoot);
  stop.check("after", x, {10, 10});
  return stop;
}

Stop broadcast_coalesced(const Tour& tour) {
  Stop stop("broadcast_coalesced", "group.broadcast_coalesced({a, b}, /*root=*/0)",
            "several tensors, one exchange per dtype");
  const td::Tensor a = td::full({2}, 10.0 + tour.group.rank(), {.device = tour.device});
  const td::Tensor b = td::full({}, 20 + tour.group.rank(), {.dtype = td::kInt64, .device = tour.device});
  stop.show("before", std::vector{a, b});
  tour.group.broadcast_coalesced({a, b}, kRoot);
  stop.check("after", std::vector{a, b}, {10, 10, 20});
  return stop;
}

Stop broadcast_large(const Tour& tour, int64_t side) {
  Stop stop("broadcast", td::str("group.broadcast(x, /*root=*/0)  // float16 [", side, ", ", side, "]"),
            "half the bytes of float32, nothing serialised, no second copy of the whole");
  const bool is_root = tour.group.rank() == kRoot;
  const td::Tensor x = td::full({side, side}, is_root ? 0.5 : 0.0, {.dtype = td::kFloat16, .device = tour.device});
  if (is_root) x[side - 1].fill_(0.25);
  tour.group.broadcast(x.slice(0, 0, side / 4), kRoot);  // what the group itself needs it has from here on

  stop.show("MB", td::str(static_cast<double>(x.num_bytes()) / 1e6));
  stop.check("memory", further_memory(tour, x), "none");
  stop.check("memory of x.t()", further_memory(tour, x.t()), "another x");  // what is not row-major is copied
  // Corners, and the sum of all, which is exact.
  const double sum = x.to(td::kFloat64).sum().item();
  const auto n = static_cast<double>(side);
  stop.check("float16", td::tensor({x[0][0].item(), x[side - 1][side - 1].item(), sum}),
             {0.5, 0.25, n * (0.5 * (n - 1) + 0.25)});
  return stop;
}

Stop scatter(const Tour& tour) {
  Stop stop("scatter", "group.scatter(y, parts, /*root=*/0)",
            "rank r gets element r of the root's list; the others pass none");
  std::vector<td::Tensor> parts;
  if (tour.group.rank() == kRoot) {
    for (int r = 0; r < tour.group.size(); ++r) parts.push_back(number(tour, r + 1));
  }
  const td::Tensor y = number(tour, 0);
  tour.group.scatter(y, parts, kRoot);
  stop.show("parts", parts);
  stop.check("after", y, {tour.group.rank() + 1.0});
  return stop;
}

Stop gather(const Tour& tour) {
  Stop stop("gather", "group.gather(parts, x, /*root=*/0)",
            "the root gets everybody's x, by rank; the others pass no list");
  const td::Tensor x = number(tour, tour.group.rank());
  const std::vector<td::Tensor> parts = tour.group.rank() == kRoot ? places(tour) : std::vector<td::Tensor>();
  tour.group.gather(parts, x, kRoot);
  Values expected;
  if (tour.group.rank() == kRoot) {
    for (int r = 0; r < tour.group.size(); ++r) expected.push_back(r);
  }
  stop.show("x", x);
  stop.check("after", parts, expected);
  return stop;
}

Stop all_gather(const Tour& tour) {
  Stop stop("all_gather", "group.all_gather(parts, x)",
            "everybody gets everybody's x: as a list, or stacked in one tensor");
  const td::Tensor x = number(tour, tour.group.rank());
  const std::vector<td::Tensor> parts = places(tour);
  tour.group.all_gather(parts, x);
  const td::Tensor stacked = td::zeros({tour.group.size(), 1}, {.device = tour.device});
  tour.group.all_gather(stacked, x);
  Values expected;
  for (int r = 0; r < tour.group.size(); ++r) expected.push_back(r);
  stop.show("x", x);
  stop.check("list", parts, expected);
  stop.check("tensor", stacked, expected);
  return stop;
}

Stop all_gather_unequal(const Tour& tour) {
  Stop stop("all_gather", "group.all_gather(parts, x)  // of unequal sizes",
            "every rank says by its list how much each of them brings; rank 0 brings nothing");
  const td::Tensor x = td::full({tour.group.rank()}, 1.0 * tour.group.rank(), {.device = tour.device});
  std::vector<td::Tensor> parts;
  Values expected;
  for (int r = 0; r < tour.group.size(); ++r) {
    parts.push_back(td::zeros({r}, {.device = tour.device}));
    expected.insert(expected.end(), static_cast<size_t>(r), r);
  }
  tour.group.all_gather(parts, x);
  stop.show("x", x);
  stop.check("unequal", parts, expected);
  return stop;
}

Stop all_gather_coalesced(const Tour& tour) {
  Stop stop("all_gather_coalesced", "group.all_gather_coalesced({y, z}, {a, b})",
            "several tensors, stacked, one exchange per dtype");
  const td::Tensor a = number(tour, tour.group.rank());
  const td::Tensor b = td::full({}, 10 + tour.group.rank(), {.dtype = td::kInt64, .device = tour.device});
  const td::Tensor y = td::zeros({tour.group.size(), 1}, {.device = tour.device});
  const td::Tensor z = td::zeros({tour.group.size()}, {.dtype = td::kInt64, .device = tour.device});
  tour.group.all_gather_coalesced({y, z}, {a, b});
  Values expected;
  for (int r = 0; r < tour.group.size(); ++r) expected.push_back(r);
  for (int r = 0; r < tour.group.size(); ++r) expected.push_back(10 + r);
  stop.show("a b", std::vector{a, b});
  stop.check("after", std::vector{y, z}, expected);
  return stop;
}

Stop all_to_all(const Tour& tour) {
  Stop stop("all_to_all", "group.all_to_all(y, x)",
            "row r goes to rank r, and row r comes from it: a transpose over ranks");
  const int n = tour.group.size();
  const td::Tensor x = td::empty({n}, {.device = tour.device});
  for (int r = 0; r < n; ++r) x[r].fill_(10 * tour.group.rank() + r);  // from, to
  const td::Tensor y = td::zeros({n}, {.device = tour.device});
  tour.group.all_to_all(y, x);
  Values expected;
  for (int r = 0; r < n; ++r) expected.push_back(10 * r + tour.group.rank());
  stop.show("x", x);
  stop.check("after", y, expected);
  return stop;
}

Stop all_to_all_uneven(const Tour& tour) {
  Stop stop("all_to_all", "group.all_to_all(y, x, output_splits, input_splits)",
            "the same with parts of unequal sizes: here rank r gets r + 1 rows from everybody");
  const int n = tour.group.size();
  const int rows_each = tour.group.rank() + 1;
  std::vector<int64_t> output_splits(static_cast<size_t>(n), rows_each);
  std::vector<int64_t> input_splits;
  for (int r = 0; r < n; ++r) input_splits.push_back(r + 1);
  const td::Tensor x = td::full({n * (n + 1) / 2}, 1.0 * tour.group.rank(), {.device = tour.device});
  const td::Tensor y = td::zeros({n * rows_each}, {.device = tour.device});
  tour.group.all_to_all(y, x, output_splits, input_splits);
  Values expected;
  for (int r = 0; r < n; ++r) expected.insert(expected.end(), static_cast<size_t>(rows_each), r);
  stop.show("x", x);
  stop.check("uneven", y, expected);
  return stop;
}

}  // namespace examples
