// The program of mpi_test: a rank that mpirun starts.
#include <gtest/gtest.h>
#include <mpi.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <cmath>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <functional>
#include <map>
#include <mutex>
#include <set>
#include <string>
#include <thread>
#include <utility>
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
bool refuses_groups = false;            // MPI cannot create communicators
bool reads_late = false;                // MPI reads the arguments of a collective at its first test
std::function<int()> late;

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
  auto group = new_group(context.group()->ranks());
  Tensor x = full({kLarge}, 1.0);
  num_held = 0;
  Work work = group->all_reduce_async(x);
  while (num_held == 0) std::this_thread::yield();
  context.group()->barrier();
  if (context.rank() == 1) group->abort("has seen enough");
  say(error_of([&] { work.wait(); }));
  context.group()->barrier();  // in which no rank calls MPI
  x = {};
  work = {};
  group.reset();
  if (memory_stats({}).allocated < kLarge * 4) throw StateError("the tensor was freed");
}

/// Counts how often the worker asks MPI while no caller waits and the next call's signature is unread.
void count_polls(Context& context) {
  const Tensor x = full({kLarge}, 1.0), y = full({kLarge}, 1.0);
  int most = 0;
  for (int i = 0; i < 10 && most < 500; ++i) {  // on a busy machine a window may have few
    context.group()->barrier();
    num_held = 0;
    const std::vector<Work> works = {context.group()->all_reduce_async(x), context.group()->all_reduce_async(y)};
    while (num_held == 0) std::this_thread::yield();
    std::this_thread::sleep_for(std::chrono::milliseconds(100));  // the other rank has sent the second signature
    const int before = num_held;
    std::this_thread::sleep_for(std::chrono::milliseconds(200));
    const int count = num_held - before;
    num_held = -1;
    for (const Work& work : works) work.wait();
    most = std::max(most, count);
    say(str("polls: ", count));
    if (count > 10000) throw StateError("the worker spins");
  }
  if (most < 500) throw StateError("the worker sleeps too long");
}

/// The last signature may arrive when the worker, which then starts the transfer, is about to sleep. It must not sleep
/// until the next event, for which shared memory waits up to 50 ms.
void meet_sleeping_workers(Context& context) {
  using std::chrono::microseconds;
  const Tensor x = full({9001}, 1.0);
  float num_slow = 1;
  for (int round = 0; round < 3 && num_slow > 0; ++round) {  // on a busy machine a round may have slow calls
    num_slow = 0;
    for (int i = 0; i < 3000; ++i) {
      const auto begin = std::chrono::steady_clock::now();
      std::this_thread::sleep_for(microseconds((i * 37 + context.rank() * 91) % 200));
      const Work work = context.group()->all_reduce_async(x);
      while (!work.is_completed()) std::this_thread::sleep_for(microseconds(20));
      num_slow += std::chrono::steady_clock::now() - begin > microseconds(40000) ? 1 : 0;
    }
    const Tensor all_slow = full({1}, num_slow);
    context.group()->all_reduce(all_slow);
    num_slow = all_slow.to_vector<float>()[0];
  }
  expect_equal(num_slow, 0.0f, "calls of over 40 ms");
}

/// MPI may read the arrays of counts until a call has completed.
void read_counts_late(Context& context) {
  reads_late = true;
  OpChecks checks(*context.group(), kFloat32, 9001, {false, false});
  checks.all_gather_of_unequal_sizes();
  checks.all_to_all_of_unequal_sizes();
  if (::testing::Test::HasFailure()) throw StateError("wrong values");
}

/// A process that a rank forks ends without MPI.
void fork_children(Context& context) {
  context.group()->barrier();
  const pid_t child = fork();
  if (child == 0) std::exit(0);
  int status = -1;
  waitpid(child, &status, 0);
  expect_equal(status, 0, "status of the child");
  const Tensor x = full({kLarge}, 1.0);
  context.group()->all_reduce(x);
  expect_equal(count_wrong(x, [&](int64_t) { return context.world_size(); }), int64_t{0}, "wrong elements");
}

/// Rank 0 sends more elements than MPI counts.
void send_too_much(Context& context) {
  const Tensor large = empty({1 << 30}, {kUInt8}), none = empty({0}, {kUInt8});
  const bool sends = context.rank() == 0;
  const std::vector<Tensor> inputs = {sends ? large : none, sends ? large : none};
  say(error_of([&] { context.group()->all_to_all({empty({1 << 30}, {kUInt8}), none}, inputs); }));
}

int64_t resident_mib() {
  std::ifstream status("/proc/self/statm");
  int64_t pages = 0;
  status >> pages >> pages;
  return pages * sysconf(_SC_PAGESIZE) >> 20;
}

void free_memory(Context& context) {
  const Tensor x = full({40'000'000}, 1.0, {kBFloat16});
  const int64_t before = resident_mib();
  context.group()->all_reduce(x);
  if (resident_mib() > before + 100) throw StateError("the 160 MB of float32 are still allocated");
}

