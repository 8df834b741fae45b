// Collectives over several hosts, composed of three backends.
#include <gtest/gtest.h>

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <tuple>
#include <vector>

#include <tandem/base/error.h>
#include <tandem/tensor/factories.h>
#include <tandem/tests/distributed/backend_checks.h>
#include <tandem/tests/distributed/backend_ranks.h>
#include <tandem/tests/distributed/closed_form.h>
#include <tandem/tests/distributed/host_ranks.h>
#include <tandem/tests/distributed/idle_backend.h>
#include <tandem/tests/distributed/ordered_sums.h>

namespace tandem { inline namespace v0 { namespace distributed { namespace {

const char* const kWorlds[] = {"ab",   "aabb", "abab", "aaabbb", "aabbcc", "aaaa",
                               "aaab", "abaa", "aab",  "aaabcc", "abbccc"};

constexpr HostTuning kTiny = {.leader_bytes = 64, .chunk_bytes = 256, .ahead = 3};

void expect_every_kind(const HostRanks& ranks, const std::vector<DType>& dtypes, const std::vector<int64_t>& counts) {
  const int n = ranks.world_size();
  run_backend_ranks(
      n, [&](const ProcessGroupOptions& options) { return ranks.make_backend(options.rank); },
      [&](Backend& backend, int rank) {
        int64_t seq = 0;
        const auto run = [&](Collective& c) {
          c.seq = ++seq;
          run_collective(backend, c);
        };
        for (const DType dtype : dtypes) {
          for (const ReduceOp op : reduce_ops_of(dtype)) {
            const BackendChecks checks(rank, n, dtype, op, run);
            for (const int64_t count : counts) {
              checks.all_reduce(count, count % 2 == 0);
              checks.reduce(static_cast<int>(count) % n, count, count % 2 == 0);
              checks.reduce_scatter(count, count % 2 == 0);
            }
          }
          const BackendChecks checks(rank, n, dtype, ReduceOp::kSum, run);
          for (const int64_t count : counts) {
            for (int root = 0; root < n; ++root) {
              checks.reduce(root, count, false);
              checks.broadcast(root, count);
            }
            for (const bool is_even : {true, false}) checks.all_gather(count, is_even, count % 2 == 0);
          }
        }
      });
}

TEST(HierarchicalCollectives, EveryDtypeOperatorAndRootMatchesReference) {
  for (const char* hosts : kWorlds) {
    SCOPED_TRACE(hosts);
    const std::vector<DType> dtypes(std::begin(kDTypes), std::end(kDTypes));
    expect_every_kind({.hosts = hosts, .tuning = kTiny}, dtypes, {7, 150});
  }
}

TEST(HierarchicalCollectives, SizesAroundChunkBoundariesMatchReference) {
  std::vector<int64_t> counts = {0, 1, 2, 3};
  for (const int64_t edge : {16, 32, 64, 96, 128, 192, 256}) {
    for (const int64_t count : {edge - 1, edge, edge + 1}) counts.push_back(count);
  }
  for (const char* hosts : {"aabb", "abab", "aaab", "aaabbb", "aaabcc"}) {
    SCOPED_TRACE(hosts);
    const HostTuning odd = {.leader_bytes = 0, .chunk_bytes = 1000, .ahead = 1};
    expect_every_kind({.hosts = hosts, .tuning = kTiny, .dawdle = 3}, {kFloat32, kBFloat16}, counts);
    expect_every_kind({.hosts = hosts, .tuning = odd}, {kFloat32}, counts);
  }
}

TEST(HierarchicalCollectives, CoalescedFormsGiveExpectedValues) {
  for (const char* hosts : {"aabb", "aaab"}) {
    const HostRanks ranks{.hosts = hosts, .tuning = kTiny};
    ranks.run_well([](ProcessGroup& group) {
      const auto number = [](int rank, int k) { return static_cast<float>(10 * rank + k); };
      const int n = group.size();
      std::vector<Tensor> shared, gathered, mine, summed, terms;
      for (int k = 0; k < 3; ++k) {
        const int64_t count = 50 + 60 * k;
        shared.push_back(full({count}, number(group.rank(), k)));
        mine.push_back(full({count}, number(group.rank(), k)));
        gathered.push_back(zeros({n, count}));
        summed.push_back(zeros({count}));
        std::vector<float> values;
        for (int64_t i = 0; i < n * count; ++i) {
          values.push_back(number(static_cast<int>(i / count), k) + static_cast<float>(group.rank()));
        }
        terms.push_back(from_vector<float>(values, {n, count}));
      }
      group.broadcast_coalesced(shared, 1);
      group.all_gather_coalesced(gathered, mine);
      group.reduce_scatter_coalesced(summed, terms);
      for (int k = 0; k < 3; ++k) {
        const auto at = static_cast<size_t>(k);
        EXPECT_EQ(count_wrong(shared[at], [&](int64_t) { return number(1, k); }), 0);
        const int64_t count = mine[at].numel();
        EXPECT_EQ(count_wrong(gathered[at], [&](int64_t i) { return number(static_cast<int>(i / count), k); }), 0);
        const float sum = static_cast<float>(n) * number(group.rank(), k) + static_cast<float>(n * (n - 1) / 2);
        EXPECT_EQ(count_wrong(summed[at], [&](int64_t) { return sum; }), 0);
      }
    });
  }
}

TEST(HierarchicalAllReduce, SumsFollowDocumentedTreeForAnyChunkSize) {
  const HostTuning tunings[] = {
      {}, kTiny, {.leader_bytes = 1 << 20}, {.leader_bytes = 0, .chunk_bytes = 1000, .ahead = 1}};
  for (const char* hosts : kWorlds) {
    const HostLayout layout = HostRanks{.hosts = hosts}.layout();
    const OrderedSums<float> means(layout.hosts, 250, ReduceOp::kAvg);
    const OrderedSums<BFloat16> halves(layout.hosts, 250, ReduceOp::kSum);
    for (const HostTuning& tuning : tunings) {
      const HostRanks ranks{.hosts = hosts, .tuning = tuning};
      ranks.run_well([&](ProcessGroup& group) {
        means.check_all_reduce(group);
        halves.check_all_reduce(group);
        if (tuning.leader_bytes > 64) return;  // the flat backend would run the others, in the order of one host
        halves.check_reduce(group, group.size() - 1);
        means.check_reduce_scatter(group);
      });
    }
  }
}

TEST(HierarchicalAllReduce, ManyInFlightCallsGiveExpectedSums) {
  HostRanks ranks{.hosts = "aabb", .tuning = kTiny, .dawdle = 2};
  ranks.run_well([](ProcessGroup& group) {
    std::vector<Tensor> tensors;
    std::vector<Work> works;
    for (int k = 0; k < 40; ++k) {
      tensors.push_back(full({k * 11}, k + group.rank()));
      works.push_back(group.all_reduce_async(tensors.back()));
      if (k % 7 == 3) group.barrier();
    }
    for (int k = 0; k < 40; ++k) {
      works[static_cast<size_t>(k)].wait();
      for (const float v : tensors[static_cast<size_t>(k)].to_vector<float>())
        ASSERT_EQ(v, static_cast<float>(4 * k + 6));
    }
  });
}

/// Records its calls. Collectives complete immediately unless `awaited` names ranks.
class RecordingBackend final : public IdleBackend {
 public:
  explicit RecordingBackend(std::vector<RecordingBackend*>* cancellations) : cancelled(cancellations) {}
  void do_cancel() override { cancelled->push_back(this); }
  void do_start(const Collective& c) override { started.push_back(c); }
  bool do_prefetch_signature(const Collective& next, bool) override { return ahead.push_back(next), true; }
  Advance do_advance() override {
    if (fails) throw GroupError(": a phase", "a phase", 1);
    return awaited.empty() ? Advance::kDone : Advance::kIdle;
  }
  void do_sleep(FunctionRef<bool()> changed, Clock::time_point) override { changed(); }
  std::vector<int> do_awaited() override { return awaited; }
  const PeerEnd* do_peer_end(int) override { return &end; }
  bool do_drain(int rank) override { return rank != undrained; }
  void do_wake() override { ++num_wakes; }
  void do_notify(const std::function<void()>& f) override { wake = f; }

