// Every kind of collective over gloo, between threads, against a serial oracle.
#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>
#include <cstring>
#include <latch>
#include <string>
#include <vector>

#include <tandem/distributed/backends/gloo/gloo_backend.h>
#include <tandem/tensor/reduce.h>
#include <tandem/tests/distributed/backend_ranks.h>
#include <tandem/tests/distributed/closed_form.h>
#include <tandem/tests/support/sanitizers.h>

namespace {

namespace td = tandem;
using namespace td::distributed;
using Bytes = std::vector<std::byte>;
using Kind = CollectiveKind;
namespace gl = td::distributed::gloo;

/// After so many elements the values of each rank begin anew, and so do their sums.
constexpr int64_t kPeriod = 8 * 23;

/// The first `count` elements of rank r's tensor, at most a period: small numbers, so that half types neither overflow nor
/// are all exact.
Bytes period(td::DType dtype, int64_t count, int rank, int salt) {
  count = std::min(count, kPeriod);
  Bytes bytes(static_cast<size_t>(count * td::size_of(dtype)));
  td::visit_dtype(dtype, [&]<class T>() {
    for (int64_t i = 0; i < count; ++i) {
      const int64_t mixed = (i * 37 + rank * 101 + salt * 13 + (i ^ rank)) % 23;
      T value;
      if constexpr (std::is_same_v<T, bool>) {
        value = mixed % 2 == 0;
      } else if constexpr (std::is_integral_v<T>) {
        value = static_cast<T>(mixed);
      } else {
        value = static_cast<T>(static_cast<float>(mixed) * 0.37f - 3.1f);
      }
      std::memcpy(bytes.data() + i * td::size_of(dtype), &value, sizeof(T));
    }
  });
  return bytes;
}

/// The bytes again and again.  An oracle made in this way costs little beside what is tested.
Bytes repeated(Bytes bytes, td::DType dtype, int64_t count) {
  size_t done = bytes.size();
  bytes.resize(static_cast<size_t>(count * td::size_of(dtype)));
  for (size_t n = 0; done < bytes.size(); done += n) {
    n = std::min(done, bytes.size() - done);
    std::memcpy(bytes.data() + done, bytes.data(), n);
  }
  return bytes;
}

Bytes values(td::DType dtype, int64_t count, int rank, int salt = 0) {
  return repeated(period(dtype, count, rank, salt), dtype, count);
}

/// The reduction of what `size` ranks send with this salt.
Bytes reduced(ReduceOp op, td::DType dtype, int64_t count, int size, int salt = 0) {
  std::vector<Bytes> inputs;
  std::vector<const std::byte*> pointers;
  for (int rank = 0; rank < size; ++rank) inputs.push_back(period(dtype, count, rank, salt));
  for (const Bytes& input : inputs) pointers.push_back(input.data());
  Bytes out(inputs[0].size());
  td::chores::reduce(op, dtype, pointers, static_cast<int64_t>(out.size()) / td::size_of(dtype), out.data());
  return repeated(std::move(out), dtype, count);
}

bool same(const Bytes& a, const Bytes& b) {
  return a.size() == b.size() && (a.empty() || std::memcmp(a.data(), b.data(), a.size()) == 0);
}

void expect(bool holds, const std::string& what) {
  if (!holds) throw td::StateError("wrong values: " + what);
}

Collective make(Kind kind, int64_t seq, td::DType dtype, int64_t count) {
  Collective c;
  c.kind = kind;
  c.seq = seq;
  c.dtype = dtype;
  c.num_elements = count;
  c.name = "x";
  return c;
}

MakeBackend gloo_backend(gl::Tuning tuning = {}) {
  return [tuning](const ProcessGroupOptions& options) { return gl::make_gloo_backend(options, tuning); };
}

/// Small rings, so that few bytes go through many rounds.
constexpr gl::Tuning kSmall{.chunk_bytes = 8 << 10, .slots = 3, .records = 12};

/// One rank's part in every kind of collective.
class Programme {
 public:
  Programme(Backend& backend, int rank, int size) : backend_(backend), rank_(rank), size_(size) {}

