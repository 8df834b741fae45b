// Every operation in every form, against closed forms.
#pragma once

#include <gtest/gtest.h>

#include <functional>
#include <numeric>
#include <vector>

#include <tandem/distributed/process_group.h>
#include <tandem/tensor/factories.h>
#include <tandem/tensor/primitives.h>
#include <tandem/tests/distributed/closed_form.h>

namespace tandem { inline namespace v0 { namespace distributed {

inline constexpr double kUntouched = 1;

/// What rank `from` sends to rank `to`.
inline double sent(int from, int to, int64_t i, DType dtype) { return value(from + 2 * to, i, ReduceOp::kSum, dtype); }

/// Form of the calls, and device of the tensors.
struct Form {
  bool async;
  bool strided;  // tensors are columns of wider tensors
};
inline constexpr Form kForms[] = {{false, false}, {true, false}, {false, true}, {true, true}};

/// A tensor full of kUntouched.
inline Tensor untouched(const Shape& shape, DType dtype, bool strided, Device device = {}) {
  if (!strided) return full(shape, kUntouched, {dtype, device});
  Shape wider = shape;
  wider.push_back(2);
  const Tensor both = full(wider, kUntouched, {dtype, device});
  Shape strides = row_major_strides(wider);
  strides.pop_back();
  return make_view(both.storage(), dtype, shape, strides, 0);
}

/// A tensor with f(i) at element i, counted in row-major order.
inline Tensor filled(const Shape& shape, DType dtype, bool strided, const std::function<double(int64_t)>& f,
                     Device device = {}) {
  std::vector<double> values;
  for (int64_t i = 0; i < num_elements(shape); ++i) values.push_back(f(i));
  const Tensor out = untouched(shape, dtype, strided, device);
  const Tensor on_cpu = empty(shape, {dtype});
  primitives::copy(from_vector<double>(values, shape), on_cpu);
  primitives::copy(on_cpu, out);
  return out;
}

/// One rank of a test of one dtype, size and form.
class OpChecks {
 public:
  OpChecks(ProcessGroup& group, DType dtype, int64_t n, Form form, Device device = {})
      : g_(group), rank_(group.rank()), world_(group.size()), dtype_(dtype), n_(n), form_(form), device_(device) {}

  /// Every operation, except messages with CUDA tensors.
  void all() {
    all_reduce_into_another();
    reduce();
    all_gather();
    all_gather_of_unequal_sizes();
    reduce_scatter();
    all_to_all();
    all_to_all_of_unequal_sizes();
    barrier();
    for (int root = 0; root < world_; ++root) {
      broadcast(root);
      gather(root);
      scatter(root);
    }
    if (!is_walked_whole(dtype_)) return;
    broadcast_coalesced(world_ - 1);
    all_gather_coalesced();
    if (reduce_ops().empty()) return;  // int16 with NCCL
    all_reduce_coalesced();
    reduce_scatter_coalesced();
    reduce_mean();
    if (!device_.is_cpu()) return;
    send_and_recv();
    batch_of_messages();
  }

  void all_reduce_into_another() {
    for (const ReduceOp op : reduce_ops()) {
      const auto mine = [&](int64_t i) { return value(rank_, i, op, dtype_); };
      const Tensor in = filled({n_}, dtype_, form_.strided, mine);
      const Tensor out = untouched({n_}, dtype_, form_.strided);
      finish(
          form_.async, [&] { return g_.all_reduce_async(out, in, op); }, [&] { g_.all_reduce(out, in, op); });
      expect(
          out, [&](int64_t i) { return expected(world_, i, op, dtype_); }, "all_reduce");
      expect(in, mine, "input of all_reduce");
    }
  }

  void reduce() {
    for (const ReduceOp op : reduce_ops()) {
      const int root = static_cast<int>(op) % world_;
      const auto mine = [&](int64_t i) { return value(rank_, i, op, dtype_); };
      const Tensor x = filled({n_}, dtype_, form_.strided, mine);
      finish(
          form_.async, [&] { return g_.reduce_async(x, root, op); }, [&] { g_.reduce(x, root, op); });
      if (rank_ == root) {
        expect(
            x, [&](int64_t i) { return expected(world_, i, op, dtype_); }, "reduce");
        EXPECT_EQ(x.version(), 1u);
      } else {
        expect(x, mine, "reduce elsewhere");
        EXPECT_EQ(x.version(), 0u);
      }
    }
  }

  void broadcast(int root) {
    const Tensor x = filled({n_}, dtype_, form_.strided, [&](int64_t i) { return sent(rank_, 0, i, dtype_); });
    finish(
        form_.async, [&] { return g_.broadcast_async(x, root); }, [&] { g_.broadcast(x, root); });
    expect(
        x, [&](int64_t i) { return sent(root, 0, i, dtype_); }, "broadcast");
  }

