// Waiting for each other, groups of some of the ranks, and what a mistake on one rank looks like on all.
#include <tandem/examples/collectives/tour.h>
#include <tandem/tandem.h>

#include <algorithm>
#include <chrono>
#include <functional>
#include <sstream>

namespace td = tandem;

namespace examples {

namespace {

/// The last line of an error's text that begins with `label`, without the spaces before it; "" where there is none.
std::string line_with(const std::string& text, const std::string& label) {
  std::istringstream in(text);
  std::string found;
  for (std::string line; std::getline(in, line);) {
    const size_t begin = line.find_first_not_of(' ');
    if (begin != std::string::npos && line.compare(begin, label.size(), label) == 0) found = line.substr(begin);
  }
  return found;
}

/// The text of the error that f throws; "" where it throws none.
template <typename F>
std::string error_of(const F& f) {
  try {
    f();
  } catch (const td::Error& error) {
    return error.what();
  }
  return "";
}

}  // namespace

Stop barrier(const Tour& tour, Store& store) {
  Stop stop("barrier", "group.barrier()", "returns when all ranks have called it");
  store.add("tour/arrived", 1);
  tour.group.barrier();
  stop.check("after", td::str(store.add("tour/arrived", 0), " have arrived"),
             td::str(tour.group.size(), " have arrived"));
  return stop;
}

Stop monitored_barrier(const Tour& tour) {
  Stop stop("monitored_barrier", "group.monitored_barrier({.timeout = 300ms})",
            "a barrier that names who is missing, and after which the group goes on: here the last rank comes late");
  using namespace std::chrono_literals;
  const int last = tour.group.size() - 1;
  const auto meet = [&] { tour.group.monitored_barrier({.timeout = 300ms}); };

  std::string error;
  if (tour.group.rank() < last) error = error_of(meet);
  tour.group.barrier();
  if (tour.group.rank() == last) error = error_of(meet);  // too late, and told so
  stop.check("missing", line_with(error, "missing:"), last == 0 ? "" : td::str("missing: rank ", last));

  tour.group.monitored_barrier();
  stop.check("after", "all came", "all came");
  return stop;
}

Stop sub_groups(const Tour& tour) {
  Stop stop("sub_groups", "td::distributed::new_group({0, 2, ..})",
            "even and odd ranks for themselves; made by their members only");
  std::vector<int> members;
  for (int r = tour.group.rank() % 2; r < tour.group.size(); r += 2) members.push_back(r);
  const auto half = td::distributed::new_group(members, {.backend = tour.backend});

  const td::Tensor x = td::full({1}, 1.0 * tour.group.rank(), {.device = tour.device});
  stop.show("x", x);
  half->all_reduce(x);
  double sum = 0;
  for (const int r : members) sum += r;
  stop.show("group", half->name());
  stop.show("rank in it", td::str(half->rank(), " of ", half->size()));
  stop.check("all_reduce", x, {sum});

  // Roots are ranks of the group: 0 is its first member.
  const td::Tensor y = td::full({1}, 1.0 * tour.group.rank(), {.device = tour.device});
  half->broadcast(y, 0);
  stop.check("broadcast", y, {1.0 * (tour.group.rank() % 2)});
  return stop;
}

namespace {

/// What happens where the last of several ranks calls something else than the others: call(a group of all, whether this
/// rank differs).  `both` are in the error's text.
Stop mistake(const Tour& tour, const std::string& op, const std::string& code, const std::vector<std::string>& both,
             const std::function<void(ProcessGroup&, bool differs)>& call) {
  Stop stop(op, code, "an error on every rank, with both sides; nothing hangs, and no result is wrong");
  const auto victim = td::distributed::new_group(tour.group.ranks(), {.backend = tour.backend});
  tour.group.barrier();  // all have called it: none of the others waits for one that is busy elsewhere

  const int size = tour.group.size();
  const std::string error = error_of([&] { call(*victim, size > 1 && tour.group.rank() == size - 1); });
  stop.show("what()", error.substr(0, error.find('\n')));
  const bool names_both =
      std::all_of(both.begin(), both.end(), [&](const auto& part) { return error.find(part) != std::string::npos; });
  const std::string seen = error.empty() ? "none" : names_both ? "names both" : error;
  stop.check("error", seen, size == 1 ? "none" : "names both");
  tour.group.barrier();  // all have seen it: nobody leaves the failed group before
  return stop;
}

/// How errors show one of the tour's tensors: "float32 [3]", "float32 [3] on a GPU".
std::string shown(const Tour& tour, const char* tensor) { return td::str(tensor, tour.is_on_gpu() ? " on a GPU" : ""); }

}  // namespace

Stop mismatched_dtypes(const Tour& tour) {
  return mistake(tour, "mismatched_dtypes", "group.all_reduce(x)  // float64 on the last rank, float32 on the others",
                 {shown(tour, "float32 [3]"), shown(tour, "float64 [3]")}, [&](ProcessGroup& victim, bool differs) {
                   const td::DType dtype = differs ? td::kFloat64 : td::kFloat32;
                   const td::Tensor x = td::zeros({3}, {.dtype = dtype, .device = tour.device});
                   victim.all_reduce(x, td::distributed::ReduceOp::kSum, {.name = "x"});
                 });
}

Stop mismatched_sizes(const Tour& tour) {
  return mistake(tour, "mismatched_sizes", "group.all_reduce(x)  // [4] on the last rank, [3] on the others",
                 {shown(tour, "float32 [3]"), shown(tour, "float32 [4]")}, [&](ProcessGroup& victim, bool differs) {
                   const td::Tensor x = td::zeros({differs ? 4 : 3}, {.device = tour.device});
                   victim.all_reduce(x, td::distributed::ReduceOp::kSum, {.name = "x"});
                 });
}

Stop mismatched_gather(const Tour& tour) {
  return mistake(tour, "mismatched_gather",
                 "group.gather(parts, x, /*root=*/0)  // [2] on the last rank, [1] on the others",
                 {shown(tour, "float32 [1]"), shown(tour, "float32 [2]")}, [&](ProcessGroup& victim, bool differs) {
                   const td::Tensor x = td::zeros({differs ? 2 : 1}, {.device = tour.device});
                   std::vector<td::Tensor> parts;
                   for (int r = 0; victim.rank() == 0 && r < victim.size(); ++r) parts.push_back(td::zeros_like(x));
                   victim.gather(parts, x, 0, {.name = "x"});
                 });
}

Stop wrong_device(const Tour& tour) {
  if (td::cpu_device_count() < 2) td::set_cpu_device_count(2);
  const td::Device elsewhere(td::DeviceType::kCpu, tour.is_on_gpu() ? 0 : 1);
  return mistake(
      tour, "wrong_device", td::str("group.all_reduce(y, x)  // x is on ", elsewhere, " on the last rank"),
      {tour.is_on_gpu() ? "  float32 [3] on cuda:" : "  float32 [3] on cpu\n", td::str("  float32 [3] on ", elsewhere)},
      [&](ProcessGroup& victim, bool differs) {
        const td::Tensor y = td::zeros({3}, {.device = tour.device});
        const td::Tensor x = td::zeros({3}, {.device = differs ? elsewhere : tour.device});
        try {
          victim.all_reduce(y, x);
        } catch (const td::DeviceError& error) {  // nothing was sent: the others would wait
          victim.abort(error.what());
          throw;
        }
      });
}

}  // namespace examples
