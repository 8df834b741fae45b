#include <tandem/distributed/group/flight_recorder.h>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <chrono>
#include <cstdlib>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include <tandem/base/trace.h>
#include <tandem/distributed/process_group.h>
#include <tandem/tensor/factories.h>
#include <tandem/tests/distributed/thread_ranks.h>
#include <tandem/tests/support/temporary_folder.h>

namespace tandem { inline namespace v0 { namespace distributed { namespace {

using ::testing::HasSubstr;
using ::testing::MatchesRegex;
using testing::read_file;

class FlightRecorderTest : public ::testing::Test {
 protected:
  FlightRecorderTest() { setenv("TANDEM_FLIGHT_RECORDER_DIR", folder_.path().c_str(), 1); }
  ~FlightRecorderTest() override { unsetenv("TANDEM_FLIGHT_RECORDER_DIR"); }

  std::string file(int rank, const std::string& group = "default") const {
    return read_file(folder_ / str("rank-", rank, ".flight-", group, ".txt"));
  }
  /// The lines of operations.
  std::vector<std::string> lines(int rank, const std::string& group = "default") const {
    std::vector<std::string> lines;
    const std::string text = file(rank, group);
    for (size_t begin = 0; begin < text.size(); begin = text.find('\n', begin) + 1) {
      if (text[begin] != '#') lines.push_back(text.substr(begin, text.find('\n', begin) - begin));
    }
    return lines;
  }

