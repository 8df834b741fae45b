// The program of mpi_test: a rank that mpirun starts.
#include <gtest/gtest.h>
#include <mpi.h>
#include <unistd.h>

#include <atomic>
#include <cmath>
#include <csignal>
#include <cstdio>
#include <functional>
#include <map>
#include <string>
#include <thread>
#include <vector>

#include <tandem/base/error.h>
#include <tandem/distributed/init.h>
#include <tandem/distributed/launch.h>
#include <tandem/distributed/process_group.h>
#include <tandem/tensor/allocator.h>
#include <tandem/tests/distributed/op_checks.h>
#include <tandem/tests/distributed/process_ranks.h>

namespace tandem { inline namespace v0 { namespace distributed { namespace {

constexpr int64_t kLarge = 10'000'000;  // elements: several chunks
std::atomic<int> num_held = -1;         // from 0 on, MPI's collectives do not complete; counts the calls that asked

/// A single write, so that readers see complete lines.
void say(const std::string& text) {
  if (write(1, (text + "\n").data(), text.size() + 1) < 0) throw StateError("cannot write");
}

std::string error_of(const std::function<void()>& f) {
  try {
    f();
  } catch (const Error& e) {
    return e.what();
  }
  return "no error";
}

void check_operations(Context& context) {
  ProcessGroup& group = *context.group();
  for (const DType dtype : kDTypes) {
    for (const Form form : {kForms[0], kForms[3]})
      OpChecks(group, dtype, 9001, form).all();  // the flat backend has less
  }
  for (const int64_t n : {0, 1, 20011}) OpChecks(group, kFloat32, n, {true, false}).all();
  OpChecks(group, kBFloat16, 50021, {false, false}).all();
  const Tensor large = full({kLarge}, context.rank() + 1);
  group.all_reduce(large, ReduceOp::kAvg);
  EXPECT_EQ(count_wrong(large, [&](int64_t) { return (context.world_size() + 1) / 2.0; }), 0);
  for (const ReduceOp op : {ReduceOp::kMin, ReduceOp::kMax}) {  // MPI's own would depend on the rank that has the NaN
    for (int rank = 0; rank < context.world_size(); ++rank) {
      const Tensor x = full({9001}, context.rank() == rank ? NAN : 1.0);
      group.all_reduce(x, op);
      EXPECT_TRUE(std::isnan(x.to_vector<float>().back()));
    }
  }
  if (::testing::Test::HasFailure()) throw StateError("wrong values");
}

/// Overlapping groups of members only, made and used in different orders on different ranks.
void use_groups(Context& context) {
  context.group()->barrier();
  std::vector<std::shared_ptr<ProcessGroup>> groups;
  const int rank = context.rank();
  for (int i = 0; i < 3 * 4; ++i) {
    const int first = rank == 1 ? 2 - i % 3 : i % 3;  // of the groups {0, 1}, {1, 2}, {2, 0}
    const int second = (first + 1) % 3;
    if (rank == first || rank == second) groups.push_back(new_group({first, second}));
  }
  std::vector<std::thread> threads;
  std::atomic<int> num_wrong{0};
  for (const auto& group : groups) {
    threads.emplace_back([&num_wrong, group] {
      for (int i = 0; i < 20; ++i) {
        const Tensor x = full({9001}, group->rank() + 1);
        group->all_reduce(x);
        num_wrong += static_cast<int>(count_wrong(x, [](int64_t) { return 3.0; }));
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  expect_equal(num_wrong.load(), 0, "wrong elements");
}

/// Rank 1 dies while all ranks are in an all_reduce.
void die(Context& context) {
  const Tensor x = zeros({kLarge});
  say(str(getpid()));
  for (int i = 0;; ++i) {
    const Work work = context.group()->all_reduce_async(x, ReduceOp::kSum, {.name = "gradients"});
    if (i == 3 && context.rank() == 1) raise(SIGKILL);
    work.wait();
  }
}

/// Rank 1 aborts while all ranks are inside MPI, which cannot cancel the call and may still use its memory.
void abort_in_mpi(Context& context) {
  auto group = new_group({0, 1, 2});
  Tensor x = full({kLarge}, 1.0);
  num_held = 0;
  Work work = group->all_reduce_async(x);
  while (num_held == 0) std::this_thread::yield();
  context.group()->barrier();
  if (context.rank() == 1) group->abort("has seen enough");
  const std::string error = error_of([&] { work.wait(); });
  x = {};
  work = {};
  group.reset();
  if (memory_stats({}).allocated < kLarge * 4) throw StateError("the tensor was freed");
  throw StateError(error);
}

void mismatch(Context& context) {
  const Tensor x = full({4 + context.rank()}, 1.0);
  const std::string error = error_of([&] { context.group()->all_reduce(x); });
  say(str("rank ", context.rank(), ": ", error.substr(error.find("calls"), 31)));
  expect_equal(count_wrong(x, [](int64_t) { return 1.0; }), int64_t{0}, "wrong elements");
}

void refuse_threads(Context&) {
  say(error_of([] { run_threads(2, [](Context&) { new_group({0, 1}, {.backend = "mpi"}); }); }));
}

/// The default group does not use MPI, so not all processes may initialize it.
void use_mpi_late(Context& context) {
  if (context.rank() == 2) return context.group()->barrier();
  const auto group = new_group({0, 1}, {.backend = "mpi"});
  say(error_of([&] { group->barrier(); }));
  context.group()->barrier();
}

const std::map<std::string, void (*)(Context&)> kCases = {
    {"operations", check_operations}, {"groups", use_groups},      {"die", die},          {"abort", abort_in_mpi},
    {"mismatch", mismatch},           {"threads", refuse_threads}, {"late", use_mpi_late}};

}}}}  // namespace tandem::v0::distributed

/// Replaces MPI's function.
extern "C" int MPI_Testany(int n, MPI_Request* requests, int* index, int* flag, MPI_Status* status) {
  using tandem::distributed::num_held;
  return num_held < 0 ? PMPI_Testany(n, requests, index, flag, status) : (++num_held, *flag = 0, MPI_SUCCESS);
}

int main(int argc, char** argv) {
  using namespace tandem::distributed;
  const std::string name = argv[1];
  if (argc < 3 || argv[2][0] == '-') return launch(argc, argv, kCases.at(name));
  const std::string error = error_of([&] {
    init_process_group({.backend = argv[2]});
    kCases.at(name)(Context::current());
    destroy_process_group();
  });
  if (error != "no error") std::fprintf(stderr, "%s\n", error.c_str());
  return error != "no error";
}