  void gather(int root) {
    const auto mine = [&](int64_t i) { return sent(rank_, 0, i, dtype_); };
    const auto stacked = [&](int64_t i) { return sent(static_cast<int>(i / n_), 0, i % n_, dtype_); };
    const Tensor in = filled({n_}, dtype_, form_.strided, mine);
    const Tensor out = rank_ == root ? untouched({world_, n_}, dtype_, form_.strided) : Tensor();
    finish(
        form_.async, [&] { return g_.gather_async(out, in, root); }, [&] { g_.gather(out, in, root); });
    if (rank_ == root) expect(out, stacked, "gather");

    const std::vector<Tensor> outs = rank_ == root ? untouched_rows() : std::vector<Tensor>();
    finish(
        form_.async, [&] { return g_.gather_async(outs, in, root); }, [&] { g_.gather(outs, in, root); });
    for (size_t from = 0; from < outs.size(); ++from) {
      expect(
          outs[from], [&](int64_t i) { return sent(static_cast<int>(from), 0, i, dtype_); }, "gather of lists");
    }
    expect(in, mine, "input of gather");

    // The input may be this rank's part of the output.
    const Tensor all = rank_ == root ? untouched({world_, n_}, dtype_, false) : Tensor();
    const Tensor own = rank_ == root ? row(all, rank_) : in;
    if (rank_ == root) primitives::copy(in, own);
    g_.gather(all, own, root);
    if (rank_ == root) expect(all, stacked, "gather in place");
  }

  void all_gather() {
    const auto mine = [&](int64_t i) { return sent(rank_, 0, i, dtype_); };
    const auto stacked = [&](int64_t i) { return sent(static_cast<int>(i / n_), 0, i % n_, dtype_); };
    const Tensor in = filled({n_}, dtype_, form_.strided, mine);
    const Tensor out = untouched({world_, n_}, dtype_, form_.strided);
    finish(
        form_.async, [&] { return g_.all_gather_async(out, in); }, [&] { g_.all_gather(out, in); });
    expect(out, stacked, "all_gather");

    const std::vector<Tensor> outs = untouched_rows();
    finish(
        form_.async, [&] { return g_.all_gather_async(outs, in); }, [&] { g_.all_gather(outs, in); });
    for (int from = 0; from < world_; ++from) {
      expect(
          at(outs, from), [&](int64_t i) { return sent(from, 0, i, dtype_); }, "all_gather of lists");
    }
    expect(in, mine, "input of all_gather");

    const Tensor all = untouched({world_, n_}, dtype_, false);
    primitives::copy(in, row(all, rank_));
    g_.all_gather(all, row(all, rank_));
    expect(all, stacked, "all_gather in place");
  }

  void all_gather_of_unequal_sizes() {
    const auto size = [&](int from) { return from == 1 ? 0 : n_ + 3 * from; };
    std::vector<Tensor> outs;
    for (int from = 0; from < world_; ++from) outs.push_back(untouched({size(from), 2}, dtype_, form_.strided));
    const Tensor in =
        filled({size(rank_), 2}, dtype_, form_.strided, [&](int64_t i) { return sent(rank_, 0, i, dtype_); });
    finish(
        form_.async, [&] { return g_.all_gather_async(outs, in); }, [&] { g_.all_gather(outs, in); });
    for (int from = 0; from < world_; ++from) {
      expect(
          at(outs, from), [&](int64_t i) { return sent(from, 0, i, dtype_); }, "all_gather of unequal sizes");
    }
  }

  void scatter(int root) {
    const auto wanted = [&](int64_t i) { return sent(root, rank_, i, dtype_); };
    const auto all = [&](int64_t i) { return sent(root, static_cast<int>(i / n_), i % n_, dtype_); };
    const Tensor in = rank_ == root ? filled({world_, n_}, dtype_, form_.strided, all) : Tensor();
    const Tensor out = untouched({n_}, dtype_, form_.strided);
    finish(
        form_.async, [&] { return g_.scatter_async(out, in, root); }, [&] { g_.scatter(out, in, root); });
    expect(out, wanted, "scatter");

    const std::vector<Tensor> ins = rank_ == root ? parts_of(root) : std::vector<Tensor>();
    const Tensor second = untouched({n_}, dtype_, form_.strided);
    finish(
        form_.async, [&] { return g_.scatter_async(second, ins, root); }, [&] { g_.scatter(second, ins, root); });
    expect(second, wanted, "scatter of lists");
    if (rank_ == root) expect(in, all, "input of scatter");

    const Tensor third =
        rank_ == root ? row(filled({world_, n_}, dtype_, false, all), rank_) : untouched({n_}, dtype_, false);
    const Tensor rows = rank_ == root ? make_view(third.storage(), dtype_, {world_, n_}, {n_, 1}, 0) : Tensor();
    g_.scatter(third, rows, root);
    expect(third, wanted, "scatter in place");
  }