  const testing::TemporaryFolder folder_;
  std::mutex mutex_;
};

CollectiveOperation& number(CollectiveOperation& operation, int64_t seq) {
  operation.collective.seq = seq;
  operation.collective.where = std::source_location::current();
  return operation;
}

TEST_F(FlightRecorderTest, KeepsTheLastOperationsInOrder) {
  FlightRecorder recorder({.store = nullptr, .rank = 1, .world_size = 2}, mutex_);
  CollectiveOperation first;
  for (int64_t seq = 1; seq <= 300; ++seq) {
    CollectiveOperation next;
    CollectiveOperation& operation = seq == 1 ? first : next;
    recorder.record(number(operation, seq), false);
    recorder.mark_end(operation);
  }
  recorder.mark(first, FlightRecorder::Time::kStarted, trace_now_ns());  // of a line that is no longer there
  recorder.write("a test", false);
  const auto found = lines(1);
  ASSERT_EQ(found.size(), 256u);
  for (size_t i = 0; i < found.size(); ++i) {
    EXPECT_THAT(found[i], MatchesRegex(str(" +", 45 + i, "  [0-9:.]{15}  +-  +-  +[0-9.]+  [0-9a-f]{8}  barrier, .*")));
  }
}

TEST_F(FlightRecorderTest, ShowsTimesAndCalls) {
  FlightRecorder recorder({.store = nullptr, .rank = 0, .world_size = 2, .name = "a/b\nc", .ranks = {3, 5}}, mutex_);
  CollectiveOperation started, on_gpu, failed, at_once, neither, done_on_gpu;
  recorder.record(number(started, 1), false);
  recorder.record(number(on_gpu, 2), false);
  recorder.record(number(failed, 3), false);
  recorder.record(number(at_once, 4), true);
  recorder.record(number(neither, 5), true);
  recorder.record(number(done_on_gpu, 6), false);
  for (const CollectiveOperation* const operation : {&started, &at_once}) {
    recorder.mark(*operation, FlightRecorder::Time::kStarted, trace_now_ns() + 2'000'000'000);
  }
  on_gpu.ends_on_gpu = done_on_gpu.ends_on_gpu = true;
  recorder.mark_end(on_gpu);
  recorder.mark_end(done_on_gpu);
  recorder.end_on_gpu(done_on_gpu)();
  failed.error = std::make_exception_ptr(StateError("x"));
  recorder.mark_end(failed);
  Message message;
  message.shown_peer = 5;
  P2pRequest& transfer = message.transfer;
  transfer.sends = true;
  transfer.peer = 1;
  transfer.tag = 7;
  transfer.seq = 1;
  transfer.shape = {2, 3};
  transfer.name = std::string(100, 'n');
  recorder.record(message);
  recorder.write("line\nbreak", false);
  EXPECT_THAT(file(3, "a_b_c"), HasSubstr("\n# group 'a/b c', rank 3 (0 of 2 in the group), host "));
  EXPECT_THAT(file(3, "a_b_c"),
              MatchesRegex("(.|\n)*\n# written [0-9]{4}-[0-9-]{5} [0-9:.]{15} UTC: line break\n(.|\n)*"));
  const auto found = lines(3, "a_b_c");
  ASSERT_EQ(found.size(), 7u);
  EXPECT_THAT(found[0], MatchesRegex(".* 200[0-9]\\.[0-9]{3}  +-  +-  .*flight_recorder_test.cc:[0-9]+"));
  EXPECT_THAT(found[1], MatchesRegex(" +2  [0-9:.]{15}  +-  +0\\.[0-9]{3}  +-  .*"));
  EXPECT_THAT(found[2], MatchesRegex(" +3  [0-9:.]{15}  +-  +-  +-  .*"));
  EXPECT_THAT(found[3], MatchesRegex(" +4  [0-9:.]{15}  +0\\.000  +-  +-  .*"));
  EXPECT_THAT(found[4], MatchesRegex(" +5  +-  +-  +-  +-  .*"));
  EXPECT_THAT(found[5], MatchesRegex(" +6  [0-9:.]{15}  +-  +0\\.[0-9]{3}  +0\\.[0-9]{3}  .*"));
  EXPECT_THAT(found[6], MatchesRegex(str(" +p1  [0-9:.]{15} .*  +-  send float32 \\[2, 3\\] to rank 5 tag 7, '",
                                         std::string(60, 'n'), "\\.\\.\\.', .*")));
}

TEST_F(FlightRecorderTest, ChecksAreEqualIfCallsMatch) {
  FlightRecorder recorder({.store = nullptr, .world_size = 2}, mutex_);
  CollectiveOperation operation;
  const auto check_of = [&](auto change) {
    change(operation.collective);
    recorder.record(number(operation, 1), false);
    recorder.write("a test", false);
    return lines(0).back().substr(59, 8);
  };
  const std::string first = check_of([](Collective&) {});
  EXPECT_EQ(check_of([](Collective& c) { c.shape = {7}; }), first);  // shown, not compared
  EXPECT_NE(check_of([](Collective& c) { c.shape_hash = 7; }), first);
}

TEST_F(FlightRecorderTest, FileOfTheFirstFailureIsKept) {
  FlightRecorder recorder({.store = nullptr, .world_size = 2}, mutex_);
  recorder.write("stall", false);
  recorder.write("SIGQUIT", false);
  EXPECT_THAT(file(0), HasSubstr("UTC: SIGQUIT\n"));
  recorder.write("first", true);
  recorder.write("second", true);
  recorder.write("SIGQUIT", false);
  EXPECT_THAT(file(0), HasSubstr("UTC: first\n"));
}

TEST_F(FlightRecorderTest, FolderThatCannotBeCreatedIsNoError) {
  setenv("TANDEM_FLIGHT_RECORDER_DIR", folder_.write("file", std::string("x")).c_str(), 1);
  FlightRecorder recorder({.store = nullptr, .world_size = 2}, mutex_);
  ::testing::internal::CaptureStderr();
  recorder.write("a test", false);
  EXPECT_THAT(::testing::internal::GetCapturedStderr(), HasSubstr("flight recorder: cannot create '"));
}

TEST_F(FlightRecorderTest, EveryRankOfAFailedGroupWritesOnce) {
  const ThreadRanks ranks{.world_size = 3};
  const auto errors = run_on_threads(
      3, [&](int rank) { return ranks.make(rank); },
      [](ProcessGroup& group) {
        group.barrier();
        if (group.rank() == 1) throw StateError("boom");
        group.all_reduce(ones({2}), ReduceOp::kSum, {.name = "loss"});
      });
  for (int rank = 0; rank < 3; ++rank) {
    EXPECT_NE(errors[static_cast<size_t>(rank)], nullptr);
    EXPECT_THAT(file(rank), HasSubstr("UTC: failed: rank 1: boom\n"));
    const auto found = lines(rank);
    ASSERT_EQ(found.size(), rank == 1 ? 1u : 2u);
    EXPECT_THAT(found[0], MatchesRegex(" +1  [0-9:.]{15}  +[0-9.]+  +-  +[0-9.]+  .*"));
    if (rank == 1) continue;
    EXPECT_THAT(found[1], MatchesRegex(" +2  [0-9:.]{15}  +[0-9.]+  +-  +-  .*'loss', .*"));
  }
}

TEST_F(FlightRecorderTest, RankOutsideOfOperationsWritesWhenAnotherFails) {
  const ThreadRanks ranks{.world_size = 2};
  run_on_threads(
      2, [&](int rank) { return ranks.make(rank); },
      [&](ProcessGroup& group) {
        group.barrier();
        if (group.rank() == 0) ranks.store->announce_failure(0, "boom");
        while (file(1).empty()) std::this_thread::sleep_for(std::chrono::milliseconds(1));
      });
  EXPECT_THAT(file(1), HasSubstr("UTC: failed: rank 0: boom\n"));
}

TEST_F(FlightRecorderTest, StalledRankWritesAndGoesOn) {
  const ThreadRanks ranks{.stall = std::chrono::milliseconds(20)};
  ranks.run([&](ProcessGroup& group) {
    while (group.rank() == 1 && file(0).empty()) std::this_thread::sleep_for(std::chrono::milliseconds(1));
    group.barrier();
  });
  EXPECT_THAT(file(0),
              MatchesRegex("(.|\n)*UTC: group .default.: barrier #1 has been waiting for [0-9.]+ s for rank 1(.|\n)*"));
}

TEST_F(FlightRecorderTest, StalledMessageWrites) {
  const ThreadRanks ranks{.stall = std::chrono::milliseconds(20)};
  ranks.run([&](ProcessGroup& group) {
    Tensor x = ones({1});
    if (group.rank() == 0) return group.recv(x, 1);
    while (file(0).empty()) std::this_thread::sleep_for(std::chrono::milliseconds(1));
    group.send(x, 0);
  });
  EXPECT_THAT(file(0), MatchesRegex("(.|\n)*UTC: group 'default': recv from rank 1 tag 0 has been waiting (.|\n)*"));
}

}}}}  // namespace tandem::v0::distributed
