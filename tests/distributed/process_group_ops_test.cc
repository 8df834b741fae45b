// Every collective in every form, among threads, against closed forms.
#include <tandem/distributed/process_group.h>

#include <gtest/gtest.h>

#include <cmath>
#include <numeric>
#include <string>
#include <vector>

#include <tandem/base/trace.h>
#include <tandem/tensor/factories.h>
#include <tandem/tests/distributed/closed_form.h>
#include <tandem/tests/distributed/thread_ranks.h>
#include <tandem/tests/distributed/thrown.h>

namespace tandem::inline v0::distributed {
namespace {

// Chunks so small that tensors of a few hundred elements take many rounds.
constexpr shm::Tuning kTinyChunks{
    .slot_bytes = 64, .chunk_bytes = 128, .slots = 3, .small_bytes = 64, .piece_bytes = 64, .pieces = 2};

constexpr int64_t kSizes[] = {0, 1, 3, 31, 33, 500};
constexpr double kUntouched = 1;

/// What rank `from` sends to rank `to`.
double sent(int from, int to, int64_t i, DType dtype) { return value(from + 2 * to, i, ReduceOp::kSum, dtype); }

/// How a test calls, and where its tensors are.
struct Form {
  bool async;
  bool strided;  // tensors are columns of wider ones
};
constexpr Form kForms[] = {{false, false}, {true, false}, {false, true}, {true, true}};

/// A tensor full of kUntouched.
Tensor room(const Shape& shape, DType dtype, bool strided) {
  if (!strided) return full(shape, kUntouched, {dtype});
  Shape wider = shape;
  wider.push_back(2);
  const Tensor both = full(wider, kUntouched, {dtype});
  Shape strides = row_major_strides(wider);
  strides.pop_back();
  return make_view(both.storage(), dtype, shape, strides, 0);
}

/// A tensor with f(i) at element i, counted in row-major order.
Tensor filled(const Shape& shape, DType dtype, bool strided, const std::function<double(int64_t)>& f) {
  std::vector<double> values;
  for (int64_t i = 0; i < num_elements(shape); ++i) values.push_back(f(i));
  const Tensor out = room(shape, dtype, strided);
  chores::copy(from_vector<double>(values, shape), out);
  return out;
}

/// One rank's part of a test of one dtype, size and form.
class Check {
 public:
  Check(ProcessGroup& group, DType dtype, int64_t n, Form form)
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

class Worlds : public ::testing::TestWithParam<Setting> {
 protected:
  static ThreadRanks make_ranks() {
    const auto& [world_size, backend, hosts] = GetParam();
    return {.world_size = world_size, .tuning = kTinyChunks, .backend = backend, .hosts = hosts};
  }
  void run(const std::function<void(Check&)>& f) {
    make_ranks().run([&](ProcessGroup& group) {
      for (const int64_t n : kSizes) {
        for (const Form form : kForms) {
          Check check(group, kFloat32, n, form);
          f(check);
        }
      }
      for (const DType dtype : kDTypes) {
        Check check(group, dtype, 37, {false, dtype == kInt64});
        f(check);
      }
    });
  }
  void run_for_roots(const std::function<void(Check&, int root)>& f) {
    run([&](Check& check) {
      for (int root = 0; root < GetParam().world_size; root += 2) f(check, root);
    });
  }
};
INSTANTIATE_TEST_SUITE_P(Each, Worlds,
                         ::testing::Values(Setting{1}, Setting{2}, Setting{3}, Setting{4}, Setting{7},
                                           Setting{1, "gloo"}, Setting{2, "gloo"}, Setting{3, "gloo"},
                                           Setting{4, "gloo"}, Setting{7, "gloo"},
                                           Setting{4, "auto", "aabb"}, Setting{3, "auto", "aba"}),
                         setting_name);

TEST_P(Worlds, AllReduceIntoAnother) {
  run([](Check& check) { check.all_reduce_into_another(); });
}
TEST_P(Worlds, Reduce) {
  run([](Check& check) { check.reduce(); });
}
TEST_P(Worlds, Broadcast) {
  run_for_roots([](Check& check, int root) { check.broadcast(root); });
}
TEST_P(Worlds, Gather) {
  run_for_roots([](Check& check, int root) { check.gather(root); });
}
TEST_P(Worlds, AllGather) {
  run([](Check& check) { check.all_gather(); });
}
TEST_P(Worlds, AllGatherOfUnequalSizes) {
  run([](Check& check) { check.all_gather_of_unequal_sizes(); });
}
TEST_P(Worlds, Scatter) {
  run_for_roots([](Check& check, int root) { check.scatter(root); });
}
TEST_P(Worlds, ReduceScatter) {
  run([](Check& check) { check.reduce_scatter(); });
}
TEST_P(Worlds, AllToAll) {
  run([](Check& check) { check.all_to_all(); });
}
TEST_P(Worlds, AllToAllOfUnequalSizes) {
  run([](Check& check) { check.all_to_all_of_unequal_sizes(); });
}
TEST_P(Worlds, Barrier) {
  run([](Check& check) { check.barrier(); });
}

TEST_P(Worlds, ZeroDimensionalTensors) {
  make_ranks().run([](ProcessGroup& g) {
    const int world = g.size();
    const double sum = world * (world + 1) / 2.0;
    const Tensor x = full({}, g.rank() + 1);
    g.all_reduce(x);
    EXPECT_EQ(x.item(), sum);
    const Tensor own = full({}, g.rank() + 1);
    const Tensor all = zeros({world});
    g.all_gather(all, own);
    EXPECT_EQ(count_wrong(all, [](int64_t i) { return static_cast<double>(i + 1); }), 0);
    g.scatter(own, g.rank() == 0 ? all : Tensor(), 0);
    EXPECT_EQ(own.item(), g.rank() + 1);
    g.reduce_scatter(own, all);
    EXPECT_EQ(own.item(), world * (g.rank() + 1));
    const std::vector<Tensor> none;
    const std::vector<Tensor> outs(1, full({}, 0));
    if (world == 1) g.gather(outs, own, 0);
  });
}

// --- lists of tensors ---

std::vector<Tensor> mixed_list(int rank) {
  std::vector<Tensor> list;
  for (const DType dtype : {kFloat32, kInt32, kFloat32, kFloat16, kInt32}) {
    const auto n = static_cast<int64_t>(list.size());
    list.push_back(
        filled({n, 7}, dtype, n % 2 == 1, [&](int64_t i) { return sent(rank, static_cast<int>(n), i, dtype); }));
  }
  return list;
}

TEST_P(Worlds, CoalescedFormsAreTheSameAsOneByOne) {
  for (const bool async : {false, true}) {
    make_ranks().run([&](ProcessGroup& g) {
      const int world = g.size();
      const std::vector<Tensor> summed = mixed_list(g.rank());
      const std::vector<Tensor> spread = mixed_list(g.rank());
      const std::vector<Tensor> inputs = mixed_list(g.rank());
      std::vector<Tensor> gathered;
      std::vector<Tensor> stacks;
      std::vector<Tensor> scattered;
      for (const Tensor& input : inputs) {
        Shape stacked = input.shape();
        stacked.insert(0, world);
        gathered.push_back(room(stacked, input.dtype(), !input.is_contiguous()));
        stacks.push_back(filled(stacked, input.dtype(), input.is_contiguous(),
                                [&](int64_t i) { return value(g.rank(), i, ReduceOp::kMax, input.dtype()); }));
        scattered.push_back(room(input.shape(), input.dtype(), !input.is_contiguous()));
      }
      const int root = world - 1;
      if (async) {
        const Work works[] = {g.all_reduce_coalesced_async(summed), g.broadcast_coalesced_async(spread, root),
                              g.all_gather_coalesced_async(gathered, inputs),
                              g.reduce_scatter_coalesced_async(scattered, stacks, ReduceOp::kMax)};
        for (const Work& work : works) work.wait();
      } else {
        g.all_reduce_coalesced(summed);
        g.broadcast_coalesced(spread, root);
        g.all_gather_coalesced(gathered, inputs);
        g.reduce_scatter_coalesced(scattered, stacks, ReduceOp::kMax);
      }
      for (size_t k = 0; k < inputs.size(); ++k) {
        const int to = static_cast<int>(k);
        const DType dtype = inputs[k].dtype();
        const int64_t n = inputs[k].num_elements();
        EXPECT_EQ(count_wrong(summed[k],
                              [&](int64_t i) {
                                return reduced(world, ReduceOp::kSum, dtype,
                                               [&](int r) { return sent(r, to, i, dtype); });
                              }),
                  0);
        EXPECT_EQ(count_wrong(spread[k], [&](int64_t i) { return sent(root, to, i, dtype); }), 0);
        EXPECT_EQ(count_wrong(gathered[k], [&](int64_t i) { return sent(static_cast<int>(i / n), to, i % n, dtype); }),
                  0);
        EXPECT_EQ(count_wrong(scattered[k],
                              [&](int64_t i) { return expected(world, g.rank() * n + i, ReduceOp::kMax, dtype); }),
                  0);
        EXPECT_EQ(summed[k].version(), 1u);
        EXPECT_EQ(inputs[k].version(), 0u);
      }
      g.all_reduce_coalesced({});
      g.all_reduce_coalesced_async({}).wait();
    });
  }
}

TEST(Coalesced, OneOperationForEachDtype) {
  start_trace();
  ThreadRanks ranks{.world_size = 2};
  ranks.run([](ProcessGroup& g) { g.all_reduce_coalesced(mixed_list(g.rank()), ReduceOp::kSum, {.name = "grads"}); });
  int count = 0;
  for (const TraceEvent& event : stop_trace()) {
    if (event.category != "comm") continue;
    EXPECT_EQ(event.name, "grads, 5 tensors");
    ++count;
  }
  EXPECT_EQ(count, 2 * 3);
}

// --- means ---

TEST_P(Worlds, ReduceMeanWeighsValues) {
  make_ranks().run([](ProcessGroup& g) {
    double sum = 0;
    double weights = 0;
    for (int r = 0; r < g.size(); ++r) {
      sum += (r + 0.5) * (r + 1);
      weights += r + 1;
    }
    EXPECT_DOUBLE_EQ(g.reduce_mean(g.rank() + 0.5, g.rank() + 1), sum / weights);
    EXPECT_DOUBLE_EQ(g.reduce_mean(g.rank()), (g.size() - 1) / 2.0);
    // What counts for nothing may be anything.
    EXPECT_EQ(g.reduce_mean(g.rank() == 0 ? 3 : std::nan(""), g.rank() == 0), 3);
    EXPECT_TRUE(std::isnan(g.reduce_mean(1, 0)));
  });
}

TEST_P(Worlds, ReduceMeanOfTensors) {
  make_ranks().run([](ProcessGroup& g) {
    const double mean = (g.size() - 1) / 2.0;
    for (const DType dtype : kDTypes) {
      const Tensor x =
          filled({2, 3}, dtype, true, [&](int64_t i) { return dtype == kBool ? g.rank() % 2 : i + g.rank(); });
      const Tensor y = g.reduce_mean(x);
      EXPECT_EQ(y.dtype(), is_floating_point(dtype) ? dtype : kFloat64);
      EXPECT_EQ(y.shape(), (Shape{2, 3}));
      EXPECT_EQ(count_wrong(y,
                            [&](int64_t i) {
                              if (dtype == kBool) return static_cast<double>(g.size() / 2) / g.size();
                              return stored(static_cast<double>(i) + mean, dtype);
                            }),
                0)
          << dtype;
      EXPECT_EQ(x.version(), 0u);
    }
  });
}

TEST(ReduceMean, RefusesWeightsThatAreNone) {
  ThreadRanks ranks{.world_size = 1};
  ranks.run([](ProcessGroup& g) {
    EXPECT_EQ(text_of<ValueError>([&] { g.reduce_mean(1, -2); }),
              "reduce_mean: weight -2 is not a finite number of 0 or more");
    EXPECT_EQ(text_of<StateError>([&] { g.reduce_mean(Tensor()); }), "reduce_mean: tensor is undefined");
  });
}

}  // namespace
}  // namespace tandem::inline v0::distributed
