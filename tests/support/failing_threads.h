// Failing thread starts: programs that link this use a pthread_create that fails on request.
#pragma once

namespace tandem::testing_support {

/// While in scope, the `number`th pthread_create of the process, counted from 1, fails with EAGAIN, as at the limit of
/// threads. Only one at a time. If FAILING_THREAD is set to the number, a program fails in this way from its start,
/// provided that FAILING_THREAD_OF equals its variable RANK (unset counts as "").
class FailingThread {
 public:
  explicit FailingThread(int number);
  ~FailingThread();
  FailingThread(const FailingThread&) = delete;
  FailingThread& operator=(const FailingThread&) = delete;

  /// Whether a thread start has failed.
  bool has_failed() const;
};

/// Number of threads of this process.
int num_running_threads();

}  // namespace tandem::testing_support
