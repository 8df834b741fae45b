#include <tandem/distributed/ddp/power_sgd.h>

#include <algorithm>
#include <utility>

#include <tandem/autograd/grad_mode.h>
#include <tandem/base/error.h>
#include <tandem/base/rank_context.h>
#include <tandem/distributed/comm_hooks.h>
#include <tandem/ops/compare.h>
#include <tandem/ops/elementwise.h>
#include <tandem/ops/math.h>
#include <tandem/ops/matmul.h>
#include <tandem/ops/reduce.h>
#include <tandem/ops/view.h>
#include <tandem/tensor/dtype.h>
#include <tandem/tensor/factories.h>
#include <tandem/tensor/generator.h>
#include <tandem/tensor/primitives.h>

namespace tandem { inline namespace v0 { namespace distributed {

namespace {

/// The 2-norms of the rows of [m, n], as [m, 1].
Tensor norms(const Tensor& rows) { return sqrt(sum(mul(rows, rows), {1}, true)); }

}  // namespace

Tensor orthonormalize(const Tensor& rows, const Tensor& replacements) {
  // If no more than this fraction of a row remains, the remainder is rounding error.
  const double least = rows.dtype() == kFloat64 ? 1e-13 : 1e-5;
  Tensor basis;
  for (int64_t k = 0; k < rows.size(0); ++k) {
    Tensor candidates = rows.slice(0, k, k + 1);
    if (replacements.defined()) candidates = cat({candidates, replacements.slice(0, k, k + 1)});
    candidates = candidates.to(kFloat64);
    const Tensor before = norms(candidates);
    for (int pass = 0; basis.defined() && pass < 2; ++pass) {
      candidates = sub(candidates, matmul(matmul(candidates, basis.t()), basis));
    }
    const Tensor after = norms(candidates);
    const Tensor is_left = gt(after, mul(before, least));
    Tensor row = where(is_left, div(candidates, after), 0);
    if (replacements.defined()) row = where(is_left.slice(0, 0, 1), row.slice(0, 0, 1), row.slice(0, 1, 2));
    basis = basis.defined() ? cat({basis, row}) : row;
  }
  return basis.to(rows.dtype());
}

namespace {

/// A compressed parameter. Its tensors are on the device of the gradient, in the accumulation dtype. Factors are stored
/// transposed: a column of P or Q is a row of the tensor.
struct Matrix {
  ParameterSlice piece;
  int64_t rows;
  int64_t cols;
  int64_t rank;
  Tensor error;       ///< [rows, cols]; during the exchanges: gradient + error
  Tensor q;           ///< [rank, cols]
  Tensor p;           ///< [rank, rows]; of the running step
  Tensor start;       ///< [rank, cols]: random columns: the first q, and replacements for unusable columns of q
  Tensor not_finite;  ///< 0-dim: NaN where the running step's p is not finite, else 0

  int64_t p_elements() const { return rank * rows; }
  int64_t q_elements() const { return rank * cols; }
};

/// While in scope, operations of the calling thread are not recorded and not affected by autocast.
class PlainOps {
 public:
  PlainOps() : autocast_(std::exchange(RankContext::current().autocast, int8_t{-1})) {}
  ~PlainOps() { RankContext::current().autocast = autocast_; }
  PlainOps(const PlainOps&) = delete;
  PlainOps& operator=(const PlainOps&) = delete;

 private:
  const NoGradGuard no_grad_;
  const int8_t autocast_;
};

/// State of a bucket, accessed by its own callbacks only.
struct BucketMemory {
  int64_t steps = 0;
  std::vector<Matrix> matrices;
  std::vector<Tensor> rest;  ///< views of the uncompressed gradients
  int64_t p_elements = 0;    ///< of the factors of all matrices
  int64_t q_elements = 0;
  int64_t rest_elements = 0;
};

DType sum_dtype(DType dtype) { return dtype == kFloat64 ? kFloat64 : kFloat32; }

/// Elements [begin, begin + n) of a flat tensor.
Tensor part(const Tensor& flat, int64_t begin, int64_t n) { return flat.slice(0, begin, begin + n); }

class PowerSgd final : public CommHook {
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
  bool needs_whole_parameters() const override { return true; }

  void prepare(const std::vector<GradBucket>& buckets) override {
    TANDEM_CHECK(StateError, buckets_.empty(),
                 "power_sgd: this hook already belongs to a DistributedDataParallel; create one hook for each");
    buckets_.resize(buckets.size());
    for (size_t i = 0; i < buckets.size(); ++i) {
      for (const ParameterSlice& piece : buckets[i].slices) place(piece, buckets_[i]);
    }
  }

  int num_all_reduces(const GradBucket& bucket) const override {
    return compresses(buckets_[static_cast<size_t>(bucket.index)]) ? 2 : 1;
  }

