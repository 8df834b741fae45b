// Going on while numbers travel: started operations, continuations, several groups in flight.
#include <tandem/examples/collectives/tour.h>
#include <tandem/tandem.h>

#include <algorithm>
#include <cstdio>
#include <exception>
#include <utility>

namespace td = tandem;

namespace examples {

namespace {

constexpr const char* kExchange = "x";
constexpr const char* kOtherWork = "other work";

/// Milliseconds during which rank `rank` exchanged, and those of them during which it did its other work as well.
std::pair<double, double> exchanged_and_hidden(const std::vector<td::TraceEvent>& events, int rank,
                                               const std::string& category) {
  double exchanged = 0;
  double hidden = 0;
  for (const td::TraceEvent& comm : events) {
    if (comm.rank != rank || comm.category != category || comm.name != kExchange) continue;
    exchanged += static_cast<double>(comm.end_ns - comm.begin_ns) / 1e6;
    for (const td::TraceEvent& work : events) {
      if (work.rank != rank || work.name != kOtherWork) continue;
      const int64_t overlap = std::min(comm.end_ns, work.end_ns) - std::max(comm.begin_ns, work.begin_ns);
      hidden += static_cast<double>(std::max<int64_t>(overlap, 0)) / 1e6;
    }
  }
  return {exchanged, hidden};
}

/// Whether sums of the first and of the last rank were under way while the others computed a product.  Times cannot
/// promise that; here that rank begins when the others have their product.
bool is_under_way(const Tour& tour) {
  const td::Tensor a = td::ones({100, 100}, {.device = tour.device});
  const td::Tensor ready = td::zeros({1});
  // The first of their kind load kernels and make links between GPUs, which may take all ranks.
  tour.group.all_reduce(td::ones({1000}, {.device = tour.device}));
  bool all_under_way = a.matmul(a)[0][0].item() == 100;
  for (const int late : {0, tour.group.size() - 1}) {
    for (int r = 0; r < tour.group.size() && tour.group.rank() == late; ++r) {
      if (r != late) tour.group.recv(ready, r);
    }
    const td::Tensor x = td::ones({1000}, {.device = tour.device});
    const td::Work work = tour.group.all_reduce_async(x);
    if (tour.group.rank() != late) {
      const td::Tensor y = a.matmul(a);
      all_under_way = all_under_way && y[0][0].item() == 100 && !work.is_completed();
      tour.group.send(ready, late);
    }
    work.wait();
    all_under_way = all_under_way && x[999].item() == tour.group.size();
  }
  return all_under_way;
}

std::string milliseconds(double value) {
  char text[32];
  std::snprintf(text, sizeof text, "%.1f ms", value);
  return text;
}

}  // namespace

Stop all_reduce_async(const Tour& tour, const std::string& trace_path) {
  Stop stop("all_reduce_async", "work = group.all_reduce_async(x);  y = a.matmul(b);  work.wait()",
            tour.is_on_gpu() ? "the sum of 1000 x 1000 numbers travels meanwhile; work is complete when the ranks have "
                               "checked that all called the same"
                             : "the sum of 1000 x 1000 numbers travels while a product is computed");
  const td::Tensor x = td::ones({1000, 1000}, {.device = tour.device});
  const td::Tensor a = td::ones({400, 400}, {.device = tour.device});
  tour.group.barrier();
  td::start_trace();

  const td::Work work = tour.group.all_reduce_async(x, td::distributed::ReduceOp::kSum, {.name = kExchange});
  td::Tensor y;
  {
    const td::TraceSpan span(kOtherWork, "forward");
    for (int i = 0; i < 5; ++i) y = a.matmul(a);
    if (tour.is_on_gpu()) td::cuda::synchronize(tour.device);
  }
  work.wait();

  const std::vector<td::TraceEvent> events = td::distributed::gather_trace(tour.group);  // on rank 0
  if (tour.group.rank() == 0 && !trace_path.empty()) td::profile::write_chrome_trace(trace_path, events);
  const td::Tensor times = td::zeros({tour.group.size(), 2}, {.dtype = td::kFloat64});
  for (int r = 0; r < tour.group.size(); ++r) {
    const auto [exchanged, hidden] = exchanged_and_hidden(events, r, tour.is_on_gpu() ? "consistency check" : "comm");
    times[r][0].fill_(exchanged);
    times[r][1].fill_(hidden);
  }
  tour.group.broadcast(times, 0);
  const auto mine = times[tour.group.rank()].to_vector<double>();

  const double n = tour.group.size();
  stop.check("sum", td::tensor({x[0][0].item(), x[999][999].item(), x.to(td::kFloat64).sum().item()}), {n, n, 1e6 * n});
  stop.check("product", y[0].slice(0, 0, 1), {400});
  stop.check("during a product", is_under_way(tour) ? "under way" : "over", "under way");
  stop.show(tour.is_on_gpu() ? "consistency check" : "exchange", milliseconds(mine[0]));
  stop.show("of it under the product", milliseconds(mine[1]));
  return stop;
}

Stop then(const Tour& tour) {
  Stop stop("then", "group.all_reduce_async(x).then(f)",
            tour.is_on_gpu()
                ? "f runs when all ranks have started the sum; work.wait() in it puts what f does behind the sum"
                : "f runs when the sum is there, on whichever thread finished it");
  const td::Tensor x = td::full({3}, tour.group.rank() + 1.0, {.device = tour.device});
  stop.show("x", x);
  const td::Promise<double> promise;
  const td::Work work = tour.group.all_reduce_async(x);
  work.then([work, x, promise] {
    try {
      work.wait();  // is over, and throws what failed; a GPU's stream goes on behind the sum
      promise.set_value(x.sum().item());
    } catch (const td::Error&) {
      promise.set_exception(std::current_exception());
    }
  });
  const double total = promise.future().get();
  const double n = tour.group.size();
  stop.check("after", td::full({}, total, {.dtype = td::kFloat64}), {3 * n * (n + 1) / 2});
  return stop;
}

Stop groups_in_flight(const Tour& tour) {
  Stop stop("groups_in_flight", "a->all_reduce_async(x);  b->all_reduce_async(y)",
            tour.is_on_gpu()
                ? "started on two groups, in one order on all ranks: groups that share GPUs take turns there"
                : "started on two groups, in another order on odd ranks: groups do not wait for each other");
  const auto first = td::distributed::new_group(tour.group.ranks(), {.backend = tour.backend});
  const auto second = td::distributed::new_group(tour.group.ranks(), {.backend = tour.backend});

  const td::Tensor x = td::ones({2}, {.device = tour.device});
  const td::Tensor y = td::full({2}, 1.0 * tour.group.rank(), {.device = tour.device});
  std::vector<td::Work> works;
  if (tour.is_on_gpu() || tour.group.rank() % 2 == 0) {
    works.push_back(first->all_reduce_async(x));
    works.push_back(second->all_reduce_async(y));
  } else {
    works.push_back(second->all_reduce_async(y));
    works.push_back(first->all_reduce_async(x));
  }
  for (const td::Work& work : works) work.wait();
  const double n = tour.group.size();
  stop.check("first group", x, {n, n});
  stop.check("second group", y, Values(2, n * (n - 1) / 2));
  return stop;
}

}  // namespace examples