  std::vector<RecordingBackend*>* const cancelled;
  std::vector<Collective> started, ahead;
  std::vector<int> awaited;
  std::function<void()> wake;
  int num_wakes = 0;
  int undrained = -1;
  bool fails = false;
  PeerEnd end;
};

/// One rank, whose three backends record.
struct RecordedRank {
  RecordedRank(const std::string& hosts, int rank) {
    const HostRanks ranks{.hosts = hosts};
    const auto own = [](RecordingBackend* made) { return std::unique_ptr<Backend>(made); };
    backend =
        std::make_unique<HierarchicalBackend>(ranks.options_of(rank), ranks.layout(),
                                              HostBackends{own(flat), own(local), own(cross), "gloo over eth7"}, kTiny);
  }

  std::vector<RecordingBackend*> cancelled;
  RecordingBackend* const flat = new RecordingBackend(&cancelled);
  RecordingBackend* const local = new RecordingBackend(&cancelled);
  RecordingBackend* const cross = new RecordingBackend(&cancelled);
  std::unique_ptr<HierarchicalBackend> backend;
};

TEST(HierarchicalBackend, DescribeShowsHostsBackendsAndFlows) {
  const auto describe = [](const char* hosts) { return RecordedRank(hosts, 0).backend->describe(); };
  EXPECT_EQ(describe("aabb"), "2 hosts x 2: idle inside, gloo over eth7 across (2 flows)");
  EXPECT_EQ(describe("aab"), "2 hosts x 2 + 1: idle inside, gloo over eth7 across (1 flow)");
}

TEST(HierarchicalFailure, AbortNotifiesLocalBackendFirst) {
  // The others may wait for peers that do not read data in flight.
  const RecordedRank rank("aabb", 0);
  rank.backend->do_cancel();
  EXPECT_EQ(rank.cancelled, (std::vector<RecordingBackend*>{rank.local, rank.flat, rank.cross}));
}

Collective all_reduce_of(std::vector<float>& x) {
  Collective c = make(CollectiveKind::kAllReduce, kFloat32, static_cast<int64_t>(x.size()));
  c.input = c.output = reinterpret_cast<std::byte*>(x.data());
  return c;
}

TEST(HierarchicalBackend, SignaturesAreSentAheadWithoutDataForLargeKinds) {
  const RecordedRank rank("aabb", 0);
  const auto is_sent_with_data = [&](CollectiveKind kind, int64_t count) {
    rank.flat->ahead.assign(1, {});
    EXPECT_TRUE(rank.backend->do_prefetch_signature(make(kind, kFloat32, count, 1), true));
    EXPECT_TRUE(rank.flat->ahead.back() == make(kind, kFloat32, count, 1)) << to_string(kind);
    return rank.flat->ahead.back().moves_data;
  };
  EXPECT_FALSE(is_sent_with_data(CollectiveKind::kAllReduce, 16));
  EXPECT_FALSE(is_sent_with_data(CollectiveKind::kReduceScatter, 5));  // for each of four ranks
  EXPECT_TRUE(is_sent_with_data(CollectiveKind::kReduceScatter, 4));
  for (const auto kind : {CollectiveKind::kReduce, CollectiveKind::kBroadcast, CollectiveKind::kAllGather}) {
    EXPECT_FALSE(is_sent_with_data(kind, 17));
    EXPECT_TRUE(is_sent_with_data(kind, 16));
  }
  EXPECT_TRUE(is_sent_with_data(CollectiveKind::kGather, 1000));
}

TEST(HierarchicalBackend, EachFlowSendsSlicesUnderAscendingNumbers) {
  const RecordedRank rank("aabb", 1);
  std::vector<float> x(150), small(16);
  for (int i = 0; i < 2; ++i) run_collective(*rank.backend, all_reduce_of(x));
  run_collective(*rank.backend, all_reduce_of(small));  // only the leaders have a flow
  std::vector<int64_t> numbers, counts, ahead;
  for (const Collective& c : rank.cross->started) {
    numbers.push_back(c.seq);
    counts.push_back(c.num_elements);
  }
  for (const Collective& c : rank.cross->ahead) ahead.push_back(c.seq);
  EXPECT_EQ(numbers, (std::vector<int64_t>{1, 2, 3, 4, 5, 6}));
  EXPECT_EQ(counts, (std::vector<int64_t>{32, 32, 16, 32, 32, 16}));
  EXPECT_EQ(ahead, (std::vector<int64_t>{2, 3, 5, 6}));
}

TEST(HierarchicalBackend, ResultsAreWrittenAfterSignaturesMatch) {
  const RecordedRank rank("aabb", 0);
  std::vector<float> x(150);
  const Collective reduces = all_reduce_of(x);
  Collective copies = all_reduce_of(x);
  copies.kind = CollectiveKind::kBroadcast;
  copies.root = 0;
  for (const auto& [call, num_early, num_late] : {std::tuple(reduces, 3u, 6u), std::tuple(copies, 0u, 3u)}) {
    rank.flat->awaited = {1};
    rank.local->started.clear();
    rank.backend->do_start(call);
    for (int i = 0; i < 9; ++i) rank.backend->do_advance();
    EXPECT_EQ(rank.local->started.size(), num_early);
    rank.flat->awaited.clear();
    finish_collective(*rank.backend);
    EXPECT_EQ(rank.local->started.size(), num_late);
  }
}

TEST(HierarchicalBackend, ErrorsOfPhasesAreThrownAfterSignaturesMatch) {
  const RecordedRank rank("aabb", 0);
  rank.local->fails = true;
  rank.flat->awaited = {1};
  std::vector<float> x(150);
  const Collective c = all_reduce_of(x);
  rank.backend->do_start(c);
  EXPECT_NO_THROW(rank.backend->do_advance());
  rank.flat->awaited.clear();
  EXPECT_THROW(rank.backend->do_advance(), GroupError);
}

TEST(HierarchicalBackend, DataOfOtherHostsWakesLocalBackend) {
  const RecordedRank rank("aabb", 0);
  rank.flat->wake();
  rank.cross->wake();
  EXPECT_EQ(rank.local->num_wakes, 2);
}

TEST(HierarchicalBackend, PeerEndWaitsForDataInAllBackends) {
  const RecordedRank rank("aabb", 0);
  EXPECT_EQ(rank.backend->do_peer_end(1), &rank.flat->end);
  rank.local->undrained = rank.cross->undrained = 1;  // ranks 1 and 2 of the group
  EXPECT_EQ(rank.backend->do_peer_end(1), nullptr);
  EXPECT_EQ(rank.backend->do_peer_end(2), nullptr);
  EXPECT_EQ(rank.backend->do_peer_end(3), &rank.flat->end);
}

TEST(HierarchicalBackend, AwaitedRanksAreRanksOfTheGroup) {
  const auto awaited = [](const std::string& hosts, int own, const std::vector<int>& local,
                          const std::vector<int>& cross) {
    const RecordedRank rank(hosts, own);
    rank.local->awaited = local;
    rank.cross->awaited = cross;
    std::vector<float> x(150);
    const Collective c = all_reduce_of(x);
    rank.backend->do_start(c);
    rank.backend->do_advance();
    return rank.backend->do_awaited();
  };
  EXPECT_EQ(awaited("aabb", 2, {1}, {}), std::vector<int>{3});
  EXPECT_EQ(awaited("abb", 1, {}, {0}), std::vector<int>{0});
  EXPECT_EQ(awaited("aabb", 2, {}, {0}), std::vector<int>{});     // one rank of the host, not known which
  EXPECT_EQ(awaited("abbc", 1, {}, {0, 2}), std::vector<int>{});  // one may wait for the other
}

}}}}  // namespace tandem::v0::distributed
