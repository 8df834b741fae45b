#include <algorithm>
#include <cmath>
#include <limits>
#include <utility>

#include <tandem/base/error.h>
#include <tandem/distributed/gradient_hooks.h>
#include <tandem/distributed/low_rank.h>
#include <tandem/tensor/chores.h>
#include <tandem/tensor/dtype.h>
#include <tandem/tensor/factories.h>
#include <tandem/tensor/generator.h>

namespace tandem::inline v0::distributed {

namespace {

/// A parameter that is compressed.  Factors hold their columns one after the other, in the type of sums.
struct Matrix {
  GradientPiece piece;
  int64_t rows = 0;
  int64_t cols = 0;
  int64_t rank = 0;
  Tensor error;       ///< [rows, cols]; between the exchanges gradient + error
  Tensor q;           ///< [rank, cols]
  Tensor p;           ///< [rank, rows]; of the running step
  int64_t draws = 0;  ///< of columns of q
};

/// What the hook keeps of a bucket: only its own callbacks touch it.
struct BucketMemory {
  int64_t steps = 0;
  std::vector<Matrix> matrices;
  std::vector<Tensor> rest;  ///< views of what is sent as it is
  int64_t p_elements = 0;    ///< of all matrices' factors
  int64_t q_elements = 0;
  int64_t rest_elements = 0;
  Tensor sent;  ///< of the running exchange
};

DType sum_dtype(DType dtype) { return dtype == kFloat64 ? kFloat64 : kFloat32; }

/// The n elements of a flat tensor from `begin` on.
Tensor part(const Tensor& flat, int64_t begin, int64_t n) { return flat.slice(0, begin, begin + n); }

template <class A>
bool all_finite(const Tensor& tensor) {
  const A* values = tensor.data<A>();
  bool finite = true;
  for (int64_t i = 0; i < tensor.num_elements(); ++i) finite = finite && std::isfinite(values[i]);
  return finite;
}

class PowerSgd final : public GradientHook {
 public:
  explicit PowerSgd(const PowerSgdOptions& options) : options_(options) {
    TANDEM_CHECK(ValueError, options.rank >= 1, "power_sgd: rank ", options.rank, " is less than 1");
    TANDEM_CHECK(ValueError, options.start_step >= 0, "power_sgd: start_step ", options.start_step, " is negative");
    TANDEM_CHECK(ValueError, options.min_saving >= 1, "power_sgd: min_saving ", options.min_saving, " is less than 1");
  }

  std::string describe() const override {
    return str("power_sgd(rank ", options_.rank, ", from step ", options_.start_step, ", saving ", options_.min_saving,
               ", seed ", options_.seed, ")");
  }
  bool needs_pieces() const override { return true; }

  void prepare(const std::vector<GradientBucket>& buckets) override {
    TANDEM_CHECK(StateError, buckets_.empty(), "power_sgd: this hook belongs to another reducer");
    buckets_.resize(buckets.size());
    for (size_t i = 0; i < buckets.size(); ++i) {
      for (const GradientPiece& piece : buckets[i].pieces) place(piece, buckets_[i]);
    }
  }

  int num_exchanges(const GradientBucket& bucket) const override {
    return compresses(buckets_[static_cast<size_t>(bucket.index)]) ? 2 : 1;
  }

  void average(const GradientBucket& bucket, const Exchange& next, std::function<void()> done) override {
    BucketMemory& memory = buckets_[static_cast<size_t>(bucket.index)];
    const bool plain = !compresses(memory);
    ++memory.steps;
    if (plain) return next(bucket.values, std::move(done));
    visit_floating_dtype(bucket.values.dtype(), [&]<class T>() { send_p<T>(memory); });
    next(memory.sent, [this, &memory, &bucket, next, done = std::move(done)]() mutable {
      visit_floating_dtype(bucket.values.dtype(), [&]<class T>() { send_q<T>(memory); });
      next(memory.sent, [this, &memory, &bucket, done = std::move(done)] {
        visit_floating_dtype(bucket.values.dtype(), [&]<class T>() { deliver<T>(memory); });
        done();
      });
    });
  }

  State state_dict() const override {
    State state;
    for (const BucketMemory& memory : buckets_) {
      state.set("steps", memory.steps);
      for (const Matrix& m : memory.matrices) {
        state.set(str("memory.", m.piece.name, ".error"), m.error);
        state.set(str("memory.", m.piece.name, ".factor"), m.q);
        state.set(str("memory.", m.piece.name, ".draws"), m.draws);
      }
    }
    return state;
  }

  void load_state_dict(const State& state) override {
    const int64_t steps = state.get<int64_t>("steps");
    const auto loaded = [&](const Matrix& m, const char* what, const Tensor& like) {
      const Tensor& tensor = state.get<Tensor>(str("memory.", m.piece.name, what));
      TANDEM_CHECK(StateError, tensor.shape() == like.shape() && tensor.dtype() == like.dtype(), "power_sgd: '",
                   m.piece.name, what, "' does not fit\n  saved  ", tensor_text(tensor), "\n  here   ",
                   tensor_text(like));
      return tensor;
    };
    for (const bool checks : {true, false}) {
      for (BucketMemory& memory : buckets_) {
        for (Matrix& m : memory.matrices) {
          const Tensor error = loaded(m, ".error", m.error);
          const Tensor q = loaded(m, ".factor", m.q);
          const int64_t draws = state.get<int64_t>(str("memory.", m.piece.name, ".draws"));
          if (checks) continue;
          chores::copy(error, m.error);
          chores::copy(q, m.q);
          m.draws = draws;
        }
        if (!checks) memory.steps = steps;
      }
    }
  }

