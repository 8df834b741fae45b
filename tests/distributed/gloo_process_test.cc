// Process ranks over gloo on this host: values, the same bits as shared memory, deaths and disagreement.
#include <gtest/gtest.h>
#include <unistd.h>

#include <chrono>
#include <csignal>
#include <cstdlib>
#include <fstream>
#include <string>
#include <vector>

#include <tandem/base/error.h>
#include <tandem/distributed/launch.h>
#include <tandem/distributed/process_group.h>
#include <tandem/tensor/factories.h>

namespace {

namespace td = tandem;
using namespace td::distributed;
using Clock = std::chrono::steady_clock;

constexpr std::chrono::seconds kLong{100};

std::string scratch(const std::string& name) {
  const char* folder = std::getenv("TEST_TMPDIR");
  return std::string(folder != nullptr ? folder : "/tmp") + "/" + name;
}

std::string read_file(const std::string& path) {
  std::ifstream in(path);
  return std::string(std::istreambuf_iterator<char>(in), {});
}

template <class A, class B>
void expect_equal(const A& got, const B& want, const std::string& what) {
  if (!(got == want)) throw td::StateError(td::str(what, ": got '", got, "', want '", want, "'"));
}

template <class F>
std::string comm_error_of(const F& f) {
  try {
    f();
  } catch (const td::CommError& e) {
    return e.what();
  }
  return "no CommError";
}

std::vector<double> filled(size_t n, double v) { return std::vector<double>(n, v); }

std::shared_ptr<ProcessGroup> gloo_group(Context& context, const std::string& name = "network") {
  ProcessGroupOptions options;
  options.store = context.store();
  options.rank = context.rank();
  options.world_size = context.world_size();
  options.name = name;
  options.timeout = kLong;
  options.backend = "gloo";
  return ProcessGroup::create(options);
}

TANDEM_RANK_MAIN(exchange) {
  const auto group = gloo_group(context);
  const int n = group->size();
  for (const int64_t count : {0, 1, 33, 4097, 70001, 500001, 2000003, 33}) {
    const size_t size = static_cast<size_t>(count);
    const td::Tensor x = td::full({count}, group->rank() + 1);
    group->all_reduce(x);
    expect_equal(x.to_vector<double>() == filled(size, n * (n + 1) / 2), true, td::str("all_reduce ", count));
    const td::Tensor y = td::full({count}, group->rank(), {td::kInt32});
    group->broadcast(y, n - 1);
    expect_equal(y.to_vector<double>() == filled(size, n - 1), true, td::str("broadcast ", count));
    const td::Tensor all = td::zeros({n, count}, {td::kFloat16});
    group->all_gather(all, td::full({count}, 3 * group->rank(), {td::kFloat16}));
    const std::vector<double> got = all.to_vector<double>();
    int64_t wrong = 0;
    for (size_t i = 0; i < got.size(); ++i) wrong += got[i] != 3.0 * static_cast<double>(i / size);
    expect_equal(wrong, 0, td::str("all_gather ", count));
    group->barrier();
  }
}

TEST(GlooProcess, ClosedFormValuesForSeveralWorlds) {
  for (const int n : {1, 2, 4}) spawn(n, "exchange");
}

TANDEM_RANK_MAIN(same_bits) {
  const auto group = gloo_group(context);
  for (const td::DType dtype : {td::kFloat32, td::kBFloat16, td::kFloat16, td::kFloat64}) {
    for (const int64_t count : {7, 3001, 400001}) {
      std::vector<double> values(static_cast<size_t>(count));
      for (size_t i = 0; i < values.size(); ++i) {
        values[i] = 1.0 / static_cast<double>(3 + (i * 7919 + static_cast<size_t>(group->rank()) * 104729) % 1013);
      }
      const td::Tensor x = td::from_vector(values, {count}, {dtype});
      const td::Tensor y = td::from_vector(values, {count}, {dtype});
      group->all_reduce(x, ReduceOp::kAvg);
      context.group()->all_reduce(y, ReduceOp::kAvg);
      expect_equal(x.to_vector<double>() == y.to_vector<double>(), true, td::str("bits ", dtype, " ", count));
    }
  }
}

TEST(GlooProcess, SumsHaveTheBitsOfSharedMemory) {
  for (const int n : {2, 3}) spawn(n, "same_bits");
}

TANDEM_RANK_MAIN(survive_a_kill) {
  const auto group = gloo_group(context);
  const td::Tensor x = td::full({1 << 20}, 1);
  group->all_reduce(x);
  const int victim = std::stoi(args.at(0));
  if (group->rank() == victim) {
    context.store()->get("all but one wait", kLong);
    raise(SIGKILL);
  }
  if (context.store()->add("waiting", 1) == group->size() - 1) context.store()->set("all but one wait", "");
  const auto begin = Clock::now();
  const std::string text = comm_error_of([&] { group->all_reduce(x); });
  const std::chrono::duration<double> took = Clock::now() - begin;
  std::ofstream(args.at(1) + std::to_string(group->rank()))
      << text << (took < std::chrono::seconds(5) ? "" : " too late");
}

TEST(GlooProcess, AKilledRankIsNamedOnAllOthers) {
  for (const int victim : {0, 2}) {
    const std::string path = scratch(td::str("gloo_killed", victim, "_"));
    EXPECT_THROW(spawn(4, "survive_a_kill", {std::to_string(victim), path}), td::CommError);
    for (int rank = 0; rank < 4; ++rank) {
      if (rank == victim) continue;
      const std::string text = read_file(path + std::to_string(rank));
      EXPECT_EQ(text, td::str("[rank ", rank, " of 4] all_reduce #2 failed\n  rank ", victim,
                              ": died (its connection closed)"));
    }
  }
}

TANDEM_RANK_MAIN(stop_one) {
  const auto group = gloo_group(context);
  group->barrier();
  context.store()->set("pid" + std::to_string(group->rank()), std::to_string(getpid()));
  if (group->rank() == 1) {
    context.store()->get("timed out", kLong);
    return;
  }
  const pid_t other = std::stoi(context.store()->get("pid1", kLong));
  kill(other, SIGSTOP);
  const td::Tensor x = td::full({100000}, 1);
  const std::string text =
      comm_error_of([&] { group->all_reduce(x, ReduceOp::kSum, {.timeout = std::chrono::milliseconds(300)}); });
  kill(other, SIGCONT);
  context.store()->set("timed out", "");
  const std::string head =
      "[rank 0 of 2] all_reduce #2 timed out after 0.3 s\n  100000 float32 (390.6 KiB), gloo\n"
      "  reached #2: ranks 0.  missing: rank 1 (last reached barrier #1, ";
  expect_equal(text.substr(0, head.size()), head, "error");
}

TEST(GlooProcess, AStoppedRankIsNamedAtTheDeadline) { spawn(2, "stop_one"); }

}  // namespace
