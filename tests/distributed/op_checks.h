// Every collective in every form, against closed forms.
#pragma once

#include <gtest/gtest.h>

#include <functional>
#include <numeric>
#include <vector>

#include <tandem/distributed/process_group.h>
#include <tandem/tensor/chores.h>
#include <tandem/tensor/factories.h>
#include <tandem/tests/distributed/closed_form.h>

namespace tandem::inline v0::distributed {

inline constexpr double kUntouched = 1;

/// What rank `from` sends to rank `to`.
inline double sent(int from, int to, int64_t i, DType dtype) { return value(from + 2 * to, i, ReduceOp::kSum, dtype); }

/// How a test calls, and where its tensors are.
struct Form {
  bool async;
  bool strided;  // tensors are columns of wider ones
};
inline constexpr Form kForms[] = {{false, false}, {true, false}, {false, true}, {true, true}};

/// A tensor full of kUntouched.
inline Tensor room(const Shape& shape, DType dtype, bool strided) {
  if (!strided) return full(shape, kUntouched, {dtype});
  Shape wider = shape;
  wider.push_back(2);
  const Tensor both = full(wider, kUntouched, {dtype});
  Shape strides = row_major_strides(wider);
  strides.pop_back();
  return make_view(both.storage(), dtype, shape, strides, 0);
}

/// A tensor with f(i) at element i, counted in row-major order.
inline Tensor filled(const Shape& shape, DType dtype, bool strided, const std::function<double(int64_t)>& f) {
  std::vector<double> values;
  for (int64_t i = 0; i < num_elements(shape); ++i) values.push_back(f(i));
  const Tensor out = room(shape, dtype, strided);
  chores::copy(from_vector<double>(values, shape), out);
  return out;
}

/// One rank's part of a test of one dtype, size and form.
class OpChecks {
 public:
  OpChecks(ProcessGroup& group, DType dtype, int64_t n, Form form)
      : g_(group), rank_(group.rank()), world_(group.size()), dtype_(dtype), n_(n), form_(form) {}

  void all_reduce_into_another() {
    for (const ReduceOp op : reduce_ops_of(dtype_)) {
      const auto mine = [&](int64_t i) { return value(rank_, i, op, dtype_); };
      const Tensor in = filled({n_}, dtype_, form_.strided, mine);
      const Tensor out = room({n_}, dtype_, form_.strided);
      finish(
          form_.async, [&] { return g_.all_reduce_async(out, in, op); }, [&] { g_.all_reduce(out, in, op); });
      expect(
          out, [&](int64_t i) { return expected(world_, i, op, dtype_); }, "all_reduce");
      expect(in, mine, "input of all_reduce");
    }
  }