  void reduce_scatter() {
    for (const ReduceOp op : reduce_ops()) {
      const auto mine = [&](int64_t i) { return value(rank_, i, op, dtype_); };
      const auto wanted = [&](int64_t i) { return expected(world_, rank_ * n_ + i, op, dtype_); };
      const Tensor in = filled({world_, n_}, dtype_, form_.strided, mine);
      const Tensor out = untouched({n_}, dtype_, form_.strided);
      finish(
          form_.async, [&] { return g_.reduce_scatter_async(out, in, op); }, [&] { g_.reduce_scatter(out, in, op); });
      expect(out, wanted, "reduce_scatter");

      std::vector<Tensor> ins;
      for (int to = 0; to < world_; ++to) {
        ins.push_back(filled({n_}, dtype_, form_.strided, [&](int64_t i) { return mine(to * n_ + i); }));
      }
      const Tensor second = untouched({n_}, dtype_, form_.strided);
      finish(
          form_.async, [&] { return g_.reduce_scatter_async(second, ins, op); },
          [&] { g_.reduce_scatter(second, ins, op); });
      expect(second, wanted, "reduce_scatter of lists");
      expect(in, mine, "input of reduce_scatter");

      const Tensor all = filled({world_, n_}, dtype_, false, mine);
      g_.reduce_scatter(row(all, rank_), all, op);
      expect(row(all, rank_), wanted, "reduce_scatter in place");
    }
  }

  void all_to_all() {
    const auto mine = [&](int64_t i) { return sent(rank_, static_cast<int>(i / n_), i % n_, dtype_); };
    const Tensor in = filled({world_, n_}, dtype_, form_.strided, mine);
    const Tensor out = untouched({world_, n_}, dtype_, form_.strided);
    finish(
        form_.async, [&] { return g_.all_to_all_async(out, in); }, [&] { g_.all_to_all(out, in); });
    expect(
        out, [&](int64_t i) { return sent(static_cast<int>(i / n_), rank_, i % n_, dtype_); }, "all_to_all");
    expect(in, mine, "input of all_to_all");
  }

  void all_to_all_of_unequal_sizes() {
    const auto rows = [&](int from, int to) { return (from + 2 * to) % 3 == 1 ? 0 : n_ / 4 + from + 2 * to; };
    std::vector<Tensor> ins;
    std::vector<Tensor> outs;
    std::vector<int64_t> in_splits;
    std::vector<int64_t> out_splits;
    std::vector<double> in_values;
    std::vector<double> out_values;
    for (int peer = 0; peer < world_; ++peer) {
      const auto to_peer = [&](int64_t i) { return sent(rank_, peer, i, dtype_); };
      in_splits.push_back(rows(rank_, peer));
      out_splits.push_back(rows(peer, rank_));
      ins.push_back(filled({in_splits.back(), 3}, dtype_, form_.strided, to_peer));
      outs.push_back(untouched({out_splits.back(), 3}, dtype_, form_.strided));
      for (int64_t i = 0; i < 3 * in_splits.back(); ++i) in_values.push_back(to_peer(i));
      for (int64_t i = 0; i < 3 * out_splits.back(); ++i) out_values.push_back(sent(peer, rank_, i, dtype_));
    }
    finish(
        form_.async, [&] { return g_.all_to_all_async(outs, ins); }, [&] { g_.all_to_all(outs, ins); });
    for (int from = 0; from < world_; ++from) {
      expect(
          at(outs, from), [&](int64_t i) { return sent(from, rank_, i, dtype_); }, "all_to_all of lists");
    }
    const int64_t in_rows = std::accumulate(in_splits.begin(), in_splits.end(), int64_t{0});
    const int64_t out_rows = std::accumulate(out_splits.begin(), out_splits.end(), int64_t{0});
    const Tensor in =
        filled({in_rows, 3}, dtype_, form_.strided, [&](int64_t i) { return in_values[static_cast<size_t>(i)]; });
    const Tensor out = untouched({out_rows, 3}, dtype_, form_.strided);
    finish(
        form_.async, [&] { return g_.all_to_all_async(out, in, out_splits, in_splits); },
        [&] { g_.all_to_all(out, in, out_splits, in_splits); });
    expect(
        out, [&](int64_t i) { return out_values[static_cast<size_t>(i)]; }, "all_to_all of splits");
  }

