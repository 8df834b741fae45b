// Random programs of collectives, messages and groups on thread ranks that arrive in any order, compared with a serial
// oracle.
#include <tandem/distributed/process_group.h>

#include <gtest/gtest.h>

#include <algorithm>
#include <functional>
#include <memory>
#include <random>
#include <string>
#include <thread>
#include <vector>

#include <tandem/tensor/factories.h>
#include <tandem/tensor/primitives.h>
#include <tandem/tests/distributed/closed_form.h>
#include <tandem/tests/distributed/thread_ranks.h>
#include <tandem/tests/support/sanitizers.h>

namespace tandem { inline namespace v0 { namespace distributed { namespace {

using Values = std::vector<double>;

enum class Kind : uint8_t {
  kAllReduce,
  kReduce,
  kBroadcast,
  kGather,
  kAllGather,
  kScatter,
  kReduceScatter,
  kAllToAll,
  kBarrier,
  kMessage,
  kCount,
};

/// One statement of a program; ranks are ranks of its group.
struct Statement {
  Kind kind = Kind::kBarrier;
  size_t group = 0;
  DType dtype = kFloat32;
  ReduceOp op = ReduceOp::kSum;
  int64_t n = 0;
  int root = 0;  // or the sender
  int to = 0;    // the receiver
  int tag = 0;
  bool async = false;
  int salt = 0;
};

struct Program {
  int world = 1;
  std::vector<std::vector<int>> groups;  // the first has all ranks
  std::vector<Statement> statements;
};

Program generate(uint32_t seed) {
  std::mt19937 random(seed);
  const auto below = [&](int n) { return static_cast<int>(random() % static_cast<uint32_t>(n)); };
  Program program;
  constexpr int kWorlds[] = {1, 2, 3, 4, 5, 7};
  program.world = kWorlds[below(static_cast<int>(std::size(kWorlds)))];
  program.groups.emplace_back();
  for (int rank = 0; rank < program.world; ++rank) program.groups[0].push_back(rank);
  const int num_groups = 1 + below(3);
  while (static_cast<int>(program.groups.size()) < num_groups) {
    std::vector<int> members;
    for (int rank = 0; rank < program.world; ++rank) {
      if (below(3) > 0) members.push_back(rank);
    }
    if (!members.empty()) program.groups.push_back(members);
  }
  const int count = 5 + below(25);
  for (int i = 0; i < count; ++i) {
    Statement s;
    s.group = static_cast<size_t>(below(static_cast<int>(program.groups.size())));
    const int size = static_cast<int>(program.groups[s.group].size());
    s.kind = static_cast<Kind>(below(static_cast<int>(Kind::kCount)));
    s.dtype = kDTypes[below(static_cast<int>(std::size(kDTypes)))];
    do {
      s.op = kReduceOps[below(static_cast<int>(std::size(kReduceOps)))];
    } while (!is_allowed(s.op, s.dtype));
    s.n = below(4) == 0 ? below(300) : below(12);
    s.root = below(size);
    s.to = below(size);
    s.tag = below(2);
    s.async = below(3) > 0;
    s.salt = below(50);
    if (s.kind == Kind::kMessage && s.root == s.to) s.kind = Kind::kBarrier;
    program.statements.push_back(s);
  }
  return program;
}

/// Element i of the data from group rank `from` to group rank `to`.
double sent(const Statement& s, int from, int to, int64_t i) { return value(from + 2 * to + s.salt, i, s.op, s.dtype); }

/// Number of elements from one rank to another in all_to_all.
int64_t count_between(const Statement& s, int from, int to) { return (s.n + from + 3 * to + s.salt) % (s.n + 2); }

/// One rank that runs a program.
class Rank {
 public:
  Rank(const Program& program, const std::vector<ThreadRanks>& worlds, ProcessGroup& all, uint32_t seed)
      : program_(program), random_(seed), rank_(all.rank()) {
    for (size_t g = 0; g < program.groups.size(); ++g) {
      const auto& members = program.groups[g];
      const auto own = std::find(members.begin(), members.end(), rank_);
      if (own == members.end()) {
        groups_.push_back(nullptr);
      } else if (g == 0) {
        groups_.push_back(&all);
      } else {
        owned_.push_back(worlds[g].make(static_cast<int>(own - members.begin())));
        groups_.push_back(owned_.back().get());
      }
    }
  }