  void all_reduce(td::DType dtype, ReduceOp op, int64_t count) {
    const Bytes want = reduced(op, dtype, count, size_);
    const Bytes input = values(dtype, count, rank_);
    Bytes output(input.size());
    Collective c = next(Kind::kAllReduce, dtype, count);
    c.op = op;
    c.input = input.data();
    c.output = output.data();
    run_collective(backend_, c);
    check(c, same(output, want) && same(input, values(dtype, count, rank_)));
    Bytes both = input;  // in place
    c = next(Kind::kAllReduce, dtype, count);
    c.op = op;
    c.input = both.data();
    c.output = both.data();
    run_collective(backend_, c);
    check(c, same(both, want));
  }

  void reduce_to(int root, td::DType dtype, ReduceOp op, int64_t count) {
    const Bytes want = reduced(op, dtype, count, size_);
    Bytes tensor = values(dtype, count, rank_);
    Collective c = next(Kind::kReduce, dtype, count);
    c.op = op;
    c.root = root;
    c.input = tensor.data();
    if (rank_ == root) c.output = tensor.data();
    run_collective(backend_, c);
    check(c, same(tensor, rank_ == root ? want : values(dtype, count, rank_)));
  }

  void broadcast(int root, td::DType dtype, int64_t count) {
    Bytes tensor = values(dtype, count, rank_);
    Collective c = next(Kind::kBroadcast, dtype, count);
    c.root = root;
    c.input = c.output = tensor.data();
    run_collective(backend_, c);
    check(c, same(tensor, values(dtype, count, root)));
  }

  void all_gather(td::DType dtype, const std::vector<int64_t>& counts) {
    std::vector<Bytes> outputs;
    int64_t total = 0;
    for (const int64_t count : counts) {
      outputs.emplace_back(static_cast<size_t>(count * td::size_of(dtype)));
      total += count;
    }
    const Bytes input = values(dtype, counts[static_cast<size_t>(rank_)], rank_);
    Collective c = next(Kind::kAllGather, dtype, total);
    c.input = input.data();
    c.outputs = parts(dtype, outputs);
    run_collective(backend_, c);
    for (int r = 0; r < size_; ++r) {
      check(c, same(outputs[static_cast<size_t>(r)], values(dtype, counts[static_cast<size_t>(r)], r)));
    }
  }

  void gather(int root, td::DType dtype, int64_t count) {
    std::vector<Bytes> outputs(static_cast<size_t>(size_), Bytes(static_cast<size_t>(count * td::size_of(dtype))));
    const Bytes input = values(dtype, count, rank_);
    Collective c = next(Kind::kGather, dtype, count);
    c.root = root;
    c.input = input.data();
    if (rank_ == root) c.outputs = parts(dtype, outputs);
    run_collective(backend_, c);
    for (int r = 0; rank_ == root && r < size_; ++r) {
      check(c, same(outputs[static_cast<size_t>(r)], values(dtype, count, r)));
    }
  }

  void scatter(int root, td::DType dtype, int64_t count) {
    std::vector<Bytes> inputs;
    for (int r = 0; r < size_; ++r) inputs.push_back(values(dtype, count, root, r));
    Bytes output(static_cast<size_t>(count * td::size_of(dtype)));
    Collective c = next(Kind::kScatter, dtype, count);
    c.root = root;
    c.output = output.data();
    if (rank_ == root) c.inputs = parts(dtype, inputs);
    run_collective(backend_, c);
    check(c, same(output, values(dtype, count, root, rank_)));
  }

