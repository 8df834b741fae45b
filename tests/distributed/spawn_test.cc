#include <gtest/gtest.h>

#include <unistd.h>

#include <csignal>
#include <cstdlib>
#include <fstream>
#include <stdexcept>
#include <string>

#include <tandem/base/error.h>
#include <tandem/base/rank_context.h>
#include <tandem/distributed/launch.h>
#include <tandem/tests/support/temporary_folder.h>

namespace {

namespace td = tandem;
using namespace td::distributed;
using td::testing::read_file;
using td::testing::TemporaryFolder;

constexpr std::chrono::seconds kLongTimeout{100};

std::string spawn_error(int n, const std::string& name, const std::vector<std::string>& args, int* peer = nullptr) {
  try {
    spawn(n, name, args);
  } catch (const td::CommError& e) {
    if (peer != nullptr) *peer = e.peer();
    return e.what();
  }
  return "no CommError";
}

TANDEM_RANK_MAIN(write_numbers) {
  context.store()->add("sum", context.rank() + 1);
  context.store()->set("done" + std::to_string(context.rank()), "");
  for (int r = 0; r < context.world_size(); ++r) context.store()->get("done" + std::to_string(r), kLongTimeout);
  if (context.rank() == 0) {
    std::ofstream(args.at(0)) << context.store()->add("sum", 0) << " of " << context.world_size() << " " << args.at(1);
  }
}

TEST(Spawn, RunsNamedFunctionWithArguments) {
  for (const int n : {1, 2, 3, 5}) {
    const TemporaryFolder folder;
    const std::string path = folder / "numbers";
    spawn(n, "write_numbers", {path, "a b"});
    EXPECT_EQ(read_file(path), std::to_string(n * (n + 1) / 2) + " of " + std::to_string(n) + " a b");
  }
}

TANDEM_RANK_MAIN(throw_on) {
  if (std::to_string(context.rank()) == args.at(0)) throw std::out_of_range("index 7");
  context.store()->get("never", kLongTimeout);
}

TEST(Spawn, ThrowsRootCauseOfFailure) {
  int peer = -1;
  EXPECT_EQ(spawn_error(3, "throw_on", {"2"}, &peer), "spawn: rank 2 of 3 failed (exit status 1): index 7");
  EXPECT_EQ(peer, 2);
}

TANDEM_RANK_MAIN(kill_on) {
  if (std::to_string(context.rank()) == args.at(0)) raise(SIGKILL);
  context.store()->get("never", kLongTimeout);
}

TEST(Spawn, ErrorNamesSignalOfKilledRank) {
  EXPECT_EQ(spawn_error(2, "kill_on", {"0"}), "spawn: rank 0 of 2 failed (killed by SIGKILL)");
}

TANDEM_RANK_MAIN(look_at_variables) {
  std::ofstream out(args.at(0));
  for (const char* name : {"TEST_SHARD_INDEX", "XML_OUTPUT_FILE", "TEST_PREMATURE_EXIT_FILE", "TANDEM_RANK_MAIN"}) {
    out << name << (std::getenv(name) != nullptr ? " set\n" : " unset\n");
  }
  out << td::RankContext::current().num_threads << " threads\n";
}

TEST(Spawn, TestRunnerVariablesAreHiddenFromRanks) {
  setenv("TEST_SHARD_INDEX", "3", 1);
  setenv("TANDEM_NUM_THREADS", "5", 1);
  const TemporaryFolder folder;
  const std::string path = folder / "variables";
  spawn(1, "look_at_variables", {path});
  unsetenv("TEST_SHARD_INDEX");
  unsetenv("TANDEM_NUM_THREADS");
  EXPECT_EQ(read_file(path),
            "TEST_SHARD_INDEX unset\nXML_OUTPUT_FILE unset\nTEST_PREMATURE_EXIT_FILE unset\n"
            "TANDEM_RANK_MAIN unset\n5 threads\n");
}

TEST(Spawn, InvalidCallsAreRejected) {
  const auto text_of = [](auto&& f) -> std::string {
    try {
      f();
    } catch (const td::Error& e) {
      return e.what();
    }
    return "no error";
  };
  EXPECT_EQ(text_of([] { spawn(0, "throw_on"); }), "spawn: expected 1 to 1024 ranks, got 0");
  EXPECT_EQ(text_of([] { spawn(2, "nobody"); }), "spawn: no function is registered as 'nobody' with TANDEM_RANK_MAIN");
  setenv("TANDEM_RANK_MAIN", "throw_on", 1);
  EXPECT_EQ(text_of([] { spawn(2, "throw_on"); }),
            "spawn: this process was started by spawn, but its main does not begin with rank_main_entry(argc, argv)");
  unsetenv("TANDEM_RANK_MAIN");
}

}  // namespace
