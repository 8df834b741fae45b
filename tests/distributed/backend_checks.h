// Every collective through a backend alone, against the closed forms of closed_form.h.
#pragma once

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <functional>
#include <utility>
#include <vector>

#include <tandem/base/error.h>
#include <tandem/distributed/backends/collective.h>
#include <tandem/tests/distributed/closed_form.h>

namespace tandem { inline namespace v0 { namespace distributed {

using Bytes = std::vector<std::byte>;

/// The n elements f(0), f(1), ..., repeated after the dtype's period. Repetitions are copied, which is faster than
/// calling f.
template <class F>
Bytes bytes_of(DType dtype, int64_t n, const F& f) {
  const int64_t distinct = std::min(n, period_of(dtype));
  Bytes bytes(static_cast<size_t>(n * size_of(dtype)));
  visit_dtype(dtype, [&]<class T>() {
    for (int64_t i = 0; i < distinct; ++i) {
      const T element = as<T>(f(i));
      std::memcpy(bytes.data() + i * size_of(dtype), &element, sizeof(T));
    }
  });
  for (size_t done = static_cast<size_t>(distinct * size_of(dtype)), count = 0; done < bytes.size(); done += count) {
    count = std::min(done, bytes.size() - done);
    std::memcpy(bytes.data() + done, bytes.data(), count);
  }
  return bytes;
}

inline Collective make(CollectiveKind kind, DType dtype, int64_t count, int root = -1) {
  Collective c;
  c.kind = kind;
  c.dtype = dtype;
  c.num_elements = count;
  c.root = root;
  c.shape = {count};
  return c;
}

/// The collectives of one rank, for one dtype and operator. `run` executes a collective until it is complete. Throws
/// StateError if a result differs from the closed form.
class BackendChecks {
 public:
  using Run = std::function<void(Collective&)>;
  BackendChecks(int rank, int size, DType dtype, ReduceOp op, Run run)
      : rank_(rank), size_(size), dtype_(dtype), op_(op), run_(std::move(run)) {}

  void all_reduce(int64_t count, bool in_place) const {
    Bytes in = sent(rank_, 0, count);
    Bytes out = untouched(count);
    Collective c = make(CollectiveKind::kAllReduce, dtype_, count);
    c.op = op_;
    c.input = in.data();
    c.output = in_place ? in.data() : out.data();
    run(c);
    expect_same(c, in_place ? in : out, reduction(0, count));
    if (!in_place) expect_same(c, in, sent(rank_, 0, count));
  }

  void reduce(int root, int64_t count, bool in_place) const {
    Bytes in = sent(rank_, 0, count);
    Bytes out = untouched(count);
    Collective c = make(CollectiveKind::kReduce, dtype_, count, root);
    c.op = op_;
    c.input = in.data();
    if (rank_ == root) c.output = in_place ? in.data() : out.data();
    run(c);
    if (rank_ == root) expect_same(c, in_place ? in : out, reduction(0, count));
    if (rank_ != root || !in_place) expect_same(c, in, sent(rank_, 0, count));
  }

  void broadcast(int root, int64_t count) const {
    Bytes data = rank_ == root ? sent(root, 0, count) : untouched(count);
    Collective c = make(CollectiveKind::kBroadcast, dtype_, count, root);
    c.input = c.output = data.data();
    run(c);
    expect_same(c, data, sent(root, 0, count));
  }

  void gather(int root, int64_t count, bool in_place) const {
    Bytes in = sent(rank_, 0, count);
    std::vector<Bytes> out(static_cast<size_t>(size_), untouched(count));
    Collective c = make(CollectiveKind::kGather, dtype_, count, root);
    c.input = in.data();
    if (rank_ == root) {
      c.outputs = parts_of(out);
      if (in_place) c.outputs[static_cast<size_t>(root)].data = in.data();
    }
    run(c);
    expect_same(c, in, sent(rank_, 0, count));
    for (int from = 0; rank_ == root && from < size_; ++from) {
      if (from != root || !in_place) expect_same(c, at(out, from), sent(from, 0, count));
    }
  }

  void all_gather(int64_t count, bool even, bool in_place) const {
    const auto size_of_part = [&](int from) { return even ? count : uneven(from, 0, count); };
    Bytes in = sent(rank_, 0, size_of_part(rank_));
    std::vector<Bytes> out;
    int64_t total = 0;
    for (int from = 0; from < size_; ++from) {
      out.push_back(untouched(size_of_part(from)));
      total += size_of_part(from);
    }
    Collective c = make(CollectiveKind::kAllGather, dtype_, total);
    c.input = in.data();
    c.outputs = parts_of(out);
    if (in_place) c.outputs[static_cast<size_t>(rank_)].data = in.data();
    run(c);
    expect_same(c, in, sent(rank_, 0, size_of_part(rank_)));
    for (int from = 0; from < size_; ++from) {
      if (from != rank_ || !in_place) expect_same(c, at(out, from), sent(from, 0, size_of_part(from)));
    }
  }

  void scatter(int root, int64_t count, bool in_place) const {
    std::vector<Bytes> in;
    Bytes out = untouched(count);
    Collective c = make(CollectiveKind::kScatter, dtype_, count, root);
    c.output = out.data();
    if (rank_ == root) {
      for (int to = 0; to < size_; ++to) in.push_back(sent(root, to, count));
      c.inputs = parts_of(in);
      if (in_place) c.output = c.inputs[static_cast<size_t>(root)].data;
    }
    run(c);
    if (rank_ != root || !in_place) expect_same(c, out, sent(root, rank_, count));
    for (int to = 0; rank_ == root && to < size_; ++to) expect_same(c, at(in, to), sent(root, to, count));
  }

