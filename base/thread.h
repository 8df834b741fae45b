// Threads of the library.
#pragma once

#include <functional>
#include <string>
#include <thread>

#include <tandem/base/error.h>
#include <tandem/base/function_ref.h>
#include <tandem/base/macros.h>

namespace tandem { inline namespace v0 {

/// Runs f on a new thread that takes no signal: those are for the threads of the program, and a write to a connection that
/// the peer has closed must not end it.  The thread has a RankContext of its own; whoever works for a rank uses a copy of
/// the rank's.  Throws ResourceError where the system starts no thread, with the limit that is reached.
TANDEM_API std::thread start_thread(std::function<void()> f);

/// The same with the caller's signal mask, for code of the program: what that starts takes signals as usual.
TANDEM_API std::thread start_program_thread(std::function<void()> f);

/// "(Resource temporarily unavailable): the limit ... is reached; ...", for the errno of a thread or process that could not
/// be started.
TANDEM_API std::string limit_text(int error);

/// Warns, once per process, that `operation` does without a thread that could not be started.
TANDEM_API void warn_of_fewer_threads(const char* operation, const ResourceError& e);

/// Lets the calling thread run on all of the process's cores: a thread inherits its creator's, which may be those of a rank that
/// is pinned to one.
TANDEM_API void use_all_cores();

/// Calls fn(0) .. fn(n - 1) at the same time, each on a thread of its own that has its share of the calling rank's threads
/// and a copy of its RankContext; returns when all are done and rethrows the failure of the lowest number.  Where a thread cannot
/// be started its call runs on the calling thread, and a warning is logged.
TANDEM_API void run_together(int n, FunctionRef<void(int i)> fn);

/// Calls f, on this thread, while the threads that it starts take no signal: for libraries that start their own.  Throws
/// ResourceError where f throws the std::system_error of a thread that could not be started.
TANDEM_API void without_signals(const std::function<void()>& f);

}}  // namespace tandem::v0
