// How a GradientReducer averages a bucket: hooks that send less, one after the other.
//
// Vocabulary.  An *exchange* replaces a flat tensor by its mean over the ranks.  A *hook* averages a bucket by means of
// exchanges of smaller tensors, each of which goes to the next hook of the chain, and after the last one to the group.
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

/// The gradient of one parameter in a bucket, or the part of it that lies there.
struct GradientPiece {
  std::string name;      ///< of the parameter
  int parameter = 0;     ///< its number among those that require grad
  Shape shape = {};      ///< of the whole parameter
  Tensor values = {};    ///< [n], a view of the bucket
  bool is_whole = true;  ///< all of the parameter is here
};

/// What a hook averages.
struct GradientBucket {
  Tensor values = {};  ///< [n]: this rank's values; the mean when it is done
  int index = 0;       ///< of the bucket, also where `values` is what an earlier hook sends of it
  std::string name = {};
  std::vector<GradientPiece> pieces = {};  ///< in no particular order; only the first hook of a chain sees them
};

/// Replaces `values`, flat, by the mean over the ranks, then calls `done`; returns at once.  May be copied.
using Exchange = std::function<void(const Tensor& values, std::function<void()> done)>;

/// Averages buckets.  Hooks of one reducer run on any thread; of one bucket's callbacks each happens after the one before,
/// those of different buckets may run at the same time.  An exception that leaves one fails the group.
class TANDEM_API GradientHook {
 public:
  virtual ~GradientHook() = default;
  /// "power_sgd(rank 2)".  Ranks compare it: it holds everything that must be the same on all of them.
  virtual std::string describe() const = 0;
  /// Whether it works on parameters: then it must come first in the chain, and the reducer keeps them whole.
  virtual bool needs_pieces() const { return false; }
  /// Called once, before everything else, on the first hook of a chain.  Throws StateError where it has a reducer already.
  virtual void prepare(const std::vector<GradientBucket>& /*buckets*/) {}
  /// Exchanges that the next average() of this bucket makes; at least 1, and the same on all ranks.
  virtual int num_exchanges(const GradientBucket& /*bucket*/) const { return 1; }
  /// Replaces bucket.values by (something near) the mean over the ranks, by `num_exchanges` calls of `next`, then calls
  /// `done`.  Never waits.  `bucket` lives until `done` was called.  For a bucket on a GPU the current stream is one beside
  /// backward's, and what the callbacks given to `next` hold lives until the GPU is done with the step.
  virtual void average(const GradientBucket& bucket, const Exchange& next, std::function<void()> done) = 0;
  /// All that the next steps depend on, this rank's: shadow steps take a hook back to it too.
  virtual State state_dict() const { return {}; }
  /// Throws StateError, changing nothing, if something is missing or does not fit.
  virtual void load_state_dict(const State& /*state*/) {}
};

using GradientHooks = std::vector<std::shared_ptr<GradientHook>>;

/// Sends float32 and float64 as float16: half (a quarter of) the bytes.  The group sums in float32 and divides before it
/// rounds, so the result is round(mean(round(g))); gradients beyond 65504 become infinite.  On GPUs NCCL sums in float16: with N
/// ranks it rounds N times, and sums beyond 65504 become infinite too.
TANDEM_API std::shared_ptr<GradientHook> fp16();
/// Likewise as bfloat16, which has the range of float32 and three digits fewer than float16's.
TANDEM_API std::shared_ptr<GradientHook> bf16();
/// Sends float16 and bfloat16 as float32: twice the bytes, for parameters of half types on GPUs, whose sums NCCL would round at
/// each rank.  The result is round(mean(g)).  On CPUs sums are made so anyway, and it changes no bit.
TANDEM_API std::shared_ptr<GradientHook> fp32();

struct PowerSgdOptions {
  int rank = 2;
  int64_t start_step = 10;     ///< steps before it exchange everything
  double min_saving = 2;       ///< matrices that would not shrink to 1 / min_saving are sent as they are
  uint64_t seed = 0x7d3f5eed;  ///< of the first factors; the same on all ranks
};

/// PowerSGD: of each matrix M (a parameter of two or more dimensions, [d0, d1 * d2 ...]) two factors of `rank` columns
/// travel, found by one step of power iteration from the last step's:
///
///     M = gradient + error     P = orthonormal(mean(M Q))     Q = mean(M^T P)     result = P Q^T     error = M - result
///
/// in float32 (float64 for float64), orthonormalised by Gram-Schmidt in float64.  The error is kept by each rank and added
/// to the next gradient, so that nothing is lost, only late (but for a parameter that no rank used in a step: what was due
/// to it then is dropped).  Two exchanges per bucket; what is no matrix, or too small, travels with the first.  A step with
/// factors that are not finite gives NaN for that matrix and leaves no trace.  Takes the memory of one more gradient.
/// (Vogels, Karimireddy, Jaggi, "PowerSGD: practical low-rank gradient compression for distributed optimization", NeurIPS
/// 2019.)  Throws ValueError where rank < 1, start_step < 0 or min_saving < 1.
TANDEM_API std::shared_ptr<GradientHook> power_sgd(PowerSgdOptions options = {});

/// What hooks cost in accuracy in one step: what they delivered beside the exact mean of that step's gradients.
struct HookReport {
  struct Bucket {
    std::string name;
    double relative_error = 0;  ///< |delivered - exact| / |exact|, in the 2-norm; 0 where both are 0
    double cosine = 1;          ///< of the angle between them; 1 where both are 0, 0 where one is
  };
  /// What one hook of the chain adds: the step was run again with the hooks before it alone, and with those and it.
  struct Hook {
    std::string name;           ///< describe()
    double relative_error = 0;  ///< |with it - without it| / |exact|, of all buckets together
  };
  int64_t step = 0;  ///< counted from 1; 0: none yet
  std::vector<Bucket> buckets;
  std::vector<Hook> hooks;  ///< in the order of the chain; their errors may cancel, so the sum is a bound of the whole
  double relative_error = 0;  ///< of all buckets together
  double cosine = 1;
};
/// "step 100: relative error 0.0131, cosine 0.99991; worst 0.0312, 0.99951 in bucket 3 of 7: 'fc1.weight'", and of several
/// hooks "; by hook: power_sgd(...) 0.013, bf16 0.0024".
TANDEM_API std::string to_string(const HookReport& report);

}}}  // namespace tandem::v0::distributed
