// Process ranks of which one fails in the middle of a collective or message, on a given backend.
#pragma once

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <csignal>
#include <cstdlib>
#include <fstream>
#include <string>
#include <vector>

#include <tandem/base/error.h>
#include <tandem/distributed/backends/backend.h>
#include <tandem/distributed/group/process_group_access.h>
#include <tandem/distributed/launch.h>
#include <tandem/distributed/process_group.h>
#include <tandem/tensor/device.h>
#include <tandem/tensor/factories.h>
#include <tandem/tests/distributed/backend_ranks.h>
#include <tandem/tests/support/full.h>
#include <tandem/tests/support/sanitizers.h>
#include <tandem/tests/support/stopped_process.h>
#include <tandem/tests/support/temporary_folder.h>

namespace tandem { inline namespace v0 { namespace distributed {

inline constexpr int64_t kFailingCount = 200000;  // floats: many chunks of the backends' tunings in these tests
inline constexpr int kFailingWorld = 4;
inline constexpr int kVictim = 2;
inline constexpr int kFailingRoot = 1;
inline constexpr std::chrono::milliseconds kStoppedTimeout{800};
/// The number of steps to the middle of an operation. The victim also fails at the first step, and near the end, when
/// it may have completed short operations.
inline constexpr int kMiddle = 12;
inline constexpr int kFailingMoves[] = {1, kMiddle, 40};

/// The operations that a test covers: by default a collective without root, one with a root, one with different data
/// for each rank, and a message.
inline std::vector<std::string> failing_operations() {
  if (testing::kThreadSanitizer) return {"all_reduce", "gather", "send"};
  if (!testing::runs_all_combinations()) return {"all_reduce", "gather", "all_to_all", "send"};
  return {"all_reduce", "reduce",         "broadcast",  "gather", "all_gather",
          "scatter",    "reduce_scatter", "all_to_all", "send"};
}

/// Runs the operation with `count` elements per rank, then a barrier, because a rank that needs no data of
/// the victim may complete the operation.
inline void call(ProcessGroup& group, const std::string& operation, int64_t count, const CollectiveOptions& options) {
  const bool is_root = group.rank() == kFailingRoot;
  const Tensor one = full({count}, 1);
  const std::vector<Tensor> many(kFailingWorld, one);
  std::vector<Tensor> outputs;
  for (int rank = 0; rank < kFailingWorld; ++rank) outputs.push_back(zeros({count}));
  const auto if_root = [&](const std::vector<Tensor>& list) { return is_root ? list : std::vector<Tensor>(); };
  if (operation == "all_reduce") group.all_reduce(one, ReduceOp::kSum, options);
  if (operation == "reduce") group.reduce(one, kFailingRoot, ReduceOp::kSum, options);
  if (operation == "broadcast") group.broadcast(one, kFailingRoot, options);
  if (operation == "gather") group.gather(if_root(outputs), one, kFailingRoot, options);
  if (operation == "all_gather") group.all_gather(zeros({kFailingWorld, count}), one, options);
  if (operation == "scatter") group.scatter(outputs[0], if_root(many), kFailingRoot, options);
  if (operation == "reduce_scatter") group.reduce_scatter(outputs[0], many, ReduceOp::kSum, options);
  if (operation == "all_to_all") group.all_to_all(outputs, many, options);
  if (operation == "send" && group.rank() != kVictim) group.send(one, kVictim, 5, options);
  if (operation == "send" && group.rank() == kVictim) group.recv(outputs[0], 0, 5, options);
  group.barrier(options);
}

inline constexpr int kNumQueued = 3;

/// The errors of several queued all_reduces, separated by empty lines.
inline std::string errors_of_queued(ProcessGroup& group, int64_t count, const CollectiveOptions& options) {
  std::vector<Work> works;
  for (int i = 0; i < kNumQueued; ++i) {
    works.push_back(group.all_reduce_async(full({count}, 1), ReduceOp::kSum, options));
  }
  std::string text;
  for (const Work& work : works) {
    try {
      work.wait();
      text += "nothing";
    } catch (const CommError& e) {
      text += e.what();
    }
    if (&work != &works.back()) text += "\n\n";
  }
  return text;
}

inline std::string error_of(ProcessGroup& group, const std::string& operation, int64_t count,
                            const CollectiveOptions& options) {
  if (operation == "queued") return errors_of_queued(group, count, options);
  try {
    call(group, operation, count, options);
  } catch (const CommError& e) {
    return e.what();
  }
  return "nothing";
}

/// Objects used by the victim's backend; they outlive it.
struct VictimMemory {
  std::vector<std::vector<float>> in{kFailingWorld, std::vector<float>(kFailingCount)};
  std::vector<std::vector<float>> out{kFailingWorld, std::vector<float>(kFailingCount)};
  std::vector<P2pRequest> messages{kFailingWorld};
  std::vector<Collective> collectives{kNumQueued};
};

/// The victim takes part for `moves` steps.
inline void call_partly(Backend& backend, const std::string& operation, int moves, VictimMemory& memory) {
  static constexpr CollectiveKind kKinds[] = {
      CollectiveKind::kAllReduce, CollectiveKind::kReduce,  CollectiveKind::kBroadcast,     CollectiveKind::kGather,
      CollectiveKind::kAllGather, CollectiveKind::kScatter, CollectiveKind::kReduceScatter, CollectiveKind::kAllToAll};
  auto& [in, out, messages, collectives] = memory;
  const auto bytes = [](std::vector<float>& v) { return reinterpret_cast<std::byte*>(v.data()); };
  const auto move = [&](const auto& advance) {
    Advance last = Advance::kIdle;
    for (int moved = 0; moved < moves && last != Advance::kDone;) {
      backend.do_sleep(
          [&] {
            last = advance();
            moved += last == Advance::kMoved;
            return last != Advance::kIdle;
          },
          Backend::Clock::now() + std::chrono::milliseconds(100));
    }
    TANDEM_CHECK(StateError, last != Advance::kDone || moves > kMiddle, "the operation is over");
  };
  if (operation == "send") {
    std::vector<const P2pRequest*> started;
    for (int rank = 0; rank < kFailingWorld; ++rank) {
      if (rank == kVictim) continue;
      P2pRequest& t = messages[static_cast<size_t>(rank)];
      t.seq = rank + 1;
      t.peer = rank;
      t.tag = 5;
      t.num_elements = kFailingCount;
      t.shape_hash = hash_shape({kFailingCount});
      t.data = bytes(out[static_cast<size_t>(rank)]);
      backend.do_start_p2p(t);
      started.push_back(&t);
    }
    move([&] {
      const Advance last = backend.do_advance_p2p();
      return std::all_of(started.begin(), started.end(), [](const P2pRequest* t) { return t->done; }) ? Advance::kDone
                                                                                                      : last;
    });
    return;
  }
  for (int i = 0; i < kNumQueued; ++i) {
    Collective& c = collectives[static_cast<size_t>(i)];
    c.seq = i + 1;
    for (const CollectiveKind kind : kKinds) {
      if (operation == to_string(kind)) c.kind = kind;
    }
    if (operation == "queued") c.kind = CollectiveKind::kAllReduce;
    const bool has_root = c.kind == CollectiveKind::kReduce || c.kind == CollectiveKind::kBroadcast ||
                          c.kind == CollectiveKind::kGather || c.kind == CollectiveKind::kScatter;
    if (has_root) c.root = kFailingRoot;
    c.num_elements = c.kind == CollectiveKind::kAllToAll    ? 0
                     : c.kind == CollectiveKind::kAllGather ? kFailingWorld * kFailingCount
                                                            : kFailingCount;
    if (c.kind != CollectiveKind::kAllToAll) c.shape_hash = hash_shape({kFailingCount});
    c.input = bytes(in[static_cast<size_t>(i)]);
    c.output = bytes((c.kind == CollectiveKind::kBroadcast ? in : out)[static_cast<size_t>(i)]);
    for (int rank = 0; rank < kFailingWorld; ++rank) {
      c.inputs.push_back({bytes(in[static_cast<size_t>(rank)]), kFailingCount, {kFailingCount}});
      c.outputs.push_back({bytes(out[static_cast<size_t>(rank)]), kFailingCount, {kFailingCount}});
    }
  }
  backend.do_start(collectives[0]);
  for (int i = 1; operation == "queued" && i < kNumQueued; ++i) {
    const bool is_notified = backend.do_prefetch_signature(collectives[static_cast<size_t>(i)], true);
    TANDEM_CHECK(StateError, is_notified || backend.name() == std::string("shm"),
                 "the peers are not told of what is queued");
  }
  move([&] { return backend.do_advance(); });
}

/// The function of a rank spawned by errors_of_survivors().
inline void fail_in_the_middle(Context& context, const std::vector<std::string>& args, const MakeBackend& make) {
  using Clock = std::chrono::steady_clock;
  constexpr std::chrono::seconds kLongTimeout{100};
  const std::string& operation = args.at(0);
  const std::string& how = args.at(1);
  const std::string& path = args.at(2);
  const int moves = std::stoi(args.at(3));
  Store& store = *context.store();
  const ProcessGroupOptions options = {
      .store = context.store(), .rank = context.rank(), .world_size = kFailingWorld, .name = "torn"};
  VictimMemory memory;
  std::unique_ptr<Backend> backend = make(options);
  store.add("joined", 1);  // all ranks must have joined before the failure
  while (context.rank() == kVictim && store.add("joined", 0) < kFailingWorld) usleep(1000);
  if (context.rank() == kVictim && how != "disagrees" && how != "mixes_devices") {
    store.set("pid", std::to_string(getpid()));
    call_partly(*backend, operation, moves, memory);
    std::ofstream(path + "at") << Clock::now().time_since_epoch().count();
    if (how == "killed") raise(SIGKILL);
    if (how == "throws") throw ValueError("out of data");
    raise(SIGSTOP);
    return;
  }
  const auto group = ProcessGroupAccess::make(options, std::move(backend));
  const bool differs = context.rank() == kVictim;
  if (differs) std::ofstream(path + "at") << Clock::now().time_since_epoch().count();
  if (differs && how == "mixes_devices") {
    set_cpu_device_count(2);
    group->all_reduce(zeros({3}), zeros({3}, {kFloat32, Device(DeviceType::kCPU, 1)}));
  }
  const Clock::time_point begin = Clock::now();
  const std::string text = error_of(*group, operation, differs ? kFailingCount + 7 : kFailingCount,
                                    {.timeout = how == "stopped" ? kStoppedTimeout : std::chrono::milliseconds(0)});
  const Clock::time_point notified = Clock::now();
  std::ofstream(path + std::to_string(context.rank())) << text;
  if (how == "stopped") {  // the victim continues when all ranks have thrown
    if (store.add("heard", 1) == kFailingWorld - 1)
      testing::wake_when_stopped(std::stoi(store.get("pid", kLongTimeout)));
  } else if (how == "disagrees") {
    store.add("heard", 1);
    while (store.add("heard", 0) < kFailingWorld) usleep(1000);
  }
  // A stopped rank is detected only by the timeout.
  const Clock::time_point failed =
      how == "stopped" ? begin : Clock::time_point(Clock::duration(std::stoll(testing::read_file(path + "at"))));
  std::ofstream(path + "took" + std::to_string(context.rank()))
      << std::chrono::duration<double>(notified - failed).count();
}

/// Time from the failure to the last rank's error.
inline double seconds_allowed(const std::string& how) {
  return how == "stopped" ? 1 + std::chrono::duration<double>(kStoppedTimeout).count() : 1;
}

struct Notified {
  std::vector<std::string> texts;  ///< by rank; empty for the victim unless it called another operation
  double seconds = 0;              ///< from the failure, or the call for a stopped rank, to the last rank's error
};

inline Notified run_once(const std::string& function, const std::string& operation, const std::string& how, int moves) {
  const testing::TemporaryFolder folder;
  const std::string path = folder / "";
  try {
    spawn(kFailingWorld, function, {operation, how, path, std::to_string(moves)});
  } catch (const CommError&) {
  }
  Notified notified;
  for (int rank = 0; rank < kFailingWorld; ++rank) {
    notified.texts.push_back(testing::read_file(path + std::to_string(rank)));
    if (rank == kVictim) continue;
    const std::string took = testing::read_file(path + "took" + std::to_string(rank));
    notified.seconds = std::max(notified.seconds, took.empty() ? 1e9 : std::stod(took));
  }
  return notified;
}

/// Runs the rank function `function`, which calls fail_in_the_middle(). `how`: "killed", "throws" or "stopped" after
/// so many steps, "disagrees" or "mixes_devices". At most two retries if it took a second too long, because the
/// machine may be loaded.
inline Notified errors_of_survivors(const std::string& function, const std::string& operation, const std::string& how,
                                    int moves = kMiddle) {
  Notified notified;
  for (int attempt = 0; attempt < 3; ++attempt) {
    notified = run_once(function, operation, how, moves);
    if (notified.seconds < seconds_allowed(how)) break;
  }
  return notified;
}

/// Name of the operation in error texts.
inline std::string title_of(const std::string& operation) {
  return operation == "send" ? "send to rank 2 tag 5" : operation + " #1";
}

/// Regular expression of the error on every rank if the victim calls another operation: detected by this rank, or by
/// another rank that notified it.
inline std::string disagreement(const std::string& operation, int rank) {
  const std::string title = operation == "send" && rank == kVictim ? "recv from rank 0 tag 5" : title_of(operation);
  const std::string own = "[]a-z0-9_ :[]* float32 \\[200000\\][a-z0-9 ]*, [^ \n]*(failing_ranks\\.h|_test\\.cc):[0-9]+";
  const std::string other =
      "[]a-z0-9_ :[]* float32 \\[200007\\][a-z0-9 ]*, [^ \n]*(failing_ranks\\.h|_test\\.cc):[0-9]+";
  return str("\\[rank ", rank, " of 4\\] ", title, "( failed\n  rank [0-3])?: calls do not match across ranks\n",
             "(  rank [01]  ", own, "\n  rank 2  ", other, "|  rank 2  ", other, "\n  rank 3  ", own, ")");
}

/// Regular expression of the operation that fails on a survivor: a rank that needs no data of the victim may complete
/// the operation, also if the victim has not received what is sent to it.
inline std::string where_notified(const std::string& operation, int rank, int moves = kMiddle) {
  const bool is_root = rank == kFailingRoot;
  const bool may_complete = operation == "scatter" || (operation == "broadcast" && is_root) ||
                            ((operation == "gather" || operation == "reduce") && !is_root);
  return may_complete || moves > kMiddle ? str("(", title_of(operation), "|barrier #[12])") : title_of(operation);
}

/// Runs the rank function and expects each survivor to throw an error with the victim and `reason` (a regular
/// expression), in time.
inline void expect_notified_after(int moves, const std::string& function, const std::string& operation,
                                  const std::string& how, const std::string& reason) {
  const Notified notified = errors_of_survivors(function, operation, how, moves);
  for (int rank = 0; rank < kFailingWorld; ++rank) {
    if (rank == kVictim) continue;
    EXPECT_THAT(notified.texts[static_cast<size_t>(rank)],
                ::testing::MatchesRegex(str("\\[rank ", rank, " of 4\\] ", where_notified(operation, rank, moves),
                                            " failed\n  rank 2: ", reason)))
        << "after " << moves << " moves";
  }
  EXPECT_LT(notified.seconds, seconds_allowed(how)) << "after " << moves << " moves";
}

/// The same for all points of failure in the operation.
inline void expect_notified(const std::string& function, const std::string& operation, const std::string& how,
                            const std::string& reason) {
  for (const int moves : kFailingMoves) expect_notified_after(moves, function, operation, how, reason);
}

/// The same for a failure in the first of several queued all_reduces, all of which fail.
inline void expect_queued_notified(const std::string& function, const std::string& how, const std::string& reason) {
  const Notified notified = errors_of_survivors(function, "queued", how);
  for (int rank = 0; rank < kFailingWorld; ++rank) {
    if (rank == kVictim) continue;
    const std::string label = str("\\[rank ", rank, " of 4\\] all_reduce #");
    const std::string later = str("(: the group has already failed| failed)\n  rank 2: ", reason);
    EXPECT_THAT(notified.texts[static_cast<size_t>(rank)],
                ::testing::MatchesRegex(
                    str(label, "1 failed\n  rank 2: ", reason, "\n\n", label, "2", later, "\n\n", label, "3", later)));
  }
  EXPECT_LT(notified.seconds, seconds_allowed(how));
}

/// The same for a victim that calls another operation.
inline void expect_disagreement(const std::string& function, const std::string& operation) {
  const Notified notified = errors_of_survivors(function, operation, "disagrees");
  for (int rank = 0; rank < kFailingWorld; ++rank) {
    EXPECT_THAT(notified.texts[static_cast<size_t>(rank)], ::testing::MatchesRegex(disagreement(operation, rank)));
  }
  EXPECT_LT(notified.seconds, seconds_allowed("disagrees"));
}

}}}  // namespace tandem::v0::distributed
