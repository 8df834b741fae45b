// A rank that is killed, stopped or throws in the middle of each collective, and of a message: the others hear of it,
// with its number, within a second.
#include <gtest/gtest.h>
#include <unistd.h>

#include <chrono>
#include <csignal>
#include <filesystem>
#include <fstream>
#include <regex>
#include <string>
#include <vector>

#include <tandem/base/error.h>
#include <tandem/distributed/backend.h>
#include <tandem/distributed/launch.h>
#include <tandem/distributed/process_group.h>
#include <tandem/distributed/shm/shm_backend.h>
#include <tandem/tensor/factories.h>
#include <tandem/tests/distributed/shm_ranks.h>

namespace tandem::inline v0::distributed {
namespace {

using Clock = std::chrono::steady_clock;

constexpr std::chrono::seconds kLong{100};
constexpr int64_t kCount = 200000;  // floats: many rounds of the rings below
constexpr int kWorld = 4;
constexpr int kVictim = 2;
constexpr int kRoot = 1;
constexpr shm::Tuning kTuning = {.slot_bytes = 256, .chunk_bytes = 4096, .slots = 2, .piece_bytes = 1024, .pieces = 2};

const std::string kOperations[] = {"all_reduce", "reduce",         "broadcast",  "gather", "all_gather",
                                   "scatter",    "reduce_scatter", "all_to_all", "send"};

std::string read_file(const std::string& path) {
  std::ifstream in(path);
  return std::string(std::istreambuf_iterator<char>(in), {});
}

std::string scratch(const std::string& name) {
  const char* folder = std::getenv("TEST_TMPDIR");
  return std::string(folder != nullptr ? folder : "/tmp") + "/" + name;
}

/// What a rank that is well does.
void call(ProcessGroup& group, const std::string& operation, const CollectiveOptions& options) {
  const bool is_root = group.rank() == kRoot;
  const Tensor one = full({kCount}, 1);
  const std::vector<Tensor> many(kWorld, one);
  std::vector<Tensor> outputs;
  for (int rank = 0; rank < kWorld; ++rank) outputs.push_back(zeros({kCount}));
  if (operation == "all_reduce") group.all_reduce(one, ReduceOp::kSum, options);
  if (operation == "reduce") group.reduce(one, kRoot, ReduceOp::kSum, options);
  if (operation == "broadcast") group.broadcast(one, kRoot, options);
  if (operation == "gather") group.gather(is_root ? outputs : std::vector<Tensor>(), one, kRoot, options);
  if (operation == "all_gather") group.all_gather(zeros({kWorld, kCount}), one, options);
  if (operation == "scatter") group.scatter(outputs[0], is_root ? many : std::vector<Tensor>(), kRoot, options);
  if (operation == "reduce_scatter") group.reduce_scatter(outputs[0], many, ReduceOp::kSum, options);
  if (operation == "all_to_all") group.all_to_all(outputs, many, options);
  if (operation == "send") group.send(one, kVictim, 5, options);
}

/// The victim takes part until some of its data has moved.
void call_partly(ShmRank& self, const std::string& operation) {
  static constexpr CollectiveKind kKinds[] = {
      CollectiveKind::kAllReduce, CollectiveKind::kReduce,  CollectiveKind::kBroadcast,     CollectiveKind::kGather,
      CollectiveKind::kAllGather, CollectiveKind::kScatter, CollectiveKind::kReduceScatter, CollectiveKind::kAllToAll};
  std::vector<std::vector<float>> in(kWorld, std::vector<float>(kCount));
  std::vector<std::vector<float>> out(kWorld, std::vector<float>(kCount));
  const auto bytes = [](std::vector<float>& v) { return reinterpret_cast<std::byte*>(v.data()); };
  if (operation == "send") {
    std::vector<Transfer> messages(kWorld);
    for (int rank = 0; rank < kWorld; ++rank) {
      Transfer& t = messages[static_cast<size_t>(rank)];
      t.peer = rank;
      t.tag = 5;
      t.num_elements = kCount;
      t.data = bytes(out[static_cast<size_t>(rank)]);
      if (rank != self.rank) self.start(t);
    }
    for (int moved = 0; moved < 12;) moved += self.backend->do_advance_transfers() == Advance::kMoved;
    return;
  }
  Collective c;
  for (const CollectiveKind kind : kKinds) {
    if (operation == to_string(kind)) c.kind = kind;
  }
  const bool has_root = c.kind == CollectiveKind::kReduce || c.kind == CollectiveKind::kBroadcast ||
                        c.kind == CollectiveKind::kGather || c.kind == CollectiveKind::kScatter;
  if (has_root) c.root = kRoot;
  c.num_elements = c.kind == CollectiveKind::kAllToAll    ? 0
                   : c.kind == CollectiveKind::kAllGather ? kWorld * kCount
                                                          : kCount;
  c.input = bytes(in[0]);
  c.output = c.kind == CollectiveKind::kBroadcast ? bytes(in[0]) : bytes(out[0]);
  for (int rank = 0; rank < kWorld; ++rank) {
    c.inputs.push_back({bytes(in[static_cast<size_t>(rank)]), kCount});
    c.outputs.push_back({bytes(out[static_cast<size_t>(rank)]), kCount});
  }
  self.run_partly(c, 3);
}

/// args: the operation, "killed", "throws" or "stopped", and a path to which the others write what they heard.
TANDEM_RANK_MAIN(fail_in_the_middle) {
  const std::string& operation = args.at(0);
  const std::string& how = args.at(1);
  Store& store = *context.store();
  const ProcessGroupOptions options = {
      .store = context.store(), .rank = context.rank(), .world_size = kWorld, .name = "torn"};
  if (context.rank() == kVictim) {
    ShmRank self(options, kTuning);
    store.set("pid", std::to_string(getpid()));
    call_partly(self, operation);
    std::ofstream(args.at(2) + "at") << Clock::now().time_since_epoch().count();
    if (how == "killed") raise(SIGKILL);
    if (how == "throws") throw ValueError("out of data");
    raise(SIGSTOP);
    return;
  }
  const auto group = ProcessGroupAccess::make(options, shm::make_shm_backend(options, kTuning));
  const std::chrono::milliseconds timeout(how == "stopped" ? 700 : 0);
  std::string text = "nothing";
  try {
    call(*group, operation, {.timeout = timeout});
  } catch (const CommError& e) {
    text = e.what();
  }
  const Clock::time_point heard = Clock::now();
  const Clock::time_point failed{Clock::duration(std::stoll(read_file(args.at(2) + "at")))};
  if (heard - failed > std::chrono::seconds(1) + timeout) text += " too late";
  std::ofstream(args.at(2) + std::to_string(context.rank())) << text;
  if (how == "stopped") {  // the victim goes on when all have heard
    if (store.add("heard", 1) == kWorld - 1) kill(std::stoi(store.get("pid", kLong)), SIGCONT);
  }
}

class ShmDeath : public testing::TestWithParam<std::string> {};

std::vector<std::string> heard_by_survivors(const std::string& operation, const std::string& how) {
  const std::string path = scratch(operation + how);
  try {
    spawn(kWorld, "fail_in_the_middle", {operation, how, path});
  } catch (const CommError&) {
  }
  std::vector<std::string> texts;
  for (int rank = 0; rank < kWorld; ++rank) {
    if (rank != kVictim) texts.push_back(read_file(path + std::to_string(rank)));
  }
  return texts;
}

std::string title_of(const std::string& operation) {
  return operation == "send" ? "send to rank 2 tag 5" : operation + " #1";
}

TEST_P(ShmDeath, AKilledRankIsNamedOnAllOthers) {
  const std::vector<std::string> texts = heard_by_survivors(GetParam(), "killed");
  for (size_t i = 0; i < texts.size(); ++i) {
    EXPECT_EQ(texts[i], str("[rank ", i < kVictim ? i : i + 1, " of 4] ", title_of(GetParam()),
                            " failed\n  rank 2: died (its connection closed)"));
  }
}

TEST_P(ShmDeath, ARankThatThrowsIsHeardOnAllOthers) {
  const std::vector<std::string> texts = heard_by_survivors(GetParam(), "throws");
  for (size_t i = 0; i < texts.size(); ++i) {
    EXPECT_EQ(texts[i], str("[rank ", i < kVictim ? i : i + 1, " of 4] ", title_of(GetParam()),
                            " failed\n  rank 2: out of data"));
  }
}

TEST_P(ShmDeath, AStoppedRankEndsInTheDeadline) {
  const std::vector<std::string> texts = heard_by_survivors(GetParam(), "stopped");
  // Whose deadline is first throws it; the others hear that.
  for (const std::string& text : texts) {
    EXPECT_NE(text.find("timed out after 0.7 s"), std::string::npos) << text;
    EXPECT_EQ(text.find("too late"), std::string::npos) << text;
  }
}

INSTANTIATE_TEST_SUITE_P(Operations, ShmDeath, testing::ValuesIn(kOperations),
                         [](const auto& param_info) { return param_info.param; });

TEST(ShmLeftovers, NothingIsLeftAfterAKill) {
  heard_by_survivors("all_to_all", "killed");
  for (const auto& entry : std::filesystem::directory_iterator("/dev/shm")) {
    EXPECT_EQ(entry.path().string().find("tandem"), std::string::npos) << entry.path();
  }
}

}  // namespace
}  // namespace tandem::inline v0::distributed