  void average(const GradBucket& bucket, const AllReduceMean& all_reduce, std::function<void()> done) override {
    BucketMemory& memory = buckets_[static_cast<size_t>(bucket.index)];
    const bool plain = !compresses(memory);
    ++memory.steps;
    if (plain) return all_reduce(bucket.values, std::move(done));
    // The callbacks own the tensors that are sent, because they live until the GPU has finished with them.
    const Tensor p = send_p(memory);
    all_reduce(p, [this, &memory, all_reduce, p, done = std::move(done)] {
      const Tensor q = send_q(memory, p);
      all_reduce(q, [this, &memory, q, done] {
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
          if (checks) continue;
          primitives::copy(error, m.error);
          primitives::copy(q, m.q);
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

  /// Adds the parameter to the compressed matrices, or to the uncompressed rest.
  void place(const ParameterSlice& piece, BucketMemory& memory) const {
    const int64_t count = piece.values.numel();
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
    const Tensor start = start_columns(piece, rank, cols).to(sums.dtype).to(device);
    const Matrix m{
        piece, rows,           cols, rank, zeros({rows, cols}, sums), start.clone(), zeros({rank, rows}, sums),
        start, zeros({}, sums)};
    memory.p_elements += m.p_elements();
    memory.q_elements += m.q_elements();
    memory.matrices.push_back(m);
  }

  /// Initial factors: [rank, cols] float64 on the CPU, values in [-0.5, 0.5), a function of the seed and the parameter.
  Tensor start_columns(const ParameterSlice& piece, int64_t rank, int64_t cols) const {
    PhiloxState stream{options_.seed, static_cast<uint32_t>(piece.parameter), 0, 0};
    std::vector<double> values;
    for (int64_t k = 0; k < rank; ++k) {
      stream.offset = static_cast<uint64_t>(k) << 32;
      for (int64_t j = 0; j < cols; ++j) {
        values.push_back(stream.block(static_cast<uint64_t>(j / 4))[static_cast<size_t>(j % 4)] * 0x1p-32 - 0.5);
      }
    }
    return from_vector<double>(values, {rank, cols});
  }

  Tensor send_p(const BucketMemory& memory) const {
    const Tensor& any = memory.matrices.front().piece.values;
    const Tensor sent = empty({memory.p_elements + memory.rest_elements}, {any.dtype(), any.device()});
    const PlainOps plain;
    int64_t at = 0;
    for (const Matrix& m : memory.matrices) {
      primitives::add_into(m.piece.values.to(m.error.dtype()), m.error.view({m.rows * m.cols}));
      // Columns of the last step's q have the magnitude of the gradient, so orthonormalize them first.
      primitives::copy(orthonormalize(m.q, m.start), m.q);
      primitives::copy(matmul(m.q, m.error.t()), m.p);
      primitives::copy(m.p, part(sent, at, m.p_elements()).reshape(m.p.shape()));
      at += m.p_elements();
    }
    for (const Tensor& rest : memory.rest) {
      primitives::copy(rest, part(sent, at, rest.numel()));
      at += rest.numel();
    }
    return sent;
  }

  Tensor send_q(const BucketMemory& memory, const Tensor& received) const {
    const Tensor sent = empty({memory.q_elements}, received.options());
    const PlainOps plain;
    int64_t at = 0;
    int64_t q_at = 0;
    for (const Matrix& m : memory.matrices) {
      primitives::copy(part(received, at, m.p_elements()).reshape(m.p.shape()), m.p);
      at += m.p_elements();
      primitives::copy(sum(mul(m.p, 0)), m.not_finite);
      primitives::copy(orthonormalize(m.p), m.p);
      primitives::copy(matmul(m.p, m.error), m.q);
      primitives::copy(m.q, part(sent, q_at, m.q_elements()).reshape(m.q.shape()));
      q_at += m.q_elements();
    }
    for (const Tensor& rest : memory.rest) {
      primitives::copy(part(received, at, rest.numel()), rest);
      at += rest.numel();
    }
    return sent;
  }

  void deliver(const BucketMemory& memory, const Tensor& received) const {
    const PlainOps plain;
    int64_t at = 0;
    for (const Matrix& m : memory.matrices) {
      primitives::copy(part(received, at, m.q_elements()).reshape(m.q.shape()), m.q);
      at += m.q_elements();
      const Tensor not_finite = add(m.not_finite, sum(mul(m.q, 0)));
      const Tensor result = matmul(m.p.t(), add(m.q, not_finite)).to(received.dtype());
      primitives::copy(result.view({m.rows * m.cols}), m.piece.values);
      const Tensor is_finite = eq(not_finite, not_finite);
      // Subtract the rounded result, so that the error also contains its rounding.
      primitives::copy(where(is_finite, sub(m.error, result.to(m.error.dtype())), 0), m.error);
      // All ranks have the same factors, so all ranks reset together.
      primitives::copy(where(is_finite, m.q, m.start), m.q);
    }
  }

  const PowerSgdOptions options_;
  std::vector<BucketMemory> buckets_;
};

}  // namespace

std::shared_ptr<CommHook> power_sgd(PowerSgdOptions options) { return std::make_shared<PowerSgd>(options); }

}}}  // namespace tandem::v0::distributed
