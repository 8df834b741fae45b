#include <tandem/tests/support/failing_threads.h>

#include <dlfcn.h>
#include <pthread.h>

#include <atomic>
#include <cerrno>
#include <cstdlib>
#include <filesystem>
#include <iterator>
#include <string_view>

namespace tandem::testing_support {

namespace {

int number_from_environment() {
  const char* number = std::getenv("FAILING_THREAD");
  const char* chosen = std::getenv("FAILING_THREAD_OF");
  const char* own = std::getenv("RANK");
  const bool is_chosen = chosen != nullptr && std::string_view(chosen) == (own != nullptr ? own : "");
  return number != nullptr && is_chosen ? std::atoi(number) : 0;
}

// Number of threads to start up to and including the one that fails; 0: none fails.
std::atomic<int>& countdown() {
  static std::atomic<int> left{number_from_environment()};
  return left;
}

}  // namespace

FailingThread::FailingThread(int number) { countdown() = number; }
FailingThread::~FailingThread() { countdown() = 0; }
bool FailingThread::has_failed() const { return countdown() == 0; }

int num_running_threads() {
  return static_cast<int>(std::distance(std::filesystem::directory_iterator("/proc/self/task"), {}));
}

}  // namespace tandem::testing_support

extern "C" __attribute__((visibility("default"))) int pthread_create(pthread_t* thread,
                                                                     const pthread_attr_t* attributes,
                                                                     void* (*f)(void*), void* argument) {
  using Create = int (*)(pthread_t*, const pthread_attr_t*, void* (*)(void*), void*);
  static const auto create = reinterpret_cast<Create>(dlsym(RTLD_NEXT, "pthread_create"));
  std::atomic<int>& left = tandem::testing_support::countdown();
  for (int before = left; before > 0;) {
    if (!left.compare_exchange_weak(before, before - 1)) continue;
    if (before == 1) return EAGAIN;
    break;
  }
  return create(thread, attributes, f, argument);
}
