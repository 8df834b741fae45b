// Going on while numbers travel: started operations, continuations, several groups in flight.
#include <tandem/examples/collectives/tour.h>
#include <tandem/tandem.h>

#include <algorithm>
#include <cstdio>
#include <utility>

namespace td = tandem;

namespace examples {

namespace {

constexpr const char* kOtherWork = "other work";

/// Milliseconds during which rank `rank` exchanged, and those of them during which it did its other work as well.
std::pair<double, double> exchanged_and_hidden(const std::vector<td::TraceEvent>& events, int rank) {
  double exchanged = 0;
  double hidden = 0;
  for (const td::TraceEvent& comm : events) {
    if (comm.rank != rank || comm.category != "comm") continue;
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
bool is_under_way(ProcessGroup& group) {
  const td::Tensor a = td::ones({100, 100});
  const td::Tensor ready = td::zeros({1});
  bool all_under_way = true;
  for (const int late : {0, group.size() - 1}) {
    for (int r = 0; r < group.size() && group.rank() == late; ++r) {
      if (r != late) group.recv(ready, r);
    }
    const td::Tensor x = td::ones({1000});
    const td::Work work = group.all_reduce_async(x);
    if (group.rank() != late) {
      const td::Tensor y = a.matmul(a);
      all_under_way = all_under_way && y[0][0].item() == 100 && !work.is_completed();
      group.send(ready, late);
    }
    work.wait();
    all_under_way = all_under_way && x[999].item() == group.size();
  }
  return all_under_way;
}

std::string milliseconds(double value) {
  char text[32];
  std::snprintf(text, sizeof text, "%.1f ms", value);
  return text;
}

}  // namespace

Stop all_reduce_async(ProcessGroup& group, const std::string& trace_path) {
  Stop stop("all_reduce_async", "work = group.all_reduce_async(x);  y = a.matmul(b);  work.wait()",
            "the sum of 1000 x 1000 numbers travels while a product is computed");
  const td::Tensor x = td::ones({1000, 1000});
  const td::Tensor a = td::ones({400, 400});
  group.barrier();
  td::start_trace();

  const td::Work work = group.all_reduce_async(x, td::distributed::ReduceOp::kSum, {.name = "x"});
  td::Tensor y;
  {
    const td::TraceSpan span(kOtherWork, "forward");
    for (int i = 0; i < 5; ++i) y = a.matmul(a);
  }
  work.wait();

  const std::vector<td::TraceEvent> events = td::distributed::gather_trace(group);  // on rank 0
  if (group.rank() == 0 && !trace_path.empty()) td::profile::write_chrome_trace(trace_path, events);
  const td::Tensor times = td::zeros({group.size(), 2}, {.dtype = td::kFloat64});
  for (int r = 0; r < group.size(); ++r) {
    const auto [exchanged, hidden] = exchanged_and_hidden(events, r);
    times[r][0].fill_(exchanged);
    times[r][1].fill_(hidden);
  }
  group.broadcast(times, 0);
  const auto mine = times[group.rank()].to_vector<double>();

  const double n = group.size();
  stop.check("sum", td::tensor({x[0][0].item(), x[999][999].item(), x.to(td::kFloat64).sum().item()}), {n, n, 1e6 * n});
  stop.check("product", y[0].slice(0, 0, 1), {400});
  stop.check("during a product", is_under_way(group) ? "under way" : "over", "under way");
  stop.show("exchange", milliseconds(mine[0]));
  stop.show("of it under the product", milliseconds(mine[1]));
  return stop;
}

Stop then(ProcessGroup& group) {
  Stop stop("then", "group.all_reduce_async(x).then(f)",
            "f runs when the sum is there, on whichever thread finished it");
  const td::Tensor x = td::full({3}, group.rank() + 1.0);
  stop.show("x", x);
  const td::Promise<double> promise;
  const td::Work work = group.all_reduce_async(x);
  work.then([x, promise] { promise.set_value(x.sum().item()); });
  const double total = promise.future().get();
  work.wait();
  const double n = group.size();
  stop.check("after", td::full({}, total, {.dtype = td::kFloat64}), {3 * n * (n + 1) / 2});
  return stop;
}

Stop groups_in_flight(ProcessGroup& group, const std::string& backend) {
  Stop stop("groups_in_flight", "a->all_reduce_async(x);  b->all_reduce_async(y)",
            "started on two groups, in another order on odd ranks: groups do not wait for each other");
  std::vector<int> everybody;
  for (int r = 0; r < group.size(); ++r) everybody.push_back(r);
  const auto first = td::distributed::new_group(everybody, {.backend = backend});
  const auto second = td::distributed::new_group(everybody, {.backend = backend});

  const td::Tensor x = td::ones({2});
  const td::Tensor y = td::full({2}, 1.0 * group.rank());
  std::vector<td::Work> works;
  if (group.rank() % 2 == 0) {
    works.push_back(first->all_reduce_async(x));
    works.push_back(second->all_reduce_async(y));
  } else {
    works.push_back(second->all_reduce_async(y));
    works.push_back(first->all_reduce_async(x));
  }
  for (const td::Work& work : works) work.wait();
  const double n = group.size();
  stop.check("first group", x, {n, n});
  stop.check("second group", y, Values(2, n * (n - 1) / 2));
  return stop;
}

}  // namespace examples
