#include <sys/resource.h>

#include <cstdio>
#include <cstdlib>

#include <gtest/gtest.h>

#include <tandem/base/error.h>
#include <tandem/distributed/backends/shm/segment.h>

namespace {

namespace td = tandem;

[[noreturn]] void create_beyond_limit() {
  const rlimit limit = {1000, 1000};
  if (setrlimit(RLIMIT_FSIZE, &limit) != 0) std::_Exit(2);
  try {
    td::distributed::shm::create_shared_file("test", 4096);
  } catch (const td::CommError& error) {
    std::fputs(error.what(), stderr);
    std::_Exit(0);
  }
  std::_Exit(3);
}

TEST(SharedFile, ExceedingFileSizeLimitIsAnError) {
  EXPECT_EXIT(create_beyond_limit(), ::testing::ExitedWithCode(0),
              "^shared memory: cannot allocate 4096 bytes: File too large$");
}

}  // namespace
