// Every kind of collective over the network backend, between threads, against closed forms.
#include <gtest/gtest.h>

#include <chrono>
#include <latch>
#include <memory>
#include <string>
#include <vector>

#include <tandem/distributed/backends/network/network_backend.h>
#include <tandem/tests/distributed/backend_checks.h>
#include <tandem/tests/distributed/backend_ranks.h>
#include <tandem/tests/support/sanitizers.h>

namespace {

namespace td = tandem;
using namespace td::distributed;
using Kind = CollectiveKind;
namespace gl = td::distributed::network;

void expect(bool holds, const std::string& what) {
  if (!holds) throw td::StateError("wrong values: " + what);
}

MakeBackend network_backend(gl::Tuning tuning = {}) {
  return [tuning](const ProcessGroupOptions& options) { return gl::make_network_backend(options, tuning); };
}

/// Small chunks, so that few bytes need many of them.
constexpr gl::Tuning kSmall{.chunk_bytes = 8 << 10};

class NetworkCollectives : public testing::TestWithParam<int> {};

TEST_P(NetworkCollectives, AllKindsDtypesAndOperatorsMatchReference) {
  const int n = GetParam();
  run_backend_ranks(n, network_backend(kSmall), [&](Backend& backend, int rank) {
    int64_t seq = 0;
    const auto run = [&](Collective& c) {
      c.seq = ++seq;
      run_collective(backend, c);
    };
    for (const td::DType dtype : kDTypes) {
      for (const ReduceOp op : reduce_ops_of(dtype)) {
        const BackendChecks checks(rank, n, dtype, op, run);
        for (const int64_t count : {33, 9001}) {
          checks.all_reduce(count, false);
          checks.all_reduce(count, true);
          checks.reduce(n - 1, count, true);
          checks.reduce_scatter(count, true);
        }
      }
      const BackendChecks checks(rank, n, dtype, ReduceOp::kSum, run);
      for (const int64_t count : {0, 1, 7, 4097, 30011}) {
        if (!is_walked_whole(dtype) && count != 7) continue;
        checks.broadcast(n / 2, count);
        checks.gather(n / 2, count, false);
        checks.scatter(n - 1, count, false);
        for (const bool even : {true, false}) {
          checks.all_to_all(count, even);
          checks.all_gather(count, even, false);
        }
      }
      checks.barrier();
      Collective signature = make(Kind::kAllReduce, td::kFloat32, 1 << 20);
      signature.moves_data = false;
      run(signature);
    }
  });
}

TEST_P(NetworkCollectives, SizesAroundBufferLimitsMatchReference) {
  const int n = GetParam();
  run_backend_ranks(n, network_backend(), [&](Backend& backend, int rank) {
    int64_t seq = 0;
    const auto run = [&](Collective& c) {
      c.seq = ++seq;
      run_collective(backend, c);
    };
    const BackendChecks sums(rank, n, td::kFloat32, ReduceOp::kSum, run);
    const BackendChecks means(rank, n, td::kFloat32, ReduceOp::kAvg, run);
    constexpr int kLarge = td::testing::kThreadSanitizer ? 300007 : 3000017;
    for (const int64_t count : {0, 1, 2, 3, 31, 2047, 2048, 2049, 8192, 65536, 65537, 70001, kLarge}) {
      sums.all_reduce(count, false);
      sums.all_reduce(count, true);
      sums.broadcast(0, count);
      means.reduce(0, count, true);
    }
  });
}

/// An all_reduce in place of `count` times rank + 1.
struct SumInPlace {
  SumInPlace(int64_t seq, int64_t count, int rank)
      : data(static_cast<size_t>(count), static_cast<float>(rank + 1)),
        collective(make(Kind::kAllReduce, td::kFloat32, count)) {
    collective.seq = seq;
    collective.input = collective.output = reinterpret_cast<std::byte*>(data.data());
  }
  std::vector<float> data;
  Collective collective;
};

TEST_P(NetworkCollectives, PrefetchedSignatureArrivesBeforeCollectiveStarts) {
  const int n = GetParam();
  const auto sum = static_cast<float>(n * (n + 1) / 2);
  std::latch seen(n - 1);
  run_backend_ranks(n, network_backend(), [&](Backend& backend, int rank) {
    const auto last_of_0 = [&] { return backend.do_last_started(0).seq; };
    SumInPlace first(1, 100000, rank), second(2, 1000003, rank), small(3, 5, rank);
    backend.do_start(first.collective);
    if (rank == 0) backend.do_prefetch_signature(second.collective, true);
    finish_collective(backend);
    expect(last_of_0() == 1, "what is announced counts as started");
    if (rank == 0) seen.wait();
    backend.do_start(second.collective);
    if (rank > 0) {
      // Rank 0's signature arrives before this rank starts.
      const auto deadline = std::chrono::steady_clock::now() + std::chrono::seconds(20);
      while (last_of_0() != 2 && std::chrono::steady_clock::now() < deadline) backend.do_advance();
      seen.count_down();
      expect(last_of_0() == 2, "the second was not announced");
    }
    // Data inside a signature may be the result of a running collective.
    if (rank == 0) backend.do_prefetch_signature(small.collective, true);
    finish_collective(backend);
    small.data[0] = second.data[0];
    run_collective(backend, small.collective);
    for (const SumInPlace* s : {&first, &second}) {
      expect(s->data == std::vector<float>(s->data.size(), sum), td::str("sum ", s->collective.seq));
    }
    const auto times = static_cast<float>(n);
    expect(small.data == std::vector<float>{times * sum, sum, sum, sum, sum}, "sum 3");
  });
}

TEST_P(NetworkCollectives, SignaturesOfAllLargeKindsAreSentEarly) {
  const int n = GetParam();
  constexpr int kKinds = 5;
  std::vector<std::unique_ptr<std::latch>> seen;
  for (int k = 0; k < kKinds; ++k) seen.push_back(std::make_unique<std::latch>(n - 1));
  run_backend_ranks(n, network_backend(kSmall), [&](Backend& backend, int rank) {
    int num_early = 0, num_seen = 0;
    int64_t seq = 0;
    const BackendChecks checks(rank, n, td::kFloat32, ReduceOp::kSum, [&](Collective& c) {
      SumInPlace first(++seq, 1000, rank);
      c.seq = ++seq;
      backend.do_start(first.collective);
      if (rank == 0) num_early += backend.do_prefetch_signature(c, true);
      finish_collective(backend);
      std::latch& all = *seen[static_cast<size_t>(seq / 2 - 1)];
      if (rank == 0) all.wait();
      backend.do_start(c);
      if (rank > 0) {
        const auto deadline = std::chrono::steady_clock::now() + std::chrono::seconds(20);
        while (backend.do_last_started(0).seq != c.seq && std::chrono::steady_clock::now() < deadline) {
          backend.do_advance();
        }
        num_seen += backend.do_last_started(0).seq == c.seq;
        all.count_down();
      }
      finish_collective(backend);
    });
    constexpr int64_t kCount = 100003;
    checks.all_reduce(kCount, false);
    checks.reduce(n / 2, kCount, false);
    checks.broadcast(n - 1, kCount);
    checks.all_gather(kCount, true, false);
    checks.reduce_scatter(kCount, false);
    expect((rank == 0 ? num_early : num_seen) == kKinds, "a signature was not sent early");
  });
}

TEST(NetworkSignaturePrefetch, IsRefusedIfSignatureCarriesData) {
  run_backend_ranks(2, network_backend(), [&](Backend& backend, int rank) {
    int64_t seq = 0;
    const BackendChecks checks(rank, 2, td::kFloat32, ReduceOp::kSum, [&](Collective& c) {
      SumInPlace first(++seq, 1000, rank);
      backend.do_start(first.collective);
      expect(!backend.do_prefetch_signature(c, true), "a signature was sent without its data");
      finish_collective(backend);
      c.seq = ++seq;
      run_collective(backend, c);
    });
    constexpr int64_t kCount = 2048;  // 8 KiB, the most that a signature carries
    checks.all_reduce(kCount, false);
    checks.reduce(1, kCount, false);
    checks.broadcast(1, kCount);
    checks.all_gather(kCount, true, false);
    checks.reduce_scatter(kCount, false);
  });
}

TEST(NetworkSignaturePrefetch, MismatchIsReportedWhenCollectiveStarts) {
  const std::vector<std::string> errors = try_backend_ranks(2, network_backend(), [&](Backend& backend, int rank) {
    SumInPlace first(1, 100000, rank), second(2, rank == 0 ? 100000 : 100001, rank);
    backend.do_start(first.collective);
    backend.do_prefetch_signature(second.collective, true);
    finish_collective(backend);
    expect(first.data == std::vector<float>(100000, 3.0f), "sum 1");
    run_collective(backend, second.collective);
  });
  for (const std::string& error : errors) {
    EXPECT_NE(error.find(": calls do not match across ranks\n  rank 0  "), std::string::npos) << error;
  }
}

INSTANTIATE_TEST_SUITE_P(Worlds, NetworkCollectives,
                         testing::Values(1, 2, 3, 4, td::testing::kThreadSanitizer ? 5 : 7));

}  // namespace