  void run() {
    for (const Statement& s : program_.statements) {
      for (uint32_t k = random_() % 4; k > 0; --k) std::this_thread::yield();
      if (groups_[s.group] != nullptr) run(s, *groups_[s.group]);
      // Blocking calls wait in program order; other handles are waited for at random times in any order.
      if (random_() % 8 == 0) wait_for_all();
    }
    wait_for_all();
  }

  int num_wrong() const { return num_wrong_; }

 private:
  struct Pending {
    Work work;
    std::function<void()> check;
  };

  void run(const Statement& s, ProcessGroup& g) {
    const int rank = g.rank();
    const int world = g.size();
    const auto own = [&](int to) { return make_values(s.n, [&](int64_t i) { return sent(s, rank, to, i); }); };
    const auto reduction = [&](int to) {
      return make_values(s.n, [&](int64_t i) {
        return reduced(world, s.op, s.dtype, [&](int from) { return sent(s, from, to, i); });
      });
    };
    const auto rows_to_each = [&] {
      Values all;
      for (int to = 0; to < world; ++to) append(all, own(to));
      return all;
    };
    const auto rows_from_each = [&] {
      Values all;
      for (int from = 0; from < world; ++from) {
        append(all, make_values(s.n, [&](int64_t i) { return sent(s, from, 0, i); }));
      }
      return all;
    };
    const Tensor x = make(own(0), s.dtype, {s.n});
    const Tensor out = untouched(s, {s.n});
    switch (s.kind) {
      case Kind::kAllReduce: finish(s, g.all_reduce_async(out, x, s.op), out, reduction(0)); break;
      case Kind::kReduce: finish(s, g.reduce_async(x, s.root, s.op), x, rank == s.root ? reduction(0) : own(0)); break;
      case Kind::kBroadcast:
        finish(s, g.broadcast_async(x, s.root), x, make_values(s.n, [&](int64_t i) { return sent(s, s.root, 0, i); }));
        break;
      case Kind::kGather: {
        const Tensor rows = rank == s.root ? untouched(s, {world, s.n}) : Tensor();
        finish(s, g.gather_async(rows, x, s.root), rows, rank == s.root ? rows_from_each() : Values());
        break;
      }
      case Kind::kAllGather: {
        const Tensor rows = untouched(s, {world, s.n});
        finish(s, g.all_gather_async(rows, x), rows, rows_from_each());
        break;
      }
      case Kind::kScatter: {
        const Tensor rows = rank == s.root ? make(rows_to_each(), s.dtype, {world, s.n}) : Tensor();
        finish(s, g.scatter_async(out, rows, s.root), out,
               make_values(s.n, [&](int64_t i) { return sent(s, s.root, rank, i); }));
        break;
      }
      case Kind::kReduceScatter:
        finish(s, g.reduce_scatter_async(out, make(rows_to_each(), s.dtype, {world, s.n}), s.op), out, reduction(rank));
        break;
      case Kind::kAllToAll: {
        Values mine;
        Values theirs;
        std::vector<int64_t> in_splits;
        std::vector<int64_t> out_splits;
        for (int peer = 0; peer < world; ++peer) {
          in_splits.push_back(count_between(s, rank, peer));
          out_splits.push_back(count_between(s, peer, rank));
          append(mine, make_values(in_splits.back(), [&](int64_t i) { return sent(s, rank, peer, i); }));
          append(theirs, make_values(out_splits.back(), [&](int64_t i) { return sent(s, peer, rank, i); }));
        }
        const Tensor result = untouched(s, {static_cast<int64_t>(theirs.size())});
        const Tensor input = make(mine, s.dtype, {static_cast<int64_t>(mine.size())});
        finish(s, g.all_to_all_async(result, input, out_splits, in_splits), result, theirs);
        break;
      }
      case Kind::kMessage:
        if (rank == s.root) finish(s, g.isend(x, s.to, s.tag), x, own(0));
        if (rank == s.to) {
          finish(s, g.irecv(out, s.root, s.tag), out,
                 make_values(s.n, [&](int64_t i) { return sent(s, s.root, 0, i); }));
        }
        break;
      default: finish(s, g.barrier_async(), {}, {}); break;
    }
  }