  void barrier() {
    finish(
        form_.async, [&] { return g_.barrier_async(); }, [&] { g_.barrier(); });
  }

  // --- lists ---

  void all_reduce_coalesced() {
    std::vector<Tensor> list;
    for (const auto& [dtype, n] : parts()) {
      list.push_back(
          filled({n}, dtype, form_.strided, [&](int64_t i) { return value(rank_, i, ReduceOp::kSum, dtype); }));
    }
    finish(
        form_.async, [&] { return g_.all_reduce_coalesced_async(list); }, [&] { g_.all_reduce_coalesced(list); });
    for (const Tensor& x : list) {
      expect(
          x, [&](int64_t i) { return expected(world_, i, ReduceOp::kSum, x.dtype()); }, "all_reduce_coalesced");
    }
  }

  void broadcast_coalesced(int root) {
    std::vector<Tensor> list;
    for (const auto& [dtype, n] : parts()) list.push_back(filled({n}, dtype, form_.strided, sent_to(0, dtype)));
    finish(
        form_.async, [&] { return g_.broadcast_coalesced_async(list, root); },
        [&] { g_.broadcast_coalesced(list, root); });
    for (const Tensor& x : list) {
      expect(
          x, [&](int64_t i) { return sent(root, 0, i, x.dtype()); }, "broadcast_coalesced");
    }
  }

  void all_gather_coalesced() {
    std::vector<Tensor> ins;
    std::vector<Tensor> outs;
    for (const auto& [dtype, n] : parts()) {
      ins.push_back(filled({n}, dtype, form_.strided, sent_to(0, dtype)));
      outs.push_back(untouched({world_, n}, dtype, form_.strided));
    }
    finish(
        form_.async, [&] { return g_.all_gather_coalesced_async(outs, ins); },
        [&] { g_.all_gather_coalesced(outs, ins); });
    for (const Tensor& x : outs) {
      const int64_t n = x.size(1);
      expect(
          x, [&](int64_t i) { return sent(static_cast<int>(i / n), 0, i % n, x.dtype()); }, "all_gather_coalesced");
    }
  }

  void reduce_scatter_coalesced() {
    std::vector<Tensor> ins;
    std::vector<Tensor> outs;
    for (const auto& [dtype, n] : parts()) {
      ins.push_back(
          filled({world_, n}, dtype, form_.strided, [&](int64_t i) { return value(rank_, i, ReduceOp::kSum, dtype); }));
      outs.push_back(untouched({n}, dtype, form_.strided));
    }
    finish(
        form_.async, [&] { return g_.reduce_scatter_coalesced_async(outs, ins); },
        [&] { g_.reduce_scatter_coalesced(outs, ins); });
    for (const Tensor& x : outs) {
      const int64_t first = rank_ * x.size(0);
      expect(
          x, [&](int64_t i) { return expected(world_, first + i, ReduceOp::kSum, x.dtype()); },
          "reduce_scatter_coalesced");
    }
  }

  // --- means ---

  void reduce_mean() {
    double sum = 0;
    double weights = 0;
    for (int rank = 0; rank < world_; ++rank) {
      sum += (rank + 3) * (rank + 1);
      weights += rank + 1;
    }
    EXPECT_DOUBLE_EQ(g_.reduce_mean(rank_ + 3, rank_ + 1), sum / weights);
    const auto of_rank = [&](int rank, int64_t i) { return value(rank, i, ReduceOp::kSum, dtype_); };
    const auto mine = [&](int64_t i) { return of_rank(rank_, i); };
    const Tensor in = filled({n_}, dtype_, form_.strided, mine);
    const Tensor mean = g_.reduce_mean(in);
    const DType dtype = is_floating_point(dtype_) ? dtype_ : kFloat64;
    EXPECT_EQ(mean.dtype(), dtype);
    expect(
        mean,
        [&](int64_t i) { return reduced(world_, ReduceOp::kAvg, dtype, [&](int rank) { return of_rank(rank, i); }); },
        "reduce_mean");
    expect(in, mine, "input of reduce_mean");
  }

  // --- messages ---

