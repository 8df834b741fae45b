#include <algorithm>
#include <utility>

#include <tandem/base/error.h>
#include <tandem/distributed/ddp/low_rank_kernels.h>
#include <tandem/distributed/gradient_hooks.h>
#include <tandem/tensor/chores.h>
#include <tandem/tensor/dtype.h>
#include <tandem/tensor/factories.h>

namespace tandem { inline namespace v0 { namespace distributed {

namespace {

/// A parameter that is compressed.  All is where its gradient is; factors hold their columns one after the other, in the type of
/// sums.
struct Matrix {
  GradientPiece piece;
  LowRankShape shape;
  Tensor error;   ///< [rows, cols]; between the exchanges gradient + error
  Tensor q;       ///< [rank, cols]
  Tensor p;       ///< [rank, rows]; of the running step
  Tensor draws;   ///< [1] int64: of columns of q
  Tensor finite;  ///< [1] int32: whether the running step's factors are

  int64_t p_elements() const { return shape.rank * shape.rows; }
  int64_t q_elements() const { return shape.rank * shape.cols; }
};

/// What the hook keeps of a bucket: only its own callbacks touch it.
struct BucketMemory {
  int64_t steps = 0;
  std::vector<Matrix> matrices;
  std::vector<Tensor> rest;  ///< views of what is sent as it is
  int64_t p_elements = 0;    ///< of all matrices' factors
  int64_t q_elements = 0;
  int64_t rest_elements = 0;
};

DType sum_dtype(DType dtype) { return dtype == kFloat64 ? kFloat64 : kFloat32; }

/// The n elements of a flat tensor from `begin` on.
Tensor part(const Tensor& flat, int64_t begin, int64_t n) { return flat.slice(0, begin, begin + n); }

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
    // What travels is kept by the callbacks, which live until a GPU is done with it.
    const Tensor p = send_p(memory);
    next(p, [this, &memory, next, p, done = std::move(done)] {
      const Tensor q = send_q(memory, p);
      next(q, [this, &memory, q, done] {
        deliver(memory, q);
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
          const Tensor draws = loaded(m, ".draws", m.draws);
          if (checks) continue;
          chores::copy(error, m.error);
          chores::copy(q, m.q);
          chores::copy(draws, m.draws);
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
    const int64_t rows = piece.shape.empty() ? 1 : piece.shape[0];
    const int64_t cols = count / rows;
    const int64_t rank = std::min({static_cast<int64_t>(options_.rank), rows, cols});
    const bool pays = static_cast<double>((rows + cols) * rank) * options_.min_saving <= static_cast<double>(count);
    if (!piece.is_whole || !pays) {
      memory.rest.push_back(piece.values);
      memory.rest_elements += count;
      return;
    }
    const Device device = piece.values.device();
    const TensorOptions sums{sum_dtype(piece.values.dtype()), device};
    Matrix m{piece,
             {rows, cols, rank},
             zeros({rows, cols}, sums),
             zeros({rank, cols}, sums),
             zeros({rank, rows}, sums),
             zeros({1}, {kInt64, device}),
             zeros({1}, {kInt32, device})};
    TANDEM_KERNEL(kernel_context(device), draw_columns, piece.values.dtype(), cols, rank, columns_of(m), nullptr,
                  m.q.data_ptr());
    memory.p_elements += m.p_elements();
    memory.q_elements += m.q_elements();
    memory.matrices.push_back(std::move(m));
  }

  /// Columns of q: a function of the seed, the parameter, and how many were drawn.
  ColumnStream columns_of(const Matrix& m) const {
    return {{options_.seed, static_cast<uint32_t>(m.piece.parameter), 0, 0}, m.draws.data<int64_t>()};
  }

  Tensor send_p(const BucketMemory& memory) const {
    const Tensor& any = memory.matrices.front().piece.values;
    const Tensor sent = empty({memory.p_elements + memory.rest_elements}, {any.dtype(), any.device()});
    const KernelContext context = kernel_context(any.device());
    int64_t at = 0;
    for (const Matrix& m : memory.matrices) {
      // Their product's columns are of the size of the gradient, so last step's are made orthonormal first.
      TANDEM_KERNEL(context, orthonormalize, any.dtype(), m.shape.cols, m.shape.rank, columns_of(m), m.q.data_ptr());
      TANDEM_KERNEL(context, add_and_project, any.dtype(), m.shape, m.piece.values.data_ptr(), m.error.data_ptr(),
                    m.q.data_ptr(), m.p.data_ptr());
      chores::copy(m.p, part(sent, at, m.p_elements()).reshape(m.p.shape()));
      at += m.p_elements();
    }
    for (const Tensor& rest : memory.rest) {
      chores::copy(rest, part(sent, at, rest.num_elements()));
      at += rest.num_elements();
    }
    return sent;
  }

  Tensor send_q(const BucketMemory& memory, const Tensor& received) const {
    const Tensor sent = empty({memory.q_elements}, received.options());
    const KernelContext context = kernel_context(received.device());
    const DType dtype = received.dtype();
    int64_t at = 0;
    int64_t q_at = 0;
    for (const Matrix& m : memory.matrices) {
      chores::copy(part(received, at, m.p_elements()).reshape(m.p.shape()), m.p);
      at += m.p_elements();
      // Of what is not finite nothing is made here: deliver() sees it.
      TANDEM_KERNEL(context, orthonormalize, dtype, m.shape.rows, m.shape.rank, ColumnStream{}, m.p.data_ptr());
      TANDEM_KERNEL(context, project_transposed, dtype, m.shape, m.error.data_ptr(), m.p.data_ptr(), m.q.data_ptr());
      chores::copy(m.q, part(sent, q_at, m.q_elements()).reshape(m.q.shape()));
      q_at += m.q_elements();
    }
    for (const Tensor& rest : memory.rest) {
      chores::copy(part(received, at, rest.num_elements()), rest);
      at += rest.num_elements();
    }
    return sent;
  }

  void deliver(const BucketMemory& memory, const Tensor& received) const {
    const KernelContext context = kernel_context(received.device());
    const DType dtype = received.dtype();
    int64_t at = 0;
    for (const Matrix& m : memory.matrices) {
      chores::copy(part(received, at, m.q_elements()).reshape(m.q.shape()), m.q);
      at += m.q_elements();
      auto* finite = m.finite.data<int32_t>();
      TANDEM_KERNEL(context, all_finite, dtype, m.shape, m.p.data_ptr(), m.q.data_ptr(), finite);
      TANDEM_KERNEL(context, subtract_product, dtype, m.shape, m.p.data_ptr(), m.q.data_ptr(), finite,
                    m.error.data_ptr(), m.piece.values.data_ptr());
      // All ranks hold the same factors, so all begin anew together.
      TANDEM_KERNEL(context, draw_columns, dtype, m.shape.cols, m.shape.rank, columns_of(m), finite, m.q.data_ptr());
    }
  }

  const PowerSgdOptions options_;
  std::vector<BucketMemory> buckets_;
};

}  // namespace

std::shared_ptr<GradientHook> power_sgd(PowerSgdOptions options) { return std::make_shared<PowerSgd>(options); }

}}}  // namespace tandem::v0::distributed