  Tensor untouched(const Statement& s, const Shape& shape) const {
    if (s.salt % 3 > 0) return full(shape, 1, {s.dtype});
    Shape wider = shape;
    wider.push_back(2);
    Shape strides = row_major_strides(wider);
    strides.pop_back();
    return make_view(full(wider, 1, {s.dtype}).storage(), s.dtype, shape, strides, num_elements(shape) > 0 ? 1 : 0);
  }

  static Values make_values(int64_t n, const std::function<double(int64_t)>& f) {
    Values values;
    for (int64_t i = 0; i < n; ++i) values.push_back(f(i));
    return values;
  }
  static void append(Values& to, const Values& from) { to.insert(to.end(), from.begin(), from.end()); }

  void finish(const Statement& s, const Work& work, const Tensor& result, const Values& wanted) {
    pending_.push_back({work, [this, result, wanted] {
                          if (!result.defined()) return;
                          num_wrong_ += count_wrong(result, [&](int64_t i) { return wanted[static_cast<size_t>(i)]; });
                        }});
    if (!s.async) wait(pending_.size() - 1);
  }

  void wait(size_t index) {
    pending_[index].work.wait();
    pending_[index].check();
    pending_.erase(pending_.begin() + static_cast<std::ptrdiff_t>(index));
  }

  void wait_for_all() {
    while (!pending_.empty()) wait(random_() % pending_.size());
  }

  const Program& program_;
  std::mt19937 random_;
  const int rank_;
  std::vector<std::shared_ptr<ProcessGroup>> owned_;
  std::vector<ProcessGroup*> groups_;  // null if this rank is not a member
  std::vector<Pending> pending_;
  int num_wrong_ = 0;
};

/// Transports between the ranks.
struct Transport {
  const char* name;
  std::string backend;
  std::string hosts;
};

void run_program(uint32_t seed, const Transport& transport) {
  const Program program = generate(seed);
  const auto store = make_memory_store();
  std::vector<ThreadRanks> worlds;
  for (size_t g = 0; g < program.groups.size(); ++g) {
    worlds.push_back({.world_size = static_cast<int>(program.groups[g].size()),
                      .store = store,
                      .name = str("group ", g),
                      .tuning = {.slot_bytes = 64,
                                 .chunk_bytes = 128,
                                 .one_shot_bytes = 512,
                                 .slots = 3,
                                 .small_bytes = 64,
                                 .piece_bytes = 64,
                                 .pieces = 2},
                      .ranks = program.groups[g],
                      .backend = transport.backend,
                      .hosts = transport.hosts});
  }
  worlds[0].run([&](ProcessGroup& all) {
    Rank rank(program, worlds, all, seed * 16 + static_cast<uint32_t>(all.rank()));
    rank.run();
    EXPECT_EQ(rank.num_wrong(), 0) << transport.name << " seed " << seed << " rank " << all.rank();
  });
}

// A group over the network takes longer to form than a program to run.
constexpr uint32_t kBetweenHosts = testing::kThreadSanitizer ? 2 : 6;

class RandomPrograms : public ::testing::TestWithParam<uint32_t> {};
INSTANTIATE_TEST_SUITE_P(Each, RandomPrograms, ::testing::Range(0u, 8u));

TEST_P(RandomPrograms, MatchReferenceOverSharedMemory) {
  const uint32_t count = testing::kThreadSanitizer ? 12 : 50;
  for (uint32_t k = 0; k < count; ++k) run_program(GetParam() * 50 + k, {"shm", "", ""});
}

TEST_P(RandomPrograms, MatchReferenceOverNetwork) {
  for (uint32_t k = 0; k < kBetweenHosts; ++k) run_program(GetParam() * 50 + k, {"gloo", "gloo", ""});
}

TEST_P(RandomPrograms, MatchReferenceOnTwoHosts) {
  for (uint32_t k = 0; k < kBetweenHosts; ++k) {
    run_program(GetParam() * 50 + k, {"hosts", "auto", k % 2 == 0 ? "abababa" : "aabbbab"});
  }
}

}}}}  // namespace tandem::v0::distributed