void refuse_groups(Context&) {
  refuses_groups = true;
  say(error_of([] { new_group({0, 1})->barrier(); }));
}

/// Rank 1 aborts while only it and rank 6, which may not have exchanged data with it before, are inside MPI.
void abort_far(Context& context) {
  const bool is_inside = context.rank() == 1 || context.rank() == 6;
  const auto group = new_group(context.group()->ranks());
  const Tensor x = full({9001}, 1.0);
  group->barrier();
  if (is_inside) num_held = 0;
  const Work work = group->all_reduce_async(x);
  if (!is_inside) work.wait();
  while (is_inside && num_held == 0) std::this_thread::yield();
  context.group()->barrier();
  if (context.rank() == 1) group->abort("has seen enough");
  if (context.rank() == 6) say(error_of([&] { work.wait(); }));
  context.group()->barrier();
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
    {"operations", check_operations}, {"groups", use_groups},    {"die", die},
    {"abort", abort_in_mpi},          {"mismatch", mismatch},    {"threads", refuse_threads},
    {"late", use_mpi_late},           {"polls", count_polls},    {"counts", read_counts_late},
    {"fork", fork_children},          {"refuse", refuse_groups}, {"far", abort_far},
    {"huge", send_too_much},          {"memory", free_memory},   {"sleep", meet_sleeping_workers}};

}}}}  // namespace tandem::v0::distributed

// These functions replace MPI's.

extern "C" int MPI_Testany(int n, MPI_Request* requests, int* index, int* flag, MPI_Status* status) {
  using tandem::distributed::num_held;
  if (num_held >= 0) {  // MPI goes on, so that other ranks complete
    int has_message = 0;
    PMPI_Iprobe(MPI_ANY_SOURCE, MPI_ANY_TAG, MPI_COMM_WORLD, &has_message, MPI_STATUS_IGNORE);
    return ++num_held, *flag = 0, MPI_SUCCESS;
  }
  if (const auto start = std::exchange(tandem::distributed::late, nullptr)) start();
  return PMPI_Testany(n, requests, index, flag, status);
}

extern "C" int MPI_Iallgatherv(const void* in, int n, MPI_Datatype in_type, void* out, const int* counts,
                               const int* offsets, MPI_Datatype type, MPI_Comm comm, MPI_Request* request) {
  const auto start = [=] { return PMPI_Iallgatherv(in, n, in_type, out, counts, offsets, type, comm, request); };
  return tandem::distributed::reads_late ? (tandem::distributed::late = start, MPI_SUCCESS) : start();
}

extern "C" int MPI_Ialltoallv(const void* in, const int* in_counts, const int* in_offsets, MPI_Datatype in_type,
                              void* out, const int* counts, const int* offsets, MPI_Datatype type, MPI_Comm comm,
                              MPI_Request* request) {
  const auto start = [=] {
    return PMPI_Ialltoallv(in, in_counts, in_offsets, in_type, out, counts, offsets, type, comm, request);
  };
  return tandem::distributed::reads_late ? (tandem::distributed::late = start, MPI_SUCCESS) : start();
}

/// MPI guarantees only tags up to 32767, and concurrent calls must not have the same one.
extern "C" int MPI_Comm_create_group(MPI_Comm comm, MPI_Group members, int tag, MPI_Comm* created) {
  static std::mutex mutex;
  static std::set<int> tags;
  std::unique_lock lock(mutex);
  if (tandem::distributed::refuses_groups || tag > 32767 || !tags.insert(tag).second) return MPI_ERR_TAG;
  lock.unlock();
  const int result = PMPI_Comm_create_group(comm, members, tag, created);
  lock.lock();
  tags.erase(tag);
  return result;
}

/// Arguments: the case, "launch" or a backend for init_process_group, and "hosts" (each rank is on its own host) or
/// "swapped" (ranks 1 and 2 are not MPI's).
int main(int argc, char** argv) {
  using namespace tandem::distributed;
  const std::string name = argv[1], how = argc > 2 ? argv[2] : "launch", form = argc > 3 ? argv[3] : "";
  const char* const launched_rank = std::getenv("OMPI_COMM_WORLD_RANK");
  const std::string rank = launched_rank == nullptr ? "" : launched_rank;
  if (form == "hosts") setenv("TANDEM_HOST_ID", rank.c_str(), 1);
  for (const char* variable : {"OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_LOCAL_RANK"}) {
    if (form == "swapped" && rank != "0") setenv(variable, rank == "1" ? "2" : "1", 1);
  }
  if (how == "launch" || how[0] == '-') return launch(argc, argv, kCases.at(name));
  const std::string error = error_of([&] {
    init_process_group({.backend = how});
    kCases.at(name)(Context::current());
    destroy_process_group();
  });
  if (error != "no error") std::fprintf(stderr, "%s\n", error.c_str());
  return error != "no error";
}
