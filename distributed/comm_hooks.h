// Communication hooks of DistributedDataParallel: how the gradients of a bucket are averaged over the ranks.
//
// Hooks form a chain. A hook averages a bucket by averaging smaller or cheaper tensors with the next hook of the
// chain; the last hook uses the all-reduce of the process group.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include <tandem/base/macros.h>
#include <tandem/tensor/state.h>
#include <tandem/tensor/tensor.h>

namespace tandem { inline namespace v0 { namespace distributed {

/// The part of a parameter's gradient that is stored in one bucket.
struct ParameterSlice {
  std::string name;      ///< of the parameter
  int parameter = 0;     ///< index among the parameters that require grad
  Shape shape = {};      ///< of the whole parameter
  Tensor values = {};    ///< [n], a view of the bucket
  bool is_whole = true;  ///< the slice contains the whole parameter
};

/// The tensor that a hook averages, with information about its bucket.
struct GradBucket {
  Tensor values = {};     ///< [n]: the values of this rank; contains the mean afterwards
  int index = 0;          ///< number of the bucket, equal for all tensors that an earlier hook passes for it
  std::string name = {};  ///< shown in errors and traces
  std::vector<ParameterSlice> slices = {};  ///< in unspecified order; empty for all but the first hook of a chain
};

/// Replaces the flat tensor `values` by its mean over the ranks, then calls `done`. Asynchronous. Copyable.
using AllReduceMean = std::function<void(const Tensor& values, std::function<void()> done)>;

/// Averages buckets.
///
/// Thread safety: methods are called on any thread. Calls for one bucket are sequential; calls for different buckets
/// may run concurrently. An exception thrown by a hook or by one of its callbacks aborts the process group.
class TANDEM_API CommHook {
 public:
  virtual ~CommHook() = default;
  /// Name and options, for example "power_sgd(rank 2, from step 10, saving 2, seed 1)". Must be equal on all ranks,
  /// which is checked: include every option that must be the same on all ranks.
  virtual std::string describe() const = 0;
  /// Whether the hook uses GradBucket::slices. Such a hook must be the first of its chain, and the reducer does not
  /// split parameters between buckets.
  virtual bool needs_whole_parameters() const { return false; }
  /// Called once, on the first hook of a chain, before any other method. Throws StateError if the hook already belongs
  /// to a reducer.
  virtual void prepare(const std::vector<GradBucket>& /*buckets*/) {}
  /// Number of all-reduces that the next average() of this bucket starts; at least 1 and equal on all ranks.
  virtual int num_all_reduces(const GradBucket& /*bucket*/) const { return 1; }
  /// Replaces bucket.values by an approximation of the mean over the ranks: calls `all_reduce` num_all_reduces() times,
  /// then `done`. Must not block. `bucket` stays valid until `done` is called.
  ///
  /// CUDA buckets: the current stream is a communication stream, not the stream of backward. Tensors captured by the
  /// callbacks stay alive until the GPU has finished the step.
  virtual void average(const GradBucket& bucket, const AllReduceMean& all_reduce, std::function<void()> done) = 0;
  /// State of this rank that later steps depend on. Also used to restore the hook after an error measurement
  /// (ReducerOptions::hook_report_every). If a training resumes with another number of ranks, each rank loads the mean
  /// over the saved ranks of each floating-point tensor.
  virtual State state_dict() const { return {}; }
  /// Throws StateError, without changes, if an entry is missing or does not match.
  virtual void load_state_dict(const State& /*state*/) {}
};

/// A chain of hooks; the first one is called first.
using CommHooks = std::vector<std::shared_ptr<CommHook>>;

/// Sends float32 and float64 gradients as float16.
///
/// CPU: result = round(mean(round(g))), summed in float32, divided, then rounded once; gradients that exceed the range
/// of float16 (65504) become infinite. CUDA: NCCL sums in float16, which rounds once per rank, and sums that exceed
/// this range become infinite too.
TANDEM_API std::shared_ptr<CommHook> fp16_compress();
/// Sends float32 and float64 gradients as bfloat16, which has the range of float32 and three bits less precision than
/// float16. Otherwise like fp16_compress().
TANDEM_API std::shared_ptr<CommHook> bf16_compress();
/// Sends float16 and bfloat16 gradients as float32: result = round(mean(g)), at twice the traffic. Use it for
/// parameters of half types on CUDA, where NCCL otherwise rounds once per rank. On CPUs it does not change the result,
/// because half types are always summed in float32.
TANDEM_API std::shared_ptr<CommHook> fp32_upcast();

/// Options of power_sgd().
struct PowerSgdOptions {
  int rank = 2;                ///< number of columns of the factors
  int64_t start_step = 10;     ///< number of first steps without compression
  double min_saving = 2;       ///< compress a matrix only if its factors are at least this many times smaller
  uint64_t seed = 0x7d3f5eed;  ///< of the initial factors; equal on all ranks
};

/// PowerSGD (Vogels, Karimireddy, Jaggi, "PowerSGD: Practical Low-Rank Gradient Compression for Distributed
/// Optimization", NeurIPS 2019). Each parameter of two or more dimensions is a matrix M of shape [d0, d1 * d2 * ...].
/// Instead of M, two factors P and Q with `rank` columns are all-reduced. They are computed by one step of power
/// iteration, which starts from the Q of the last step:
///
///    M = gradient + error     P = orthonormal(mean(M Q))     Q = mean(M^T P)     result = P Q^T     error = M - result
///
/// All of this is computed in float32 (float64 for float64 gradients), except Gram-Schmidt orthonormalisation, which
/// uses float64. `error` stays on its rank and is added to the next gradient (error feedback). For a parameter that no
/// rank used in a step, the error is discarded.
///
/// Two all-reduces per bucket; other parameters are sent uncompressed with the first one. If the factors are not
/// finite, the result is NaN for that matrix and its error is reset. Memory: one additional copy of the gradients.
/// Throws ValueError if rank < 1, start_step < 0 or min_saving < 1.
TANDEM_API std::shared_ptr<CommHook> power_sgd(PowerSgdOptions options = {});

/// Error of the communication hooks in one step: their result compared with the exact mean of the gradients of that
/// step.
struct HookReport {
  /// Error of one bucket.
  struct Bucket {
    std::string name;           ///< of the bucket: its first and last parameter
    double relative_error = 0;  ///< |result - exact| / |exact|, 2-norm; 0 if both are zero
    double cosine = 1;          ///< cosine similarity of result and exact; 1 if both are zero, 0 if one of them is
  };
  /// Contribution of one hook. To measure it, the step is replayed with the preceding hooks, first without and then
  /// with this hook.
  struct Hook {
    std::string name;           ///< describe()
    double relative_error = 0;  ///< |with the hook - without it| / |exact|, over all buckets
  };
  int64_t step = 0;             ///< starts at 1; 0: no report yet
  std::vector<Bucket> buckets;  ///< in launch order
  std::vector<Hook> hooks;      ///< in chain order; errors may cancel, so their sum is an upper bound of the total
  double relative_error = 0;    ///< over all buckets
  double cosine = 1;            ///< over all buckets
};
/// "step 100: relative error 0.0131, cosine 0.99991; worst 0.0312, 0.99951 in bucket 3 of 7: 'fc1.weight'", and with
/// several hooks also "; by hook: power_sgd(...) 0.013, bf16 0.0024".
TANDEM_API std::string to_string(const HookReport& report);

}}}  // namespace tandem::v0::distributed
