// Starting threads.
#pragma once

#include <functional>
#include <string>
#include <thread>

#include <tandem/base/error.h>
#include <tandem/base/function_ref.h>
#include <tandem/base/macros.h>

namespace tandem { inline namespace v0 {

/// Runs f on a new thread with all signals blocked: signals are delivered to the program's own threads, and SIGPIPE
/// from a closed connection must not end the process. The thread starts with a fresh RankContext; a thread that works
/// for a rank installs a copy of the rank's. Throws ResourceError, naming the limit, if the system cannot start a
/// thread.
TANDEM_API std::thread start_thread(std::function<void()> f);

/// As start_thread, but with the caller's signal mask. For threads that run code of the program.
TANDEM_API std::thread start_program_thread(std::function<void()> f);

/// The text for the errno of a thread or process that could not be started: "(Resource temporarily unavailable): the
/// limit ... is reached; ...".
TANDEM_API std::string resource_limit_text(int error);

/// Logs a warning, once per process, that `operation` continues without a thread that could not be started.
TANDEM_API void warn_fewer_threads(const char* operation, const ResourceError& e);

/// Allows the calling thread to run on all cores of the process. A new thread inherits its creator's affinity, and the
/// creator may be a rank that is pinned to one core.
TANDEM_API void use_all_cores();

/// Calls fn(0) .. fn(n - 1) concurrently, each on its own thread with a copy of the caller's RankContext and 1/n of its
/// num_threads; returns when all have finished and rethrows the exception of the lowest index. If a thread cannot be
/// started, its call runs on the calling thread and a warning is logged.
TANDEM_API void run_concurrently(int n, FunctionRef<void(int i)> fn);

}}  // namespace tandem::v0