 private:
  static std::string tensor_text(const Tensor& t) { return str(t.dtype(), " ", t.shape()); }

  bool compresses(const BucketMemory& memory) const {
    return memory.steps >= options_.start_step && !memory.matrices.empty();
  }

  /// Among the matrices, or the rest.
  void place(const GradientPiece& piece, BucketMemory& memory) const {
    const int64_t count = piece.values.num_elements();
    if (count == 0) return;
    TANDEM_CHECK(DeviceError, piece.values.device().is_cpu(), "power_sgd: compresses gradients on CPU devices\n  '",
                 piece.name, "'  on ", piece.values.device());
    const int64_t rows = piece.shape.empty() ? 1 : piece.shape[0];
    const int64_t cols = count / rows;
    const int64_t rank = std::min({static_cast<int64_t>(options_.rank), rows, cols});
    const bool pays = static_cast<double>((rows + cols) * rank) * options_.min_saving <= static_cast<double>(count);
    if (!piece.is_whole || !pays) {
      memory.rest.push_back(piece.values);
      memory.rest_elements += count;
      return;
    }
    const TensorOptions sums{sum_dtype(piece.values.dtype()), piece.values.device()};
    Matrix m{piece, rows, cols, rank, zeros({rows, cols}, sums), zeros({rank, cols}, sums), zeros({rank, rows}, sums)};
    for (int64_t k = 0; k < rank; ++k) draw(m, k);
    memory.p_elements += rank * rows;
    memory.q_elements += rank * cols;
    memory.matrices.push_back(std::move(m));
  }

  /// Column k of q anew: a function of the seed, the parameter, and how many were drawn.
  void draw(Matrix& m, int64_t k) const {
    const auto number = static_cast<uint64_t>(m.draws++);
    const auto parameter = static_cast<uint32_t>(m.piece.parameter);
    const PhiloxState stream{options_.seed, parameter, 0, number << 32};
    visit_floating_dtype(m.q.dtype(), [&]<class A>() {
      A* column = m.q.data<A>() + k * m.cols;
      for (int64_t j = 0; j < m.cols; ++j) {
        const uint32_t word = stream.block(static_cast<uint64_t>(j / 4))[static_cast<size_t>(j % 4)];
        column[j] = static_cast<A>(word * 0x1p-32 - 0.5);
      }
    });
  }

  template <class T>
  void send_p(BucketMemory& memory) const {
    using A = Accumulator<T>;
    const Tensor& any = memory.matrices.front().piece.values;
    memory.sent = empty({memory.p_elements + memory.rest_elements}, {any.dtype(), any.device()});
    int64_t at = 0;
    for (Matrix& m : memory.matrices) {
      // Their product's columns are of the size of the gradient, so last step's are made orthonormal first.
      orthonormalize<A>(m.q.data<A>(), m.cols, m.rank, [&](int64_t k) {
        draw(m, k);
        return true;
      });
      add_and_project<T, A>(m.piece.values.data<T>(), m.error.data<A>(), m.rows, m.cols, m.q.data<A>(), m.rank,
                            m.p.data<A>());
      chores::copy(m.p, part(memory.sent, at, m.rank * m.rows).reshape({m.rank, m.rows}));
      at += m.rank * m.rows;
    }
    for (const Tensor& rest : memory.rest) {
      chores::copy(rest, part(memory.sent, at, rest.num_elements()));
      at += rest.num_elements();
    }
  }

  template <class T>
  void send_q(BucketMemory& memory) const {
    using A = Accumulator<T>;
    const Tensor received = std::exchange(memory.sent, empty({memory.q_elements}, {memory.sent.dtype()}));
    int64_t at = 0;
    int64_t q_at = 0;
    for (Matrix& m : memory.matrices) {
      chores::copy(part(received, at, m.rank * m.rows).reshape({m.rank, m.rows}), m.p);
      at += m.rank * m.rows;
      // What is not finite stays as it is: deliver() sees it.
      if (all_finite<A>(m.p)) orthonormalize<A>(m.p.data<A>(), m.rows, m.rank, [](int64_t) { return false; });
      project_transposed<A>(m.error.data<A>(), m.rows, m.cols, m.p.data<A>(), m.rank, m.q.data<A>());
      chores::copy(m.q, part(memory.sent, q_at, m.rank * m.cols).reshape({m.rank, m.cols}));
      q_at += m.rank * m.cols;
    }
    for (const Tensor& rest : memory.rest) {
      chores::copy(part(received, at, rest.num_elements()), rest);
      at += rest.num_elements();
    }
  }

  template <class T>
  void deliver(BucketMemory& memory) const {
    using A = Accumulator<T>;
    const Tensor received = std::exchange(memory.sent, {});
    int64_t at = 0;
    for (Matrix& m : memory.matrices) {
      chores::copy(part(received, at, m.rank * m.cols).reshape({m.rank, m.cols}), m.q);
      at += m.rank * m.cols;
      if (all_finite<A>(m.p) && all_finite<A>(m.q)) {
        subtract_product<T, A>(m.error.data<A>(), m.rows, m.cols, m.p.data<A>(), m.q.data<A>(), m.rank,
                               m.piece.values.data<T>());
        continue;
      }
      // All ranks hold the same factors, so all come here.
      chores::fill(m.piece.values, std::numeric_limits<double>::quiet_NaN());
      chores::fill(m.error, 0);
      for (int64_t k = 0; k < m.rank; ++k) draw(m, k);
    }
  }

  const PowerSgdOptions options_;
  std::vector<BucketMemory> buckets_;
};

}  // namespace

std::shared_ptr<GradientHook> power_sgd(PowerSgdOptions options) { return std::make_shared<PowerSgd>(options); }

}  // namespace tandem::inline v0::distributed
