// Errors of calls on thread ranks.
#pragma once

#include <exception>
#include <source_location>
#include <string>
#include <vector>

#include <tandem/base/error.h>
#include <tandem/distributed/process_group.h>
#include <tandem/tests/distributed/thread_ranks.h>

namespace tandem { inline namespace v0 { namespace distributed {

/// The error of one rank's call.
struct Thrown {
  std::string text = "nothing";
  int rank = -2;
  int peer = -2;
  int64_t seq = -2;
};

template <class F>
Thrown thrown_by(const F& f) {
  try {
    f();
  } catch (const CommError& e) {
    return {e.what(), e.rank(), e.peer(), e.seq()};
  } catch (const std::exception& e) {
    return {std::string("another exception: ") + e.what()};
  }
  return {};
}

/// Runs f(group) on all ranks and returns their errors.
template <class F>
std::vector<Thrown> run_all(const ThreadRanks& ranks, const F& f) {
  std::vector<Thrown> thrown(static_cast<size_t>(ranks.world_size));
  ranks.run([&](ProcessGroup& group) { thrown[static_cast<size_t>(group.rank())] = thrown_by([&] { f(group); }); });
  return thrown;
}

/// A call site independent of line numbers of this file.
inline std::string place(const std::source_location& where) { return str(where.file_name(), ":", where.line()); }

/// The text of the E thrown by f.
template <class E, class F>
std::string text_of(const F& f) {
  try {
    f();
  } catch (const E& e) {
    return e.what();
  }
  return "nothing of that type";
}

}}}  // namespace tandem::v0::distributed
