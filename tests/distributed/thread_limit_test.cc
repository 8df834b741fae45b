// Each thread of the library in turn fails to start: its user throws a typed error or continues without the thread.
#include <gtest/gtest.h>

#include <unistd.h>

#include <atomic>
#include <chrono>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include <tandem/base/chunked_work.h>
#include <tandem/base/error.h>
#include <tandem/base/parallel_for.h>
#include <tandem/base/thread.h>
#include <tandem/data/data_loader.h>
#include <tandem/distributed/launch.h>
#include <tandem/distributed/launch/node_link.h>
#include <tandem/distributed/process_group.h>
#include <tandem/distributed/rendezvous/store_server.h>
#include <tandem/distributed/rendezvous/tcp_store.h>
#include <tandem/distributed/store.h>
#include <tandem/tensor/factories.h>
#include <tandem/tests/support/failing_threads.h>
#include <tandem/tests/support/subprocess.h>
#include <tandem/tests/support/temporary_folder.h>

namespace {

namespace td = tandem;
using namespace td::distributed;
using td::testing::TemporaryFolder;
using td::testing_support::FailingThread;
using td::testing_support::num_running_threads;
using td::testing_support::Subprocess;

const std::string kLimit =
    "cannot start a thread (Resource temporarily unavailable): the limit on processes and threads (ulimit -u, cgroup "
    "pids.max) is reached; ";

/// Waits for joined threads to leave the process; false if more than `most` remain.
bool at_most_threads_run(int most) {
  const auto deadline = std::chrono::steady_clock::now() + Subprocess::kBound;
  while (num_running_threads() > most) {
    if (std::chrono::steady_clock::now() > deadline) return false;
    std::this_thread::yield();
  }
  return true;
}

/// Calls f with the first thread failing, then the second, and so on until all start. Returns the number of threads
/// that f starts.
int fail_each_thread(const std::function<void()>& f) {
  f();  // starts threads that stay in the process
  const int threads = num_running_threads();
  for (int number = 1;; ++number) {
    const FailingThread failing(number);
    std::string text;
    try {
      f();
    } catch (const td::Error& e) {
      text = e.what();
    }
    EXPECT_TRUE(at_most_threads_run(threads)) << number;
    if (!failing.has_failed()) {
      EXPECT_EQ(text, "");
      return number - 1;
    }
    EXPECT_NE(text.find(kLimit), std::string::npos) << number << ": " << text;
  }
}

/// A rank with a blocking collective, an asynchronous one, and a message.
void use(ProcessGroup& group) {
  const td::Tensor x = td::ones({5});
  group.all_reduce(x);
  group.all_reduce_async(x).wait();
  if (group.rank() == 0) group.send(x, 1);
  if (group.rank() == 1) group.recv(x, 0);
  group.barrier();
}

struct Numbers : td::data::Dataset {
  int64_t size() const override { return 8; }
  td::data::Example get(int64_t index) const override {
    return {td::full({1}, static_cast<double>(index)), td::full({}, index, {td::kInt64})};
  }
};

TEST(ThreadLimit, TcpStoreThrowsError) {
  const int num_threads = fail_each_thread([] {
    const std::string token(wire::kTokenBytes, 't');
    StoreServer server({.token = token});
    server.start();
    TcpStore store({.port = server.port(), .token = token});
    store.set("key", "value");
    store.leave();
  });
  EXPECT_EQ(num_threads, 2);
}

TEST(ThreadLimit, FileStoreThrowsError) {
  const TemporaryFolder folder;
  int call = 0;
  const int num_threads = fail_each_thread([&] {
    const auto store = make_file_store(folder / std::to_string(++call));
    const auto handle = store->on_failure([](int, const std::string&) {});
  });
  EXPECT_EQ(num_threads, 1);
}

TEST(ThreadLimit, NodeLinkThrowsError) {
  const int num_threads = fail_each_thread([] {
    NodeOptions options{.num_nodes = 2, .host = "127.0.0.1", .token = std::string(wire::kTokenBytes, 't')};
    options.port = local_port(listen_on("127.0.0.1", 0).get());
    NodeLink zero(options, [] { return false; });
    options.node = 1;
    NodeLink one(options, [] { return false; });
    one.send("letter");
    one.leave();
    zero.leave();
  });
  EXPECT_EQ(num_threads, 7);  // one of the server, three per link
}

TEST(ThreadLimit, RunThreadsThrowsError) {
  EXPECT_GT(fail_each_thread([] { run_threads(3, [](Context& context) { use(*context.group()); }); }), 3);
}

TEST(ThreadLimit, NetworkGroupsThrowError) {
  const int num_threads = fail_each_thread([] {
    run_threads(3, [](Context& context) { use(*context.new_group({0, 1, 2}, {.backend = "gloo"})); });
  });
  EXPECT_GE(num_threads, 3 * 3 + 1);  // of each rank: its own, and one of each group; the receiving thread
}

TEST(ThreadLimit, DataLoaderThrowsError) {
  const Numbers numbers;
  const int num_threads = fail_each_thread([&] {
    td::data::SequentialSampler sampler(numbers.size());
    td::data::DataLoader loader(numbers, sampler, {.batch_size = 2, .num_workers = 3});
    int64_t num_batches = 0;
    for ([[maybe_unused]] const auto& batch : loader) ++num_batches;
    EXPECT_EQ(num_batches, 4);
  });
  EXPECT_EQ(num_threads, 3);
}

TEST(ThreadLimit, LoopsAndChunksUseFewerThreadsAndWarn) {
  // In another process, because worker threads started earlier stay alive.
  for (const auto& [what, number] : {std::pair{"parallel_for", "1"}, {"parallel_for", "3"}, {"chunks", "1"}}) {
    Subprocess program({"tests/distributed/launch_program", what},
                       {{"FAILING_THREAD", number}, {"FAILING_THREAD_OF", ""}});
    const auto result = program.wait();
    EXPECT_EQ(result.out, "sum 4950\n");
    const size_t found = result.err.find(std::string(what) + ": " + kLimit);
    EXPECT_NE(found, std::string::npos) << result.err;
    EXPECT_EQ(result.err.find(kLimit, found + 80), std::string::npos) << "said once: " << result.err;
    EXPECT_EQ(result.status, 0);
  }
}

TEST(ThreadLimit, LauncherAndLaunchedRanksReportError) {
  for (const std::string process : {"", "0", "1"}) {
    std::vector<int> failing;
    for (int number = 1; number <= 4; ++number) {
      Subprocess job({"tests/distributed/launch_program", "--nproc", "2", "reduce"},
                     {{"FAILING_THREAD", std::to_string(number)}, {"FAILING_THREAD_OF", process}});
      const auto result = job.wait();
      if (result.status == 0) continue;
      failing.push_back(number);
      EXPECT_EQ(result.status, 1);
      EXPECT_NE(result.err.find(kLimit), std::string::npos) << result.err;
      EXPECT_EQ(result.err.find("terminate"), std::string::npos) << result.err;
      const std::string who = process.empty() ? "" : "rank " + process + " of 2 failed";
      EXPECT_NE(result.err.find(who), std::string::npos) << result.err;
      ASSERT_LT(number, 20);
    }
    // The second thread of a rank waits for SIGQUIT; without it the signal keeps its action.
    EXPECT_EQ(failing, process.empty() ? std::vector<int>{1} : (std::vector<int>{1, 3})) << process;
  }
}

}  // namespace
