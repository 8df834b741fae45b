// Asynchronous collectives: overlap with computation, continuations, operations of several groups in flight.
#include <tandem/examples/collectives/operations.h>
#include <tandem/tandem.h>

#include <algorithm>
#include <cstdio>
#include <exception>
#include <utility>

namespace td = tandem;

namespace examples {

namespace {

constexpr const char* kCollective = "x";
constexpr const char* kOtherWork = "other work";

/// Milliseconds of communication of rank `rank`, and the part of them that overlapped with its other work.
std::pair<double, double> comm_and_hidden_ms(const std::vector<td::TraceEvent>& events, int rank,
                                             const std::string& category) {
  double comm_ms = 0;
  double hidden_ms = 0;
  for (const td::TraceEvent& comm : events) {
    if (comm.rank != rank || comm.category != category || comm.name != kCollective) continue;
    comm_ms += static_cast<double>(comm.end_ns - comm.begin_ns) / 1e6;
    for (const td::TraceEvent& work : events) {
      if (work.rank != rank || work.name != kOtherWork) continue;
      const int64_t overlap = std::min(comm.end_ns, work.end_ns) - std::max(comm.begin_ns, work.begin_ns);
      hidden_ms += static_cast<double>(std::max<int64_t>(overlap, 0)) / 1e6;
    }
  }
  return {comm_ms, hidden_ms};
}

/// Whether an all_reduce was in flight while the other ranks computed a matrix product; tested with the first and with
/// the last rank as the late rank. Times would not prove it, so the late rank starts its all_reduce only after the
/// other ranks have computed their products.
bool overlaps_with_product(const Setup& setup) {
  const td::Tensor a = td::ones({100, 100}, {.device = setup.device});
  const td::Tensor ready = td::zeros({1});
  // The first collective and the first product load kernels and connect GPUs, which may block until all ranks call
  // them.
  setup.group.all_reduce(td::ones({1000}, {.device = setup.device}));
  bool all_in_flight = a.matmul(a)[0][0].item() == 100;
  for (const int late : {0, setup.group.size() - 1}) {
    for (int r = 0; r < setup.group.size() && setup.group.rank() == late; ++r) {
      if (r != late) setup.group.recv(ready, r);
    }
    const td::Tensor x = td::ones({1000}, {.device = setup.device});
    const td::Work work = setup.group.all_reduce_async(x);
    if (setup.group.rank() != late) {
      const td::Tensor y = a.matmul(a);
      all_in_flight = all_in_flight && y[0][0].item() == 100 && !work.is_completed();
      setup.group.send(ready, late);
    }
    work.wait();
    all_in_flight = all_in_flight && x[999].item() == setup.group.size();
  }
  return all_in_flight;
}

std::string milliseconds(double value) {
  char text[32];
  std::snprintf(text, sizeof text, "%.1f ms", value);
  return text;
}

}  // namespace

OperationReport all_reduce_async(const Setup& setup, const std::string& trace_path) {
  OperationReport report("all_reduce_async", "work = group.all_reduce_async(x);  y = a.matmul(b);  work.wait()",
                         setup.is_on_gpu()
                             ? "all_reduce of 1000 x 1000 elements during matrix products; work completes when the "
                               "consistency check of the ranks has passed"
                             : "all_reduce of 1000 x 1000 elements during matrix products");
  const td::Tensor x = td::ones({1000, 1000}, {.device = setup.device});
  const td::Tensor a = td::ones({400, 400}, {.device = setup.device});
  setup.group.barrier();
  td::start_trace();

  const td::Work work = setup.group.all_reduce_async(x, td::distributed::ReduceOp::kSum, {.name = kCollective});
  td::Tensor y;
  {
    const td::TraceSpan span(kOtherWork, "forward");
    for (int i = 0; i < 5; ++i) y = a.matmul(a);
    if (setup.is_on_gpu()) td::cuda::synchronize(setup.device);
  }
  work.wait();

  const std::vector<td::TraceEvent> events = td::distributed::gather_trace(setup.group);  // on rank 0
  if (setup.group.rank() == 0 && !trace_path.empty()) td::profile::write_chrome_trace(trace_path, events);
  const td::Tensor times = td::zeros({setup.group.size(), 2}, {.dtype = td::kFloat64});
  for (int r = 0; r < setup.group.size(); ++r) {
    const auto [comm_ms, hidden_ms] = comm_and_hidden_ms(events, r, setup.is_on_gpu() ? "consistency check" : "comm");
    times[r][0].fill_(comm_ms);
    times[r][1].fill_(hidden_ms);
  }
  setup.group.broadcast(times, 0);
  const auto mine = times[setup.group.rank()].to_vector<double>();

  const double n = setup.group.size();
  report.check("sum", td::tensor({x[0][0].item(), x[999][999].item(), x.to(td::kFloat64).sum().item()}),
               {n, n, 1e6 * n});
  report.check("product", y[0].slice(0, 0, 1), {400});
  report.check("during a product", overlaps_with_product(setup) ? "in flight" : "completed", "in flight");
  report.show(setup.is_on_gpu() ? "consistency check" : "communication", milliseconds(mine[0]));
  report.show("overlapped", milliseconds(mine[1]));
  return report;
}

OperationReport then(const Setup& setup) {
  OperationReport report(
      "then", "group.all_reduce_async(x).then(f)",
      setup.is_on_gpu()
          ? "f runs when all ranks have started the all_reduce; work.wait() in f orders the stream after it"
          : "f runs when the all_reduce is complete, on the thread that completed it");
  const td::Tensor x = td::full({3}, setup.group.rank() + 1.0, {.device = setup.device});
  report.show("x", x);
  const td::Promise<double> promise;
  const td::Work work = setup.group.all_reduce_async(x);
  work.then([work, x, promise] {
    try {
      work.wait();  // does not block here; rethrows errors, and makes a GPU's current stream wait for the all_reduce
      promise.set_value(x.sum().item());
    } catch (const td::Error&) {
      promise.set_exception(std::current_exception());
    }
  });
  const double total = promise.future().get();
  const double n = setup.group.size();
  report.check("after", td::full({}, total, {.dtype = td::kFloat64}), {3 * n * (n + 1) / 2});
  return report;
}

OperationReport groups_in_flight(const Setup& setup) {
  OperationReport report(
      "groups_in_flight", "a->all_reduce_async(x);  b->all_reduce_async(y)",
      setup.is_on_gpu() ? "started on two groups, in the same order on all ranks: groups that share GPUs are serialized"
                        : "started on two groups, in reverse order on odd ranks: groups do not block each other");
  const auto first = td::distributed::new_group(setup.group.ranks(), {.backend = setup.backend});
  const auto second = td::distributed::new_group(setup.group.ranks(), {.backend = setup.backend});

  const td::Tensor x = td::ones({2}, {.device = setup.device});
  const td::Tensor y = td::full({2}, 1.0 * setup.group.rank(), {.device = setup.device});
  std::vector<td::Work> works;
  if (setup.is_on_gpu() || setup.group.rank() % 2 == 0) {
    works.push_back(first->all_reduce_async(x));
    works.push_back(second->all_reduce_async(y));
  } else {
    works.push_back(second->all_reduce_async(y));
    works.push_back(first->all_reduce_async(x));
  }
  for (const td::Work& work : works) work.wait();
  const double n = setup.group.size();
  report.check("first group", x, {n, n});
  report.check("second group", y, Values(2, n * (n - 1) / 2));
  return report;
}

}  // namespace examples