  /// Around a ring.
  void send_and_recv() {
    const int next = (rank_ + 1) % world_;
    const int previous = (rank_ + world_ - 1) % world_;
    const Tensor out = filled({n_}, dtype_, form_.strided, sent_to(next, dtype_));
    const Tensor in = untouched({n_}, dtype_, form_.strided);
    if (form_.async) {
      const Work receives = g_.irecv(in, previous, 3);
      g_.isend(out, next, 3).wait();
      receives.wait();
    } else if (rank_ % 2 == 0) {
      g_.send(out, next, 3);
      g_.recv(in, previous, 3);
    } else {
      g_.recv(in, previous, 3);
      g_.send(out, next, 3);
    }
    expect(
        in, [&](int64_t i) { return sent(previous, rank_, i, dtype_); }, "recv");
    expect(out, sent_to(next, dtype_), "what was sent");
  }

  /// Between all pairs concurrently; the size depends on the receiver's rank.
  void batch_of_messages() {
    std::vector<P2POp> ops;
    for (int k = 1; k < world_; ++k) {
      const int to = (rank_ + k) % world_;
      const int from = (rank_ + world_ - k) % world_;
      ops.push_back({P2POp::Kind::kSend, filled({n_ + to}, dtype_, form_.strided, sent_to(to, dtype_)), to, 5});
      ops.push_back({P2POp::Kind::kRecv, untouched({n_ + rank_}, dtype_, form_.strided), from, 5});
    }
    for (const Work& work : g_.batch_isend_irecv(ops)) work.wait();
    for (const P2POp& op : ops) {
      const bool sends = op.kind == P2POp::Kind::kSend;
      expect(
          op.tensor,
          [&](int64_t i) { return sends ? sent(rank_, op.peer, i, dtype_) : sent(op.peer, rank_, i, dtype_); },
          sends ? "sent by a batch" : "received by a batch");
    }
  }

 private:
  template <class Start, class Run>
  static void finish(bool async, const Start& start, const Run& run) {
    if (async) {
      start().wait();
    } else {
      run();
    }
  }

  /// Operators supported by NCCL, for CUDA tensors.
  std::vector<ReduceOp> reduce_ops() const {
    std::vector<ReduceOp> ops = reduce_ops_of(dtype_);
    std::erase_if(ops, [&](ReduceOp op) {
      const bool lacks = op >= ReduceOp::kBitAnd && (dtype_ != kBool || op == ReduceOp::kBitXor);
      return !device_.is_cpu() && (dtype_ == kInt16 || lacks);
    });
    return ops;
  }
  Tensor untouched(const Shape& shape, DType dtype, bool strided) const {
    return distributed::untouched(shape, dtype, strided, device_);
  }
  Tensor filled(const Shape& shape, DType dtype, bool strided, const std::function<double(int64_t)>& f) const {
    return distributed::filled(shape, dtype, strided, f, device_);
  }

  struct ListPart {
    DType dtype;
    int64_t n;
  };
  /// Lists of the coalesced forms: two alternating dtypes.
  std::vector<ListPart> parts() const { return {{dtype_, n_}, {kInt32, 3}, {dtype_, n_ / 2 + 1}}; }
  std::function<double(int64_t)> sent_to(int to, DType dtype) const {
    return [from = rank_, to, dtype](int64_t i) { return sent(from, to, i, dtype); };
  }
  static const Tensor& at(const std::vector<Tensor>& list, int i) { return list[static_cast<size_t>(i)]; }
  Tensor row(const Tensor& rows, int i) const { return make_view(rows.storage(), dtype_, {n_}, {1}, i * n_); }
  std::vector<Tensor> untouched_rows() const {
    std::vector<Tensor> result;
    for (int i = 0; i < world_; ++i) result.push_back(untouched({n_}, dtype_, form_.strided));
    return result;
  }
  std::vector<Tensor> parts_of(int from) const {
    std::vector<Tensor> result;
    for (int to = 0; to < world_; ++to) {
      result.push_back(filled({n_}, dtype_, form_.strided, [&](int64_t i) { return sent(from, to, i, dtype_); }));
    }
    return result;
  }

  void expect(const Tensor& tensor, const std::function<double(int64_t)>& want, const char* what) const {
    EXPECT_EQ(count_wrong(tensor, want), 0)
        << what << " " << tensor.dtype() << " n " << n_ << " world " << world_ << " rank " << rank_
        << (form_.async ? " async" : "") << (form_.strided ? " strided" : "");
    if (!form_.strided || tensor.is_contiguous()) return;
    // Elements between the columns are unchanged.
    const Tensor between = make_view(tensor.storage(), tensor.dtype(), tensor.shape(), tensor.strides(), 1);
    EXPECT_EQ(count_wrong(between, [](int64_t) { return kUntouched; }), 0) << what << " beside";
  }

  ProcessGroup& g_;
  const int rank_;
  const int world_;
  const DType dtype_;
  const int64_t n_;
  const Form form_;
  const Device device_;
};

}}}  // namespace tandem::v0::distributed