  void reduce_scatter(td::DType dtype, ReduceOp op, int64_t count) {
    std::vector<Bytes> mine;
    for (int r = 0; r < size_; ++r) mine.push_back(values(dtype, count, rank_, r));
    const Bytes want = reduced(op, dtype, count, size_, rank_);
    Collective c = next(Kind::kReduceScatter, dtype, count);
    c.op = op;
    c.inputs = parts(dtype, mine);
    c.output = mine[static_cast<size_t>(rank_)].data();  // in place
    run_collective(backend_, c);
    check(c, same(mine[static_cast<size_t>(rank_)], want));
  }

  void all_to_all(td::DType dtype, int64_t count, bool uneven) {
    const auto size_of_pair = [&](int from, int to) { return uneven ? count * ((from + 2 * to) % 3) : count; };
    std::vector<Bytes> inputs;
    std::vector<Bytes> outputs;
    for (int r = 0; r < size_; ++r) {
      inputs.push_back(values(dtype, size_of_pair(rank_, r), rank_, r));
      outputs.emplace_back(static_cast<size_t>(size_of_pair(r, rank_) * td::size_of(dtype)));
    }
    Collective c = next(Kind::kAllToAll, dtype, 0);
    c.inputs = parts(dtype, inputs);
    c.outputs = parts(dtype, outputs);
    run_collective(backend_, c);
    for (int r = 0; r < size_; ++r) {
      check(c, same(outputs[static_cast<size_t>(r)], values(dtype, size_of_pair(r, rank_), r, rank_)));
    }
  }

  void barrier() { run_collective(backend_, next(Kind::kBarrier, td::kFloat32, 0)); }

  void signatures_only() {
    Collective c = next(Kind::kAllReduce, td::kFloat32, 1 << 20);
    c.moves_data = false;
    run_collective(backend_, c);
  }

 private:
  Collective next(Kind kind, td::DType dtype, int64_t count) { return make(kind, ++seq_, dtype, count); }

  static std::vector<Part> parts(td::DType dtype, std::vector<Bytes>& list) {
    std::vector<Part> result;
    for (Bytes& bytes : list) result.push_back({bytes.data(), static_cast<int64_t>(bytes.size()) / td::size_of(dtype)});
    return result;
  }

  void check(const Collective& c, bool holds) const {
    expect(holds, td::str(to_string(c.kind), " ", to_string(c.op), " ", c.dtype, " ", c.num_elements, " rank ", rank_,
                          " of ", size_));
  }