  void reduce_scatter(int64_t count, bool in_place) const {
    std::vector<Bytes> in;
    for (int to = 0; to < size_; ++to) in.push_back(sent(rank_, to, count));
    Bytes out = untouched(count);
    Bytes& result = in_place ? in[static_cast<size_t>(rank_)] : out;
    Collective c = make(CollectiveKind::kReduceScatter, dtype_, count);
    c.op = op_;
    c.inputs = parts_of(in);
    c.output = result.data();
    run(c);
    expect_same(c, result, reduction(rank_, count));
    for (int to = 0; to < size_; ++to) {
      if (to != rank_ || !in_place) expect_same(c, at(in, to), sent(rank_, to, count));
    }
  }

  void all_to_all(int64_t count, bool even) const {
    const auto size_of_part = [&](int from, int to) { return even ? count : uneven(from, to, count); };
    std::vector<Bytes> in;
    std::vector<Bytes> out;
    for (int peer = 0; peer < size_; ++peer) {
      in.push_back(sent(rank_, peer, size_of_part(rank_, peer)));
      out.push_back(untouched(size_of_part(peer, rank_)));
    }
    Collective c = make(CollectiveKind::kAllToAll, dtype_, 0);
    c.inputs = parts_of(in);
    c.outputs = parts_of(out);
    run(c);
    for (int peer = 0; peer < size_; ++peer) {
      expect_same(c, at(in, peer), sent(rank_, peer, size_of_part(rank_, peer)));
      expect_same(c, at(out, peer), sent(peer, rank_, size_of_part(peer, rank_)));
    }
  }

  void barrier() const {
    Collective c = make(CollectiveKind::kBarrier, dtype_, 0);
    run(c);
  }

  static constexpr int kVariants = 17;

  /// One of kVariants collectives with values of its own.
  void variant(int number, int64_t count) const {
    const int last = size_ - 1;
    const int middle = size_ / 2;
    switch (number) {
      case 0: return all_reduce(count, true);
      case 1: return all_reduce(count, false);
      case 2: return reduce(last, count, true);
      case 3: return reduce(middle, count, false);
      case 4: return broadcast(middle, count);
      case 5: return gather(last, count, false);
      case 6: return gather(0, count, true);
      case 7: return all_gather(count, true, false);
      case 8: return all_gather(count, false, true);
      case 9: return all_gather(count, false, false);
      case 10: return scatter(last, count, false);
      case 11: return scatter(0, count, true);
      case 12: return reduce_scatter(count, false);
      case 13: return reduce_scatter(count, true);
      case 14: return all_to_all(count, true);
      case 15: return all_to_all(count, false);
      default: return barrier();
    }
  }

  // --- values ---

  /// The data that `from` sends; it depends on `to` if every rank receives different data.
  Bytes sent(int from, int to, int64_t count) const {
    return bytes_of(dtype_, count, [&](int64_t i) { return value(from + 2 * to, i, op_, dtype_); });
  }
  Bytes untouched(int64_t count) const { return Bytes(static_cast<size_t>(count * size_of(dtype_)), std::byte{0x55}); }
  std::vector<Part> parts_of(std::vector<Bytes>& list) const {
    std::vector<Part> parts;
    for (Bytes& bytes : list) {
      const int64_t count = static_cast<int64_t>(bytes.size()) / size_of(dtype_);
      parts.push_back({bytes.data(), count, {count}});
    }
    return parts;
  }
  void expect_same(const Collective& c, const Bytes& got, const Bytes& want) const {
    if (got.empty() && want.empty()) return;  // memcmp requires pointers
    if (got.size() == want.size() && std::memcmp(got.data(), want.data(), got.size()) == 0) return;
    const auto [first, other] = std::mismatch(got.begin(), got.end(), want.begin(), want.end());
    throw StateError(str(to_string(c.kind), " ", to_string(op_), " ", dtype_, " ", c.num_elements, ", rank ", rank_,
                         " of ", size_, ": element ", (first - got.begin()) / size_of(dtype_), " of ",
                         got.size() / static_cast<size_t>(size_of(dtype_)), " is wrong (expected ",
                         want.size() / static_cast<size_t>(size_of(dtype_)), " elements)"));
  }

 private:
  /// Sizes of uneven parts: some are empty, one is much longer than the others.
  static int64_t uneven(int from, int to, int64_t count) {
    if ((from + 2 * to) % 3 == 1) return 0;
    return from == 1 && to == 0 ? 5 * count : count + from - to + 7;
  }
  static const Bytes& at(const std::vector<Bytes>& list, int i) { return list[static_cast<size_t>(i)]; }

  void run(Collective& c) const { run_(c); }
  Bytes reduction(int to, int64_t count) const {
    return bytes_of(dtype_, count, [&](int64_t i) {
      return reduced(size_, op_, dtype_, [&](int from) { return value(from + 2 * to, i, op_, dtype_); });
    });
  }

  const int rank_;
  const int size_;
  const DType dtype_;
  const ReduceOp op_;
  const Run run_;
};

}}}  // namespace tandem::v0::distributed
