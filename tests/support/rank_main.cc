// GoogleTest's main for tests that call spawn: the processes that spawn starts run their rank's function, not the
// tests.
#include <gtest/gtest.h>

#include <tandem/distributed/launch.h>

int main(int argc, char** argv) {
  if (const auto status = tandem::distributed::rank_main_entry(argc, argv)) return *status;
  testing::InitGoogleTest(&argc, argv);
  return RUN_ALL_TESTS();
}
