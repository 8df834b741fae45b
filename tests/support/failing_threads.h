// Threads that cannot be started: programs that link this call a pthread_create that fails on request.
#pragma once

namespace tandem::testing_support {

/// While it lives, the `number`th pthread_create of the process, from 1, fails with EAGAIN, as at the limit of threads.  One at
/// a time.  A program fails so from its start where the variable FAILING_THREAD is set to the number, and FAILING_THREAD_OF to
/// what its variable RANK is ("" where that is not set).
class FailingThread {
 public:
  explicit FailingThread(int number);
  ~FailingThread();
  FailingThread(const FailingThread&) = delete;
  FailingThread& operator=(const FailingThread&) = delete;

  /// Whether one has failed.
  bool has_failed() const;
};

/// How many threads this process has.
int num_running_threads();

}  // namespace tandem::testing_support
