// State of a GradientReducer. Private to distributed/.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include <tandem/autograd/leaf.h>
#include <tandem/base/log.h>
#include <tandem/distributed/ddp/gradient_reducer.h>
#include <tandem/distributed/ddp/measured_comm_hooks.h>
#include <tandem/distributed/ddp/overlap_timer.h>
#include <tandem/distributed/ddp/parameter_units.h>

namespace tandem { inline namespace v0 { namespace distributed {

/// The control record of one rank. Sent as a byte of flags, the 4 bytes of `num_changes`, and two bits per parameter.
struct ControlRecord {
  bool stop_requested = false;
  bool changed_in_backward = false;  ///< parameters were changed before their gradients were averaged
  uint32_t num_changes = 0;          ///< of parameters, since all ranks had equal values
  std::vector<bool> used;            ///< by parameter: it has a gradient
  std::vector<bool> trained;         ///< by parameter: it requires grad
};

struct GradientReducer::Impl {
  struct Parameter {
    std::string name;
    Tensor tensor;
    RefPtr<autograd::Leaf> leaf;
    HookHandle hook;
    int first_bucket;  ///< first and last bucket that contain a slice of the parameter
    int last_bucket;
    bool has_slot;  ///< whether this reducer has given the leaf its slot
  };
  struct Bucket : GradBucket {
    int num_parameters = 0;
    int missing = 0;  ///< parameters without a gradient in this backward pass
    Work work;
  };

  std::shared_ptr<ProcessGroup> group;
  ReducerOptions options;
  BucketPlan plan;
  NamedTensors all_parameters, buffers;
  std::vector<Parameter> parameters;    ///< parameters with a bucket, then those frozen at construction
  RefPtr<ParameterShards> shards;       ///< null with kNone
  RefPtr<ParameterUnits> units;         ///< with kParameters: `shards`
  std::vector<RefPtr<Storage>> memory;  ///< with kNone, one per plan.buffers
  std::vector<Bucket> buckets;
  std::shared_ptr<int> no_sync_depth = std::make_shared<int>(0);      ///< shared with handles, which may outlive this
  std::unique_ptr<MeasuredCommHooks> hooks;                           ///< null without hooks
  const std::shared_ptr<Impl*> self = std::make_shared<Impl*>(this);  ///< for graphs, which may outlive this
  bool in_backward = false;                                           ///< between begin() and finish()
  size_t next_bucket = 0;
  uint32_t equal_at = 0;          ///< num_changes() when all ranks had equal values
  uint32_t changes_at_begin = 0;  ///< num_changes() at begin()
  OverlapTimer timer;

  ~Impl() {
    if (shards) shards->remove();
  }
  void make_buckets();
  void make_memory();
  void make_shards(const std::vector<std::string>& unit_names, const std::vector<size_t>& unit_of);
  void broadcast_values(const NamedTensors& tensors);
  void on_gradient(size_t parameter);
  void begin();
  void begin_capture();
  void launch(size_t bucket);
  void finish();
  bool is_planned(size_t parameter) const { return parameter < plan.placements.size(); }
  /// Whether this reducer has to average the gradient: not while it is frozen or belongs to another reducer.
  bool is_trained(size_t parameter) const {
    const Parameter& p = parameters[parameter];
    return p.tensor.requires_grad() && (p.has_slot || !p.leaf->has_foreign_slot());
  }
  /// Whether the parameter has a gradient of this backward pass, or of earlier ones since zero_grad.
  bool has_gradient(size_t parameter) const {
    const autograd::Leaf& leaf = *parameters[parameter].leaf;
    const bool is_filled = leaf.filled() || (leaf.shard() != nullptr && leaf.shard()->is_filled);
    return is_filled && (is_planned(parameter) || is_trained(parameter));
  }
  uint32_t num_changes() const;
  std::vector<ControlRecord> exchange_records(const std::vector<bool>& used, const char* name);
  void follow_replays(const std::vector<bool>& used);
  void check_usage(const std::vector<ControlRecord>& records);
  void check_values(const std::vector<ControlRecord>& records);
  static void mark_averaged(autograd::Leaf& leaf);
  /// abort() that logs errors, for destructors.
  void abort_quietly(const char* reason) noexcept {
    try {
      group->abort(reason);
    } catch (const Error& error) {
      log(LogLevel::kError, "GradientReducer: cannot abort the process group: ", error.what());
    }
  }
};

}}}  // namespace tandem::v0::distributed
