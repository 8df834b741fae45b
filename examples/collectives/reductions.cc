// Numbers of all ranks become one: all_reduce, reduce, reduce_scatter, reduce_mean.
#include <tandem/examples/collectives/tour.h>
#include <tandem/tandem.h>

namespace td = tandem;

using td::distributed::ReduceOp;

namespace examples {

namespace {

double sum_to(double n) { return n * (n + 1) / 2; }

double product_to(int n) {
  double product = 1;
  for (int i = 2; i <= n; ++i) product *= i;
  return product;
}

}  // namespace

Stop all_reduce(const Tour& tour) {
  Stop stop("all_reduce", "group.all_reduce(x, op)",
            "every rank's x becomes the sum (product, maximum ..) of all ranks' x");
  const td::Tensor x =
      td::tensor({1.0, tour.group.rank() + 1.0}).to(tour.device);  // a one, and the rank counted from one
  stop.show("x", x);

  const td::Tensor sum = x.clone();
  tour.group.all_reduce(sum);
  const td::Tensor product = x.clone();
  tour.group.all_reduce(product, ReduceOp::kProduct);
  const td::Tensor largest = x.clone();
  tour.group.all_reduce(largest, ReduceOp::kMax);
  const td::Tensor least = x.clone();
  tour.group.all_reduce(least, ReduceOp::kMin);
  const td::Tensor mean = td::empty_like(x);
  tour.group.all_reduce(mean, x, ReduceOp::kAvg);  // with an output of its own: x stays

  const double n = tour.group.size();
  stop.check("sum", sum, {n, sum_to(n)});
  stop.check("product", product, {1, product_to(tour.group.size())});
  stop.check("max", largest, {1, n});
  stop.check("min", least, {1, 1});
  stop.check("avg", mean, {1, (n + 1) / 2}, tour.is_on_gpu() ? 1e-6 : 0);  // NCCL divides first
  stop.check("x after", x, {1, tour.group.rank() + 1.0});
  return stop;
}

Stop all_reduce_bits(const Tour& tour) {
  Stop stop("all_reduce", "group.all_reduce(x, ReduceOp::kBitOr)",
            tour.is_on_gpu() ? "bit by bit, for integers and bool; NCCL cannot: x is on the CPU, in the same group"
                             : "bit by bit, for integers and bool");
  const td::Tensor x = td::full({1}, 16 + tour.group.rank(), {.dtype = td::kInt64});
  stop.show("x", x);

  const td::Tensor all = x.clone();
  tour.group.all_reduce(all, ReduceOp::kBitAnd);
  const td::Tensor any = x.clone();
  tour.group.all_reduce(any, ReduceOp::kBitOr);
  const td::Tensor odd = x.clone();
  tour.group.all_reduce(odd, ReduceOp::kBitXor);

  int64_t expected_all = 16;
  int64_t expected_any = 0;
  int64_t expected_odd = 0;
  for (int64_t r = 0; r < tour.group.size(); ++r) {
    expected_all &= 16 + r;
    expected_any |= 16 + r;
    expected_odd ^= 16 + r;
  }
  stop.check("bitand", all, {static_cast<double>(expected_all)});
  stop.check("bitor", any, {static_cast<double>(expected_any)});
  stop.check("bitxor", odd, {static_cast<double>(expected_odd)});
  return stop;
}

Stop all_reduce_bfloat16(const Tour& tour) {
  Stop stop("all_reduce", "group.all_reduce(x)  // bfloat16",
            tour.is_on_gpu()
                ? "x is on the CPU: summed in float32 and rounded once; NCCL rounds at each rank, 256 + 1 to 256"
                : "half types are summed in float32 and rounded once: 256 + 1 alone would be 256 in bfloat16");
  const double mine = tour.group.rank() == 0 ? 256 : 1;
  const td::Tensor x = td::full({1}, mine, {.dtype = td::kBFloat16});
  stop.show("x", x);
  tour.group.all_reduce(x);
  const td::Tensor sum = td::full({1}, 255.0 + tour.group.size(), {.dtype = td::kFloat32});
  stop.check("bfloat16", x, sum.to(td::kBFloat16).to(td::kFloat64).to_vector<double>());
  return stop;
}

Stop all_reduce_coalesced(const Tour& tour) {
  Stop stop("all_reduce_coalesced", "group.all_reduce_coalesced({a, b, c})", "several tensors, one exchange per dtype");
  const td::Tensor a = td::full({2}, 1.0, {.device = tour.device});
  const td::Tensor b = td::full({}, tour.group.rank(), {.dtype = td::kInt64, .device = tour.device});
  const td::Tensor c = td::full({1, 2}, 2.0, {.device = tour.device});
  stop.show("before", std::vector{a, b, c});
  tour.group.all_reduce_coalesced({a, b, c});
  const double n = tour.group.size();
  stop.check("after", std::vector{a, b, c}, {n, n, sum_to(n - 1), 2 * n, 2 * n});
  return stop;
}

Stop reduce(const Tour& tour) {
  constexpr int kRoot = 0;
  Stop stop("reduce", "group.reduce(x, /*root=*/0, op)", "the root's x becomes the result, the others keep theirs");
  const td::Tensor x = td::tensor({1.0, tour.group.rank() + 1.0}).to(tour.device);
  stop.show("x", x);

  const td::Tensor sum = x.clone();
  tour.group.reduce(sum, kRoot);
  const td::Tensor product = x.clone();
  tour.group.reduce(product, kRoot, ReduceOp::kProduct);
  const td::Tensor largest = x.clone();
  tour.group.reduce(largest, kRoot, ReduceOp::kMax);
  const td::Tensor least = x.clone();
  tour.group.reduce(least, kRoot, ReduceOp::kMin);

  const double n = tour.group.size();
  const bool is_root = tour.group.rank() == kRoot;
  const Values kept = {1, tour.group.rank() + 1.0};
  stop.check("sum", sum, is_root ? Values{n, sum_to(n)} : kept);
  stop.check("product", product, is_root ? Values{1, product_to(tour.group.size())} : kept);
  stop.check("max", largest, is_root ? Values{1, n} : kept);
  stop.check("min", least, is_root ? Values{1, 1} : kept);
  return stop;
}

Stop reduce_scatter(const Tour& tour) {
  Stop stop("reduce_scatter", "group.reduce_scatter(y, x)", "rank r gets row r of the sum");
  const td::Tensor x = td::empty({tour.group.size(), 2}, {.device = tour.device});
  for (int64_t row = 0; row < tour.group.size(); ++row) {
    x[row][0].fill_(row);
    x[row][1].fill_(tour.group.rank());
  }
  const td::Tensor y = td::empty({2}, {.device = tour.device});
  tour.group.reduce_scatter(y, x);
  const double n = tour.group.size();
  stop.show("x", x);
  stop.check("after", y, {n * tour.group.rank(), sum_to(n - 1)});
  return stop;
}

Stop reduce_scatter_coalesced(const Tour& tour) {
  Stop stop("reduce_scatter_coalesced", "group.reduce_scatter_coalesced({y, z}, {a, b})",
            "several tensors, one exchange per dtype");
  const td::Tensor a = td::arange(0, tour.group.size()).to(tour.device);
  const td::Tensor b = td::full({tour.group.size()}, 1.0 * tour.group.rank(), {.device = tour.device});
  const td::Tensor y = td::zeros({}, {.dtype = td::kInt64, .device = tour.device});
  const td::Tensor z = td::zeros({}, {.device = tour.device});
  tour.group.reduce_scatter_coalesced({y, z}, {a, b});
  const double n = tour.group.size();
  stop.show("a b", std::vector{a, b});
  stop.check("after", std::vector{y, z}, {n * tour.group.rank(), sum_to(n - 1)});
  return stop;
}

Stop reduce_mean(const Tour& tour) {
  Stop stop("reduce_mean", "group.reduce_mean(accuracy, images)",
            "the mean over all ranks, each by its weight: for metrics");
  const double accuracy = tour.group.rank();
  const double images = tour.group.rank() + 1;
  const double mean = tour.group.reduce_mean(accuracy, images);
  // sum of r (r + 1) over the sum of r + 1
  const double n = tour.group.size();
  stop.show("accuracy", td::str(accuracy));
  stop.show("images", td::str(images));
  stop.check("after", td::full({}, mean, {.dtype = td::kFloat64}), {2 * (n - 1) / 3});
  return stop;
}

}  // namespace examples
