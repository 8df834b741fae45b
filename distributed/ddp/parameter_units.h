// Parameters that ranks divide and gather unit by unit (ZeRO-3, FSDP). Private to distributed/.
#pragma once

#include <array>
#include <cstddef>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include <tandem/base/hook_handle.h>
#include <tandem/base/module_observer.h>
#include <tandem/distributed/ddp/parameter_shards.h>

namespace tandem { inline namespace v0 { namespace distributed {

/// Peak bytes of gathered parameters and their gradients in a step, from the bytes of each whole unit.
int64_t memory_of_units(const std::vector<int64_t>& bytes_of, bool keep_after_forward);

/// The units of a model: unit 0, the root, and modules that are gathered one after the other. A unit is
///
///     sharded    each rank has its pieces
///     gathering  the all_gather of its buckets is in flight
///     ready      the parameters are whole
///
/// A call of the unit's module, or the first operation of the unit in backward, makes it ready. Then the other units
/// become sharded, except the root, units whose call is running, and units that wait for backward with
/// keep_after_forward; and the gather of the unit that followed in the last pass starts. So two units are whole at a
/// time, and the last unit of forward is the first of backward without another gather. The end of backward, a step, and
/// the end of a forward without grad mode make all units sharded. All ranks must run the same units in the same order;
/// names of collectives contain the unit, so that another order is an error on all ranks.
class ParameterUnits final : public ParameterShards {
 public:
  /// names[u] is the path of unit u, names[0] is ""; unit_of[i] is the unit of the i-th parameter.
  static RefPtr<ParameterUnits> create(std::shared_ptr<ProcessGroup> group, const BucketPlan& plan,
                                       const NamedTensors& parameters, const ReducerOptions& options,
                                       const std::vector<std::string>& names, const std::vector<size_t>& unit_of);
  /// Parameters of units that are used by gathered() become ordinary tensors, others lose their elements.
  void remove() override;
  /// Throws StateError if a unit is in use. Without leaves, that is all.
  void exchange(const std::vector<const autograd::Leaf*>& leaves) override;

  /// The path of each unit and the observer of calls of its module.
  std::vector<std::pair<std::string, RefPtr<ModuleObserver>>> observers() const;
  /// Makes units ready until the handle is destroyed; all if `paths` is empty. Collective.
  HookHandle gather(const std::vector<std::string>& paths);
  /// Hash of what this rank has written to whole parameters.
  uint32_t hash_of_changes() const;
  /// Throws StateError on every rank, naming units and ranks, if these hashes differ. Collective.
  void check_changes() const;
  /// "the root unit" or "unit 'blocks.0'", of the bucket.
  const std::string& label(size_t bucket) const { return labels_[bucket]; }
  /// A line per unit: parameters, bytes per rank and bytes when it is whole.
  std::string table() const;

 private:
  class Memory;
  class Calls;
  enum class State { kSharded, kGathering, kReady };
  struct Unit {
    std::string path;
    std::vector<size_t> buckets;
    std::vector<Work> gathers;  ///< while kGathering
    State state = State::kSharded;
    int users = 0;         ///< running calls and gathered() scopes
    int scopes = 0;        ///< gathered() scopes
    bool is_kept = false;  ///< until its backward
    RefPtr<ModuleObserver> observer;
  };

  ParameterUnits(std::shared_ptr<ProcessGroup> group, const BucketPlan& plan, const NamedTensors& parameters,
                 const ReducerOptions& options, const std::vector<std::string>& names,
                 const std::vector<size_t>& unit_of, const std::vector<RefPtr<StorageOwner>>& owners);

  void enter(size_t unit);
  void leave(size_t unit);
  /// With `replaces`, other units become sharded. Without it they remain until the next call with it, because an
  /// operation may be using them.
  void make_ready(size_t unit, bool replaces = true);
  void start_gather(size_t unit);
  void end_gather(size_t unit);
  /// Drops the whole parameters. Changes of this rank's pieces are kept if `keep_changes`.
  void shard(size_t unit, bool keep_changes = true);
  /// Makes all units sharded that no call or scope uses.
  void shard_unused();
  /// Calls shard_unused() at the end of the running backward, also if it throws.
  void watch_backward();
  /// The next unit begins a new forward or backward.
  void end_pass();

  const bool keep_after_forward_;
  std::vector<Unit> units_;
  std::vector<std::string> labels_;  ///< by bucket
  std::vector<RefPtr<StorageOwner>> owners_;
  bool in_backward_ = false;                 ///< whether a unit was last made ready in backward
  std::array<std::vector<size_t>, 2> now_;   ///< units of this forward and this backward, in the order of use
  std::array<std::vector<size_t>, 2> last_;  ///< those of the passes before
  const void* watched_ = nullptr;            ///< the running backward
  bool is_crowded_ = false;                  ///< whether the last call of make_ready() did not replace
};

}}}  // namespace tandem::v0::distributed
