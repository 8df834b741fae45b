// Collectives with a reduction: all_reduce, reduce, reduce_scatter, reduce_mean.
#include <tandem/examples/collectives/operations.h>
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

struct Reduction {
  const char* name;
  ReduceOp op;
  Values expected;  ///< of tensors [1, rank + 1]
};

std::vector<Reduction> reductions(int num_ranks) {
  const double n = num_ranks;
  return {{"sum", ReduceOp::kSum, {n, sum_to(n)}},
          {"product", ReduceOp::kProduct, {1, product_to(num_ranks)}},
          {"max", ReduceOp::kMax, {1, n}},
          {"min", ReduceOp::kMin, {1, 1}}};
}

}  // namespace

OperationReport all_reduce(const Setup& setup) {
  OperationReport report("all_reduce", "group.all_reduce(x, op)",
                         "x of every rank becomes the sum (product, maximum, ...) over all ranks");
  const td::Tensor x = td::tensor({1.0, setup.group.rank() + 1.0}).to(setup.device);
  report.show("x", x);

  for (const auto& [name, op, expected] : reductions(setup.group.size())) {
    const td::Tensor y = x.clone();
    setup.group.all_reduce(y, op);
    report.check(name, y, expected);
  }
  const td::Tensor mean = td::empty_like(x);
  setup.group.all_reduce(mean, x, ReduceOp::kAvg);  // out of place: x is unchanged

  const double n = setup.group.size();
  report.check("avg", mean, {1, (n + 1) / 2}, setup.is_on_gpu() ? 1e-6 : 0);  // NCCL divides before it adds
  report.check("x after", x, {1, setup.group.rank() + 1.0});
  return report;
}

OperationReport all_reduce_bits(const Setup& setup) {
  OperationReport report("all_reduce", "group.all_reduce(x, ReduceOp::kBitOr)",
                         setup.is_on_gpu()
                             ? "bitwise reductions of integers and bool; NCCL lacks them, so x is on the CPU"
                             : "bitwise reductions of integers and bool");
  const td::Tensor x = td::full({1}, 16 + setup.group.rank(), {.dtype = td::kInt64});
  report.show("x", x);

  const td::Tensor all = x.clone();
  setup.group.all_reduce(all, ReduceOp::kBitAnd);
  const td::Tensor any = x.clone();
  setup.group.all_reduce(any, ReduceOp::kBitOr);
  const td::Tensor odd = x.clone();
  setup.group.all_reduce(odd, ReduceOp::kBitXor);

  int64_t expected_all = 16;
  int64_t expected_any = 0;
  int64_t expected_odd = 0;
  for (int64_t r = 0; r < setup.group.size(); ++r) {
    expected_all &= 16 + r;
    expected_any |= 16 + r;
    expected_odd ^= 16 + r;
  }
  report.check("bitand", all, {static_cast<double>(expected_all)});
  report.check("bitor", any, {static_cast<double>(expected_any)});
  report.check("bitxor", odd, {static_cast<double>(expected_odd)});
  return report;
}

OperationReport all_reduce_bfloat16(const Setup& setup) {
  OperationReport report(
      "all_reduce", "group.all_reduce(x)  // bfloat16",
      setup.is_on_gpu()
          ? "on the CPU half types are summed in float32 and rounded once; NCCL rounds after every addition"
          : "half types are summed in float32 and rounded once; in bfloat16 256 + 1 would be 256");
  const double mine = setup.group.rank() == 0 ? 256 : 1;
  const td::Tensor x = td::full({1}, mine, {.dtype = td::kBFloat16});
  report.show("x", x);
  setup.group.all_reduce(x);
  const td::Tensor sum = td::full({1}, 255.0 + setup.group.size(), {.dtype = td::kFloat32});
  report.check("bfloat16", x, sum.to(td::kBFloat16).to(td::kFloat64).to_vector<double>());
  return report;
}

OperationReport all_reduce_coalesced(const Setup& setup) {
  OperationReport report("all_reduce_coalesced", "group.all_reduce_coalesced({a, b, c})",
                         "several tensors, one collective per dtype");
  const td::Tensor a = td::full({2}, 1.0, {.device = setup.device});
  const td::Tensor b = td::full({}, setup.group.rank(), {.dtype = td::kInt64, .device = setup.device});
  const td::Tensor c = td::full({1, 2}, 2.0, {.device = setup.device});
  report.show("before", std::vector{a, b, c});
  setup.group.all_reduce_coalesced({a, b, c});
  const double n = setup.group.size();
  report.check("after", std::vector{a, b, c}, {n, n, sum_to(n - 1), 2 * n, 2 * n});
  return report;
}

OperationReport reduce(const Setup& setup) {
  constexpr int kRoot = 0;
  OperationReport report("reduce", "group.reduce(x, /*root=*/0, op)",
                         "x of the root becomes the result; x of the other ranks is unchanged");
  const td::Tensor x = td::tensor({1.0, setup.group.rank() + 1.0}).to(setup.device);
  report.show("x", x);

  const bool is_root = setup.group.rank() == kRoot;
  for (const auto& [name, op, expected] : reductions(setup.group.size())) {
    const td::Tensor y = x.clone();
    setup.group.reduce(y, kRoot, op);
    report.check(name, y, is_root ? expected : Values{1, setup.group.rank() + 1.0});
  }
  return report;
}

OperationReport reduce_scatter(const Setup& setup) {
  OperationReport report("reduce_scatter", "group.reduce_scatter(y, x)", "rank r gets row r of the sum");
  const td::Tensor x = td::empty({setup.group.size(), 2}, {.device = setup.device});
  for (int64_t row = 0; row < setup.group.size(); ++row) {
    x[row][0].fill_(row);
    x[row][1].fill_(setup.group.rank());
  }
  const td::Tensor y = td::empty({2}, {.device = setup.device});
  setup.group.reduce_scatter(y, x);
  const double n = setup.group.size();
  report.show("x", x);
  report.check("after", y, {n * setup.group.rank(), sum_to(n - 1)});
  return report;
}

OperationReport reduce_scatter_coalesced(const Setup& setup) {
  OperationReport report("reduce_scatter_coalesced", "group.reduce_scatter_coalesced({y, z}, {a, b})",
                         "several tensors, one collective per dtype");
  const td::Tensor a = td::arange(0, setup.group.size()).to(setup.device);
  const td::Tensor b = td::full({setup.group.size()}, 1.0 * setup.group.rank(), {.device = setup.device});
  const td::Tensor y = td::zeros({}, {.dtype = td::kInt64, .device = setup.device});
  const td::Tensor z = td::zeros({}, {.device = setup.device});
  setup.group.reduce_scatter_coalesced({y, z}, {a, b});
  const double n = setup.group.size();
  report.show("a b", std::vector{a, b});
  report.check("after", std::vector{y, z}, {n * setup.group.rank(), sum_to(n - 1)});
  return report;
}

OperationReport reduce_mean(const Setup& setup) {
  OperationReport report("reduce_mean", "group.reduce_mean(accuracy, images)",
                         "the weighted mean of a metric over all ranks");
  const double accuracy = setup.group.rank();
  const double images = setup.group.rank() + 1;
  const double mean = setup.group.reduce_mean(accuracy, images);
  // sum of r (r + 1), divided by the sum of r + 1
  const double n = setup.group.size();
  report.show("accuracy", td::str(accuracy));
  report.show("images", td::str(images));
  report.check("after", td::full({}, mean, {.dtype = td::kFloat64}), {2 * (n - 1) / 3});
  return report;
}

}  // namespace examples
