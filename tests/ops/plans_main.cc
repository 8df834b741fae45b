// main() of a test of cuDNN's plans. With --table it prints plans instead.
#include <string_view>

#include <gtest/gtest.h>

#include <tandem/tests/ops/plans_main.h>

int main(int argc, char** argv) {
  ::testing::InitGoogleTest(&argc, argv);
  if (argc == 2 && std::string_view(argv[1]) == "--table") {
    tandem::print_plans();
    return 0;
  }
  return RUN_ALL_TESTS();
}