  Backend& backend_;
  const int rank_;
  const int size_;
  int64_t seq_ = 0;
};

class GlooCollectives : public testing::TestWithParam<int> {};

TEST_P(GlooCollectives, EveryKindDTypeAndOperator) {
  const int n = GetParam();
  run_backend_ranks(n, gloo_backend(kSmall), [&](Backend& backend, int rank) {
    Programme programme(backend, rank, n);
    for (const td::DType dtype : kDTypes) {
      for (const ReduceOp op : reduce_ops_of(dtype)) {
        for (const int64_t count : {33, 9001}) {
          programme.all_reduce(dtype, op, count);
          programme.reduce_to(n - 1, dtype, op, count);
          programme.reduce_scatter(dtype, op, count);
        }
      }
      for (const int64_t count : {0, 1, 7, 4097, 30011}) {
        if (!is_walked_whole(dtype) && count != 7) continue;
        programme.broadcast(n / 2, dtype, count);
        programme.gather(n / 2, dtype, count);
        programme.scatter(n - 1, dtype, count);
        programme.all_to_all(dtype, count, false);
        programme.all_to_all(dtype, count, true);
        std::vector<int64_t> counts;
        for (int r = 0; r < n; ++r) counts.push_back(count * (r % 3));
        programme.all_gather(dtype, counts);
        programme.all_gather(dtype, std::vector<int64_t>(static_cast<size_t>(n), count));
      }
      programme.barrier();
      programme.signatures_only();
    }
  });
}

TEST_P(GlooCollectives, SizesAroundTheLimitsOfFramesAndRings) {
  const int n = GetParam();
  run_backend_ranks(n, gloo_backend(), [&](Backend& backend, int rank) {
    Programme programme(backend, rank, n);
    constexpr int kLarge = td::testing::kThreadSanitizer ? 1000003 : 3000017;
    for (const int64_t count : {0, 1, 2, 3, 31, 2047, 2048, 2049, 8192, 65536, 65537, 70001, kLarge}) {
      programme.all_reduce(td::kFloat32, ReduceOp::kSum, count);
      programme.broadcast(0, td::kFloat32, count);
      programme.reduce_to(0, td::kFloat32, ReduceOp::kAvg, count);
    }
  });
}

/// An all_reduce in place of `count` times rank + 1.
struct SumInPlace {
  SumInPlace(int64_t seq, int64_t count, int rank)
      : data(static_cast<size_t>(count), static_cast<float>(rank + 1)),
        collective(make(Kind::kAllReduce, seq, td::kFloat32, count)) {
    collective.input = collective.output = reinterpret_cast<std::byte*>(data.data());
  }
  std::vector<float> data;
  Collective collective;
};

TEST_P(GlooCollectives, ALargeCollectiveIsAnnouncedWhileTheOneBeforeRuns) {
  const int n = GetParam();
  const auto sum = static_cast<float>(n * (n + 1) / 2);
  std::latch seen(n - 1);
  run_backend_ranks(n, gloo_backend(), [&](Backend& backend, int rank) {
    const auto last_of_0 = [&] { return backend.do_last_started(0).seq; };
    SumInPlace first(1, 100000, rank), second(2, 1000003, rank), small(3, 5, rank);
    backend.do_start(first.collective);
    if (rank == 0) backend.do_announce(second.collective, true);
    finish_collective(backend);
    expect(last_of_0() == 1, "what is announced counts as started");
    if (rank == 0) seen.wait();
    backend.do_start(second.collective);
    if (rank > 0) {
      // Rank 0's signature is there before it starts.
      const auto deadline = std::chrono::steady_clock::now() + std::chrono::seconds(20);
      while (last_of_0() != 2 && std::chrono::steady_clock::now() < deadline) backend.do_advance();
      seen.count_down();
      expect(last_of_0() == 2, "the second was not announced");
    }
    // What travels inside a signature may be a result of what runs.
    if (rank == 0) backend.do_announce(small.collective, true);
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

TEST_P(GlooCollectives, WhoIsAheadMaySendTheAnnouncedData) {
  const int n = GetParam();
  const auto sum = static_cast<float>(n * (n + 1) / 2);
  run_backend_ranks(n, gloo_backend(), [&](Backend& backend, int rank) {
    std::vector<SumInPlace> calls;
    for (int i = 0; i < 20; ++i) calls.emplace_back(i + 1, 50000 + 1000 * i, rank);
    for (size_t i = 0; i < calls.size(); ++i) {
      backend.do_start(calls[i].collective);
      if (i + 1 < calls.size()) backend.do_announce(calls[i + 1].collective, true);
      finish_collective(backend);
      expect(calls[i].data == std::vector<float>(calls[i].data.size(), sum), td::str("sum ", i + 1));
    }
  });
}

TEST(GlooAnnouncements, ADifferenceIsFoundWhenItsTurnComes) {
  const std::vector<std::string> errors = try_backend_ranks(2, gloo_backend(), [&](Backend& backend, int rank) {
    SumInPlace first(1, 100000, rank), second(2, rank == 0 ? 100000 : 100001, rank);
    backend.do_start(first.collective);
    backend.do_announce(second.collective, true);
    finish_collective(backend);
    expect(first.data == std::vector<float>(100000, 3.0f), "sum 1");
    run_collective(backend, second.collective);
  });
  for (const std::string& error : errors) {
    EXPECT_NE(error.find(": ranks do not agree on what to exchange\n  rank 0  "), std::string::npos) << error;
  }
}

INSTANTIATE_TEST_SUITE_P(Worlds, GlooCollectives, testing::Values(1, 2, 3, 4, 7));

}  // namespace