  void reduce() {
    for (const ReduceOp op : reduce_ops_of(dtype_)) {
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
    const Tensor out = rank_ == root ? room({world_, n_}, dtype_, form_.strided) : Tensor();
    finish(
        form_.async, [&] { return g_.gather_async(out, in, root); }, [&] { g_.gather(out, in, root); });
    if (rank_ == root) expect(out, stacked, "gather");

    const std::vector<Tensor> outs = rank_ == root ? rooms() : std::vector<Tensor>();
    finish(
        form_.async, [&] { return g_.gather_async(outs, in, root); }, [&] { g_.gather(outs, in, root); });
    for (size_t from = 0; from < outs.size(); ++from) {
      expect(
          outs[from], [&](int64_t i) { return sent(static_cast<int>(from), 0, i, dtype_); }, "gather of lists");
    }
    expect(in, mine, "input of gather");

    // The input may be its own part of the output.
    const Tensor all = rank_ == root ? full({world_, n_}, kUntouched, {dtype_}) : Tensor();
    const Tensor own = rank_ == root ? row(all, rank_) : in;
    if (rank_ == root) chores::copy(in, own);
    g_.gather(all, own, root);
    if (rank_ == root) expect(all, stacked, "gather in place");
  }

  void all_gather() {
    const auto mine = [&](int64_t i) { return sent(rank_, 0, i, dtype_); };
    const auto stacked = [&](int64_t i) { return sent(static_cast<int>(i / n_), 0, i % n_, dtype_); };
    const Tensor in = filled({n_}, dtype_, form_.strided, mine);
    const Tensor out = room({world_, n_}, dtype_, form_.strided);
    finish(
        form_.async, [&] { return g_.all_gather_async(out, in); }, [&] { g_.all_gather(out, in); });
    expect(out, stacked, "all_gather");

    const std::vector<Tensor> outs = rooms();
    finish(
        form_.async, [&] { return g_.all_gather_async(outs, in); }, [&] { g_.all_gather(outs, in); });
    for (int from = 0; from < world_; ++from) {
      expect(
          at(outs, from), [&](int64_t i) { return sent(from, 0, i, dtype_); }, "all_gather of lists");
    }
    expect(in, mine, "input of all_gather");

    const Tensor all = full({world_, n_}, kUntouched, {dtype_});
    chores::copy(in, row(all, rank_));
    g_.all_gather(all, row(all, rank_));
    expect(all, stacked, "all_gather in place");
  }

  void all_gather_of_unequal_sizes() {
    const auto size = [&](int from) { return from == 1 ? 0 : n_ + 3 * from; };
    std::vector<Tensor> outs;
    for (int from = 0; from < world_; ++from) outs.push_back(room({size(from), 2}, dtype_, form_.strided));
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
    const Tensor out = room({n_}, dtype_, form_.strided);
    finish(
        form_.async, [&] { return g_.scatter_async(out, in, root); }, [&] { g_.scatter(out, in, root); });
    expect(out, wanted, "scatter");

    const std::vector<Tensor> ins = rank_ == root ? parts_of(root) : std::vector<Tensor>();
    const Tensor second = room({n_}, dtype_, form_.strided);
    finish(
        form_.async, [&] { return g_.scatter_async(second, ins, root); }, [&] { g_.scatter(second, ins, root); });
    expect(second, wanted, "scatter of lists");
    if (rank_ == root) expect(in, all, "input of scatter");

    const Tensor third =
        rank_ == root ? row(filled({world_, n_}, dtype_, false, all), rank_) : room({n_}, dtype_, false);
    const Tensor rows = rank_ == root ? make_view(third.storage(), dtype_, {world_, n_}, {n_, 1}, 0) : Tensor();
    g_.scatter(third, rows, root);
    expect(third, wanted, "scatter in place");
  }

  void reduce_scatter() {
    for (const ReduceOp op : reduce_ops_of(dtype_)) {
      const auto mine = [&](int64_t i) { return value(rank_, i, op, dtype_); };
      const auto wanted = [&](int64_t i) { return expected(world_, rank_ * n_ + i, op, dtype_); };
      const Tensor in = filled({world_, n_}, dtype_, form_.strided, mine);
      const Tensor out = room({n_}, dtype_, form_.strided);
      finish(
          form_.async, [&] { return g_.reduce_scatter_async(out, in, op); }, [&] { g_.reduce_scatter(out, in, op); });
      expect(out, wanted, "reduce_scatter");

      std::vector<Tensor> ins;
      for (int to = 0; to < world_; ++to) {
        ins.push_back(filled({n_}, dtype_, form_.strided, [&](int64_t i) { return mine(to * n_ + i); }));
      }
      const Tensor second = room({n_}, dtype_, form_.strided);
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
    const Tensor out = room({world_, n_}, dtype_, form_.strided);
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
      outs.push_back(room({out_splits.back(), 3}, dtype_, form_.strided));
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
    const Tensor out = room({out_rows, 3}, dtype_, form_.strided);
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

 private:
  template <class Start, class Run>
  static void finish(bool async, const Start& start, const Run& run) {
    if (async) {
      start().wait();
    } else {
      run();
    }
  }

  static const Tensor& at(const std::vector<Tensor>& list, int i) { return list[static_cast<size_t>(i)]; }
  Tensor row(const Tensor& rows, int i) const { return make_view(rows.storage(), dtype_, {n_}, {1}, i * n_); }
  std::vector<Tensor> rooms() const {
    std::vector<Tensor> result;
    for (int i = 0; i < world_; ++i) result.push_back(room({n_}, dtype_, form_.strided));
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
        << what << " " << dtype_ << " n " << n_ << " world " << world_ << " rank " << rank_
        << (form_.async ? " async" : "") << (form_.strided ? " strided" : "");
    if (!form_.strided || tensor.is_contiguous()) return;
    // What lies between the columns is as it was.
    const Tensor between = make_view(tensor.storage(), dtype_, tensor.shape(), tensor.strides(), 1);
    EXPECT_EQ(count_wrong(between, [](int64_t) { return kUntouched; }), 0) << what << " beside";
  }

  ProcessGroup& g_;
  const int rank_;
  const int world_;
  const DType dtype_;
  const int64_t n_;
  const Form form_;
};

}  // namespace tandem::inline v0::distributed
