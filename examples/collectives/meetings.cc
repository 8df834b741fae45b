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

Stop barrier(ProcessGroup& group, Store& store) {
  Stop stop("barrier", "group.barrier()", "returns when all ranks have called it");
  store.add("tour/arrived", 1);
  group.barrier();
  stop.check("after", td::str(store.add("tour/arrived", 0), " have arrived"), td::str(group.size(), " have arrived"));
  return stop;
}

Stop monitored_barrier(ProcessGroup& group) {
  Stop stop("monitored_barrier", "group.monitored_barrier({.timeout = 300ms})",
            "a barrier that names who is missing, and after which the group goes on: here the last rank comes late");
  using namespace std::chrono_literals;
  const int last = group.size() - 1;
  const auto meet = [&] { group.monitored_barrier({.timeout = 300ms}); };

  std::string error;
  if (group.rank() < last) error = error_of(meet);
  group.barrier();
  if (group.rank() == last) error = error_of(meet);  // too late, and told so
  stop.check("missing", line_with(error, "missing:"), last == 0 ? "" : td::str("missing: rank ", last));

  group.monitored_barrier();
  stop.check("after", "all came", "all came");
  return stop;
}

Stop sub_groups(ProcessGroup& group, const std::string& backend) {
  Stop stop("sub_groups", "td::distributed::new_group({0, 2, ..})",
            "even and odd ranks for themselves; made by their members only");
  std::vector<int> members;
  for (int r = group.rank() % 2; r < group.size(); r += 2) members.push_back(r);
  const auto half = td::distributed::new_group(members, {.backend = backend});

  const td::Tensor x = td::full({1}, 1.0 * group.rank());
  stop.show("x", x);
  half->all_reduce(x);
  double sum = 0;
  for (const int r : members) sum += r;
  stop.show("group", half->name());
  stop.show("rank in it", td::str(half->rank(), " of ", half->size()));
  stop.check("all_reduce", x, {sum});

  // Roots are ranks of the group: 0 is its first member.
  const td::Tensor y = td::full({1}, 1.0 * group.rank());
  half->broadcast(y, 0);
  stop.check("broadcast", y, {1.0 * (group.rank() % 2)});
  return stop;
}

namespace {

/// What happens where the last of several ranks calls something else than the others: call(a group of all, whether this
/// rank differs).  `both` are in the error's text.
Stop mistake(ProcessGroup& group, const std::string& backend, const std::string& op, const std::string& code,
             const std::vector<std::string>& both, const std::function<void(ProcessGroup&, bool differs)>& call) {
  Stop stop(op, code, "an error on every rank, with both sides; nothing hangs, and no result is wrong");
  std::vector<int> everybody;
  for (int r = 0; r < group.size(); ++r) everybody.push_back(r);
  const auto victim = td::distributed::new_group(everybody, {.backend = backend});
  group.barrier();  // all have called it: none of the others waits for one that is busy elsewhere

  const std::string error = error_of([&] { call(*victim, group.size() > 1 && group.rank() == group.size() - 1); });
  stop.show("what()", error.substr(0, error.find('\n')));
  const bool names_both =
      std::all_of(both.begin(), both.end(), [&](const auto& part) { return error.find(part) != std::string::npos; });
  const std::string seen = error.empty() ? "none" : names_both ? "names both" : error;
  stop.check("error", seen, group.size() == 1 ? "none" : "names both");
  group.barrier();  // all have seen it: nobody leaves the failed group before
  return stop;
}

}  // namespace

Stop mismatched_dtypes(ProcessGroup& group, const std::string& backend) {
  return mistake(group, backend, "mismatched_dtypes",
                 "group.all_reduce(x)  // float64 on the last rank, float32 on the others", {"float32", "float64"},
                 [](ProcessGroup& victim, bool differs) {
                   const td::Tensor x = td::zeros({3}, {.dtype = differs ? td::kFloat64 : td::kFloat32});
                   victim.all_reduce(x, td::distributed::ReduceOp::kSum, {.name = "x"});
                 });
}

Stop mismatched_sizes(ProcessGroup& group, const std::string& backend) {
  return mistake(group, backend, "mismatched_sizes", "group.all_reduce(x)  // [4] on the last rank, [3] on the others",
                 {"[3]", "[4]"}, [](ProcessGroup& victim, bool differs) {
                   victim.all_reduce(td::zeros({differs ? 4 : 3}), td::distributed::ReduceOp::kSum, {.name = "x"});
                 });
}

Stop mismatched_gather(ProcessGroup& group, const std::string& backend) {
  return mistake(group, backend, "mismatched_gather",
                 "group.gather(parts, x, /*root=*/0)  // [2] on the last rank, [1] on the others", {"[1]", "[2]"},
                 [](ProcessGroup& victim, bool differs) {
                   std::vector<td::Tensor> parts;
                   for (int r = 0; victim.rank() == 0 && r < victim.size(); ++r) {
                     parts.push_back(td::zeros({differs ? 2 : 1}));
                   }
                   victim.gather(parts, td::zeros({differs ? 2 : 1}), 0, {.name = "x"});
                 });
}

Stop wrong_device(ProcessGroup& group, const std::string& backend) {
  if (td::cpu_device_count() < 2) td::set_cpu_device_count(2);
  return mistake(group, backend, "wrong_device", "group.all_reduce(y, x)  // x is on cpu:1 on the last rank",
                 {"  float32 [3] on cpu\n", "  float32 [3] on cpu:1"}, [](ProcessGroup& victim, bool differs) {
                   const td::Device there(td::DeviceType::kCpu, differs ? 1 : 0);
                   try {
                     victim.all_reduce(td::zeros({3}), td::zeros({3}, {.device = there}));
                   } catch (const td::DeviceError& error) {  // nothing was sent: the others would wait
                     victim.abort(error.what());
                     throw;
                   }
                 });
}

}  // namespace examples
