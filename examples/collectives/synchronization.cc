// Barriers, sub-groups, and the errors of mismatched calls.
#include <tandem/examples/collectives/operations.h>
#include <tandem/tandem.h>

#include <algorithm>
#include <chrono>
#include <functional>
#include <sstream>

namespace td = tandem;

namespace examples {

namespace {

/// The last line of the text that begins with `label` after leading spaces, which are removed; "" if there is none.
std::string line_with(const std::string& text, const std::string& label) {
  std::istringstream in(text);
  std::string found;
  for (std::string line; std::getline(in, line);) {
    const size_t begin = line.find_first_not_of(' ');
    if (begin != std::string::npos && line.compare(begin, label.size(), label) == 0) found = line.substr(begin);
  }
  return found;
}

/// The text of the td::Error that f throws; "" if f does not throw.
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

OperationReport barrier(const Setup& setup, Store& store) {
  OperationReport report("barrier", "group.barrier()", "returns when all ranks have called it");
  store.add("example/arrived", 1);
  setup.group.barrier();
  report.check("after", td::str(store.add("example/arrived", 0), " have arrived"),
               td::str(setup.group.size(), " have arrived"));
  return report;
}

OperationReport monitored_barrier(const Setup& setup) {
  OperationReport report(
      "monitored_barrier", "group.monitored_barrier({.timeout = 300ms})",
      "a barrier whose error names the missing ranks and leaves the group usable; here the last rank is late");
  using namespace std::chrono_literals;
  const int last = setup.group.size() - 1;
  const auto call_barrier = [&] { setup.group.monitored_barrier({.timeout = 300ms}); };

  std::string error;
  if (setup.group.rank() < last) error = error_of(call_barrier);
  setup.group.barrier();
  if (setup.group.rank() == last) error = error_of(call_barrier);  // too late: gets the same error
  report.check("missing", line_with(error, "missing:"), last == 0 ? "" : td::str("missing: rank ", last));

  setup.group.monitored_barrier();
  report.check("after", "no error", "no error");
  return report;
}

OperationReport sub_groups(const Setup& setup) {
  OperationReport report("sub_groups", "td::distributed::new_group({0, 2, ..})",
                         "one group of the even and one of the odd ranks; only members call new_group");
  std::vector<int> members;
  for (int r = setup.group.rank() % 2; r < setup.group.size(); r += 2) members.push_back(r);
  const auto half = td::distributed::new_group(members, {.backend = setup.backend});

  const td::Tensor x = td::full({1}, 1.0 * setup.group.rank(), {.device = setup.device});
  report.show("x", x);
  half->all_reduce(x);
  double sum = 0;
  for (const int r : members) sum += r;
  report.show("group", half->name());
  report.show("rank in it", td::str(half->rank(), " of ", half->size()));
  report.check("all_reduce", x, {sum});

  // Roots are ranks of the group: 0 is its first member.
  const td::Tensor y = td::full({1}, 1.0 * setup.group.rank(), {.device = setup.device});
  half->broadcast(y, 0);
  report.check("broadcast", y, {1.0 * (setup.group.rank() % 2)});
  return report;
}

namespace {

/// Calls call(group, differs) on a new group of all ranks; `differs` is true on the last of several ranks, whose call
/// must not match the others'. Checks that the error's text contains all of `expected`.
OperationReport mismatch(const Setup& setup, const std::string& op, const std::string& code,
                         const std::vector<std::string>& expected,
                         const std::function<void(ProcessGroup&, bool differs)>& call) {
  OperationReport report(op, code,
                         "every rank gets an error that shows both calls, instead of a hang or a wrong result");
  const auto group = td::distributed::new_group(setup.group.ranks(), {.backend = setup.backend});
  setup.group.barrier();  // new_group has returned on all ranks

  const int size = setup.group.size();
  const std::string error = error_of([&] { call(*group, size > 1 && setup.group.rank() == size - 1); });
  report.show("what()", error.substr(0, error.find('\n')));
  const bool names_both = std::all_of(expected.begin(), expected.end(),
                                      [&](const auto& part) { return error.find(part) != std::string::npos; });
  const std::string result = error.empty() ? "none" : names_both ? "names both" : error;
  report.check("error", result, size == 1 ? "none" : "names both");
  setup.group.barrier();  // no rank destroys the failed group before all ranks have the error
  return report;
}

/// A tensor as error texts describe it: "float32 [3]" or "float32 [3] on a GPU".
std::string describe(const Setup& setup, const char* tensor) {
  return td::str(tensor, setup.is_on_gpu() ? " on a GPU" : "");
}

}  // namespace

OperationReport mismatched_dtypes(const Setup& setup) {
  return mismatch(setup, "mismatched_dtypes", "group.all_reduce(x)  // float64 on the last rank, float32 on the others",
                  {describe(setup, "float32 [3]"), describe(setup, "float64 [3]")},
                  [&](ProcessGroup& group, bool differs) {
                    const td::DType dtype = differs ? td::kFloat64 : td::kFloat32;
                    const td::Tensor x = td::zeros({3}, {.dtype = dtype, .device = setup.device});
                    group.all_reduce(x, td::distributed::ReduceOp::kSum, {.name = "x"});
                  });
}

OperationReport mismatched_sizes(const Setup& setup) {
  return mismatch(setup, "mismatched_sizes", "group.all_reduce(x)  // [4] on the last rank, [3] on the others",
                  {describe(setup, "float32 [3]"), describe(setup, "float32 [4]")},
                  [&](ProcessGroup& group, bool differs) {
                    const td::Tensor x = td::zeros({differs ? 4 : 3}, {.device = setup.device});
                    group.all_reduce(x, td::distributed::ReduceOp::kSum, {.name = "x"});
                  });
}

OperationReport mismatched_gather(const Setup& setup) {
  return mismatch(
      setup, "mismatched_gather", "group.gather(parts, x, /*root=*/0)  // [2] on the last rank, [1] on the others",
      {describe(setup, "float32 [1]"), describe(setup, "float32 [2]")}, [&](ProcessGroup& group, bool differs) {
        const td::Tensor x = td::zeros({differs ? 2 : 1}, {.device = setup.device});
        std::vector<td::Tensor> parts;
        for (int r = 0; group.rank() == 0 && r < group.size(); ++r) parts.push_back(td::zeros_like(x));
        group.gather(parts, x, 0, {.name = "x"});
      });
}

OperationReport wrong_device(const Setup& setup) {
  if (td::cpu_device_count() < 2) td::set_cpu_device_count(2);
  const td::Device elsewhere(td::DeviceType::kCPU, setup.is_on_gpu() ? 0 : 1);
  return mismatch(setup, "wrong_device", td::str("group.all_reduce(y, x)  // x is on ", elsewhere, " on the last rank"),
                  {setup.is_on_gpu() ? "  float32 [3] on cuda:" : "  float32 [3] on cpu\n",
                   td::str("  float32 [3] on ", elsewhere)},
                  [&](ProcessGroup& group, bool differs) {
                    const td::Tensor y = td::zeros({3}, {.device = setup.device});
                    const td::Tensor x = td::zeros({3}, {.device = differs ? elsewhere : setup.device});
                    try {
                      group.all_reduce(y, x);
                    } catch (const td::DeviceError& error) {  // a local error: without abort the other ranks would wait
                      group.abort(error.what());
                      throw;
                    }
                  });
}

}  // namespace examples
