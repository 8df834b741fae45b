// Process ranks over each backend: values, bit-identical results, deaths and timeouts.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <chrono>
#include <csignal>
#include <fstream>
#include <string>
#include <vector>

#include <tandem/base/error.h>
#include <tandem/distributed/launch.h>
#include <tandem/distributed/process_group.h>
#include <tandem/tensor/factories.h>
#include <tandem/tests/distributed/killed_rank.h>
#include <tandem/tests/distributed/process_ranks.h>
#include <tandem/tests/distributed/thread_ranks.h>
#include <tandem/tests/distributed/thrown.h>
#include <tandem/tests/support/sanitizers.h>
#include <tandem/tests/support/temporary_folder.h>

namespace tandem { inline namespace v0 { namespace distributed { namespace {

using Clock = std::chrono::steady_clock;
using testing::TemporaryFolder;

std::shared_ptr<ProcessGroup> make_group(Context& context, const std::string& backend) {
  return ProcessGroup::create({.store = context.store(),
                               .rank = context.rank(),
                               .world_size = context.world_size(),
                               .name = backend + " alone",
                               .timeout = kLongTimeout,
                               .backend = backend});
}

std::vector<Setting> settings() {
  if (testing::kThreadSanitizer) return {{2, "shm"}, {2, "gloo"}};
  return {{1, "shm"}, {2, "shm"}, {3, "shm"}, {4, "shm"}, {7, "shm"}, {1, "gloo"}, {2, "gloo"}, {4, "gloo"}};
}

class BackendProcesses : public ::testing::TestWithParam<Setting> {};
INSTANTIATE_TEST_SUITE_P(Each, BackendProcesses, ::testing::ValuesIn(settings()), setting_name);

TANDEM_RANK_MAIN(exchange) {
  const auto group = make_group(context, args.at(0));
  const int n = group->size();
  // All paths: slots, one-shot, two-shot, and a shorter last round; twice, so that rings and slots are
  // reused.
  for (const int64_t count : {0, 1, 33, 4097, 70001, 500001, 2000003, 33, 500001}) {
    const Tensor sums = full({count}, n * (n + 1) / 2);
    const Tensor x = full({count}, group->rank() + 1);
    group->all_reduce(x);
    expect_equal(same_bytes(x, sums), true, str("all_reduce ", count));
    group->all_reduce(x, ReduceOp::kAvg);
    expect_equal(same_bytes(x, sums), true, str("avg ", count));

    const Tensor y = full({count}, group->rank(), {kInt32});
    group->broadcast(y, n - 1);
    expect_equal(same_bytes(y, full({count}, n - 1, {kInt32})), true, str("broadcast ", count));

    const Tensor all = zeros({n, count}, {kFloat16});
    group->all_gather(all, full({count}, 3 * group->rank(), {kFloat16}));
    for (int from = 0; from < n; ++from) {
      const Tensor part = make_view(all.storage(), kFloat16, {count}, {1}, from * count);
      expect_equal(same_bytes(part, full({count}, 3 * from, {kFloat16})), true, str("all_gather ", count));
    }
    group->barrier();
  }
}

TEST_P(BackendProcesses, CollectivesMatchClosedFormValues) {
  spawn(GetParam().world_size, "exchange", {GetParam().backend});
}

TANDEM_RANK_MAIN(same_bits) {
  const auto shm = make_group(context, "shm");
  const auto gloo = make_group(context, "gloo");
  for (const DType dtype : {kFloat32, kBFloat16, kFloat16, kFloat64}) {
    for (const int64_t count : {7, 3001, 400001}) {
      std::vector<double> values(static_cast<size_t>(count));
      for (size_t i = 0; i < values.size(); ++i) {
        values[i] = 1.0 / static_cast<double>(3 + (i * 7919 + static_cast<size_t>(context.rank()) * 104729) % 1013);
      }
      const Tensor x = from_vector(values, {count}, {dtype});
      const Tensor y = from_vector(values, {count}, {dtype});
      gloo->all_reduce(x, ReduceOp::kAvg);
      shm->all_reduce(y, ReduceOp::kAvg);
      expect_equal(same_bytes(x, y), true, str("bits ", dtype, " ", count));
    }
  }
}

TEST(Backends, ShmAndNetworkAveragesAreBitwiseEqual) {
  for (const int n : {2, 3}) spawn(n, "same_bits");
}

class BackendFailures : public ::testing::TestWithParam<std::string> {};
INSTANTIATE_TEST_SUITE_P(Each, BackendFailures, ::testing::Values("shm", "gloo"),
                         [](const auto& param_info) { return param_info.param; });

TANDEM_RANK_MAIN(survive_a_kill) {
  const auto group = make_group(context, args.at(0));
  const Tensor x = full({1 << 20}, 1);
  group->all_reduce(x);
  const int victim = std::stoi(args.at(1));
  if (group->rank() == victim) {
    context.store()->get("all but one wait", kLongTimeout);
    raise(SIGKILL);
  }
  if (context.store()->add("waiting", 1) == group->size() - 1) context.store()->set("all but one wait", "");
  const auto begin = Clock::now();
  const std::string text = text_of<CommError>([&] { group->all_reduce(x); });
  const std::chrono::duration<double> took = Clock::now() - begin;
  std::ofstream(args.at(2) + std::to_string(group->rank()))
      << text << (took < std::chrono::seconds(5) ? "" : " too late");
}

TEST_P(BackendFailures, KilledRankIsReportedOnAllSurvivors) {
  for (const int victim : {0, 2}) {
    const TemporaryFolder folder;
    EXPECT_THROW(spawn(4, "survive_a_kill", {GetParam(), std::to_string(victim), folder / "rank"}), CommError);
    for (int rank = 0; rank < 4; ++rank) {
      if (rank == victim) continue;
      EXPECT_THAT(testing::read_file(folder / str("rank", rank)),
                  ::testing::MatchesRegex(
                      str("\\[rank ", rank, " of 4\\] all_reduce #2 failed\n  rank ", victim, ": ", kKilledReason)));
    }
  }
}

TANDEM_RANK_MAIN(stop_one) {
  const auto group = make_group(context, args.at(0));
  group->barrier();
  context.store()->set("pid" + std::to_string(group->rank()), std::to_string(getpid()));
  if (group->rank() == 1) {
    context.store()->get("timed out", kLongTimeout);
    return;
  }
  const pid_t other = std::stoi(context.store()->get("pid1", kLongTimeout));
  kill(other, SIGSTOP);
  const Tensor x = full({100000}, 1);
  const std::string text =
      text_of<CommError>([&] { group->all_reduce(x, ReduceOp::kSum, {.timeout = std::chrono::milliseconds(300)}); });
  kill(other, SIGCONT);
  context.store()->set("timed out", "");
  const std::string head = str("[rank 0 of 2] all_reduce #2 timed out after 0.3 s\n  100000 float32 (390.6 KiB), ",
                               args.at(0), "\n  reached #2: ranks 0.  missing: rank 1 (last reached barrier #1, ");
  expect_equal(text.substr(0, head.size()), head, "error");
}

TEST_P(BackendFailures, StoppedRankIsReportedAtTimeout) { spawn(2, "stop_one", {GetParam()}); }

}}}}  // namespace tandem::v0::distributed
