#include <tandem/distributed/ddp/parameter_units.h>

#include <algorithm>
#include <exception>
#include <numeric>

#include <tandem/autograd/engine.h>
#include <tandem/autograd/grad_mode.h>
#include <tandem/base/log.h>
#include <tandem/base/rank_context.h>
#include <tandem/distributed/ddp/parameter_digest.h>

namespace tandem { inline namespace v0 { namespace distributed {

namespace {

constexpr size_t kMaxOrder = 1 << 16;  ///< units of a pass whose order is recorded

std::string label_of(const std::string& path) { return path.empty() ? "the root unit" : str("unit '", path, "'"); }

}  // namespace

int64_t memory_of_units(const std::vector<int64_t>& bytes_of, bool keep_after_forward) {
  const int64_t root = bytes_of[0];
  const int64_t largest = bytes_of.size() == 1 ? 0 : *std::max_element(bytes_of.begin() + 1, bytes_of.end());
  const int64_t kept = std::accumulate(bytes_of.begin() + 1, bytes_of.end(), int64_t{0});
  // Parameters of two units, or of all; gradients of two; and both of the root.
  return (keep_after_forward ? std::max(kept, 2 * largest) : 2 * largest) + 2 * largest + 2 * root;
}

/// Owner of the memory of one parameter.
class ParameterUnits::Memory final : public StorageOwner {
 public:
  Memory(std::string parameter, std::string path, size_t unit)
      : parameter_(std::move(parameter)), path_(std::move(path)), unit_(unit) {}
  void on_access(Storage& /*storage*/) override {
    // A function that runs again, or an operation of several units.
    if (units != nullptr && RankContext::current().open_autograd.backward != nullptr)
      return units->make_ready(unit_, false);
    const std::string unit = label_of(path_);
    throw StateError(units != nullptr
                         ? str("'", parameter_, "' of ", unit,
                               " is divided among the ranks: it is whole only while the unit runs; read it in the "
                               "operator() of that module, or in a scope of gathered()")
                         : str("'", parameter_, "' of ", unit,
                               " has no elements: it was divided by a DistributedDataParallel that was destroyed; "
                               "destroy that in a scope of gathered(), or load a state into a new model"));
  }
  void on_backward() override {
    if (units != nullptr) units->make_ready(unit_);
  }

  ParameterUnits* units = nullptr;  ///< null after remove()

 private:
  const std::string parameter_, path_;
  const size_t unit_;
};

/// Observer of the calls of a unit's module.
class ParameterUnits::Calls final : public ModuleObserver {
 public:
  Calls(ParameterUnits* owner, size_t unit) : units(owner), unit_(unit) {}
  void enter() override {
    if (units != nullptr) units->enter(unit_);
  }
  void leave() noexcept override {
    if (units != nullptr) units->leave(unit_);
  }

  ParameterUnits* units;  ///< null after remove()

 private:
  const size_t unit_;
};

RefPtr<ParameterUnits> ParameterUnits::create(std::shared_ptr<ProcessGroup> group, const BucketPlan& plan,
                                              const NamedTensors& parameters, const ReducerOptions& options,
                                              const std::vector<std::string>& names,
                                              const std::vector<size_t>& unit_of) {
  std::vector<RefPtr<StorageOwner>> owners;
  for (size_t p = 0; p < parameters.size(); ++p) {
    owners.emplace_back(new Memory(parameters[p].first, names[unit_of[p]], unit_of[p]));
  }
  return RefPtr<ParameterUnits>(
      new ParameterUnits(std::move(group), plan, parameters, options, names, unit_of, owners));
}

ParameterUnits::ParameterUnits(std::shared_ptr<ProcessGroup> group, const BucketPlan& plan,
                               const NamedTensors& parameters, const ReducerOptions& options,
                               const std::vector<std::string>& names, const std::vector<size_t>& unit_of,
                               const std::vector<RefPtr<StorageOwner>>& owners)
    : ParameterShards(std::move(group), plan, parameters, options, owners),
      keep_after_forward_(options.keep_after_forward),
      units_(names.size()),
      owners_(owners) {
  for (const auto& owner : owners_) static_cast<Memory&>(*owner).units = this;
  for (size_t u = 0; u < units_.size(); ++u) {
    units_[u].path = names[u];
    units_[u].observer = make_ref<Calls>(this, u);
  }
  std::vector<int64_t> bytes_of(units_.size());
  for (size_t b = 0; b < num_buckets(); ++b) {
    const size_t unit = unit_of[bucket(b).contents.front()];
    bytes_of[unit] += bucket(b).own.num_bytes() * num_ranks();
    units_[unit].buckets.push_back(b);
    labels_.push_back(label_of(units_[unit].path) +
                      (units_[unit].buckets.size() == 1 ? "" : str(", ", bucket(b).own.dtype())));
  }
  max_free_ = memory_of_units(bytes_of, keep_after_forward_);
}

std::string ParameterUnits::table() const {
  std::string text;
  for (size_t u = 0; u < units_.size(); ++u) {
    int64_t count = 0, piece_bytes = 0;
    for (const size_t b : units_[u].buckets) {
      for (const size_t p : bucket(b).contents) count += num_elements(leaf(p).shape());
      piece_bytes += bucket(b).own.num_bytes();
    }
    text += str("\n  ", label_of(units_[u].path), ": ", count, " parameters, ", piece_bytes, " bytes per rank, ",
                piece_bytes * num_ranks(), " bytes when whole");
  }
  return text;
}

std::vector<std::pair<std::string, RefPtr<ModuleObserver>>> ParameterUnits::observers() const {
  std::vector<std::pair<std::string, RefPtr<ModuleObserver>>> result;
  for (const Unit& unit : units_) result.emplace_back(unit.path, unit.observer);
  return result;
}

void ParameterUnits::remove() {
  for (size_t u = 0; u < units_.size(); ++u) {
    Unit& unit = units_[u];
    static_cast<Calls&>(*unit.observer).units = nullptr;
    if (unit.scopes == 0) {
      shard(u);
      continue;
    }
    for (const size_t b : unit.buckets) {
      for (const auto& memory : bucket(b).memory) memory->remove_owner();
    }
  }
  for (const auto& owner : owners_) static_cast<Memory&>(*owner).units = nullptr;
  units_.clear();
  ParameterShards::remove();
}

HookHandle ParameterUnits::gather(const std::vector<std::string>& paths) {
  std::vector<size_t> chosen;
  for (size_t u = 0; u < units_.size(); ++u) {
    if (paths.empty() || std::ranges::find(paths, units_[u].path) != paths.end()) chosen.push_back(u);
  }
  for (const std::string& path : paths) {
    const bool exists = std::ranges::any_of(units_, [&](const Unit& unit) { return unit.path == path; });
    TANDEM_CHECK(ValueError, exists, "gathered: there is no unit '", path, "'");
  }
  const auto set_scopes = [](ParameterUnits& self, size_t u, int change) {
    Unit& unit = self.units_[u];
    unit.users += change;
    unit.scopes += change;
    for (const size_t b : unit.buckets) {
      for (const size_t p : self.bucket(b).contents) self.leaf(p).shard()->is_in_pieces = unit.scopes == 0;
    }
    if (unit.users == 0) self.shard(u);
  };
  for (const size_t u : chosen) start_gather(u);
  for (const size_t u : chosen) end_gather(u);
  for (const size_t u : chosen) set_scopes(*this, u, 1);
  return HookHandle([self = RefPtr<ParameterUnits>(this), chosen, set_scopes] {
    if (self->units_.empty()) return;  // removed
    for (const size_t u : chosen) set_scopes(*self, u, -1);
  });
}

void ParameterUnits::enter(size_t u) {
  make_ready(u);
  ++units_[u].users;
}

void ParameterUnits::leave(size_t u) {
  --units_[u].users;
  units_[u].is_kept = keep_after_forward_ && !in_backward_ && is_grad_enabled();
  const bool is_called = std::ranges::any_of(units_, [](const Unit& unit) { return unit.users > unit.scopes; });
  if (!is_called && !in_backward_ && !is_grad_enabled()) shard_unused();  // no backward follows
}

void ParameterUnits::make_ready(size_t u, bool replaces) {
  const bool in_backward = RankContext::current().open_autograd.backward != nullptr;
  if (in_backward) watch_backward();
  if (in_backward != in_backward_) end_pass();
  in_backward_ = in_backward;
  Unit& unit = units_[u];
  if (in_backward) unit.is_kept = false;
  std::vector<size_t>& now = now_[in_backward];
  const bool is_same = !now.empty() && now.back() == u && unit.state == State::kReady;
  if (is_same && !(replaces && is_crowded_)) return;
  if (!is_same && now.size() < kMaxOrder) now.push_back(u);
  const std::vector<size_t>& last = last_[in_backward];
  const bool is_known = now.size() < last.size() && last[now.size() - 1] == u;
  const size_t next = is_known ? last[now.size()] : u;
  if (unit.state != State::kReady || u != 0) {  // the root does not replace another unit
    start_gather(u);
    end_gather(u);
    for (size_t other = 1; replaces && other < units_.size(); ++other) {
      if (other != u && other != next && units_[other].users == 0 && !units_[other].is_kept) shard(other);
    }
    is_crowded_ = !replaces;
  }
  start_gather(next);
}

void ParameterUnits::end_pass() {
  for (const size_t pass : {0, 1}) {
    if (!now_[pass].empty()) last_[pass] = std::exchange(now_[pass], {});
  }
}

uint32_t ParameterUnits::hash_of_changes() const {
  uint64_t hash = 0;
  for (size_t b = 0; b < num_buckets(); ++b) hash = hash * 31 + bucket(b).changes;
  return static_cast<uint32_t>(hash ^ hash >> 32);
}

void ParameterUnits::check_changes() const {
  std::vector<std::pair<std::string, int64_t>> hashes;
  for (size_t b = 0; b < num_buckets(); ++b) {
    hashes.emplace_back(label(b), static_cast<int64_t>(bucket(b).changes));
  }
  check_same_hashes(hashes, group(), "these units were given other values",
                    "a rank keeps its pieces only, so all ranks must make the same changes in a scope of gathered(); "
                    "load a state into a new model");
}

void ParameterUnits::start_gather(size_t u) {
  Unit& unit = units_[u];
  if (unit.state != State::kSharded) return;
  for (const size_t b : unit.buckets) reserve(b);  // an error leaves no gather in flight
  for (const size_t b : unit.buckets) unit.gathers.push_back(gather_async(b, str("parameters of ", label(b))));
  unit.state = State::kGathering;
}

void ParameterUnits::end_gather(size_t u) {
  Unit& unit = units_[u];
  if (unit.state != State::kGathering) return;
  for (const Work& gather : unit.gathers) gather.wait();
  unit.gathers.clear();
  for (const size_t b : unit.buckets) provide(b);
  unit.state = State::kReady;
}

void ParameterUnits::shard(size_t u, bool keep_changes) {
  Unit& unit = units_[u];
  if (unit.state == State::kSharded) return;
  for (const Work& gather : unit.gathers) {
    try {
      gather.wait();  // writes to the memory
    } catch (const std::exception& error) {
      log(LogLevel::kDebug, "a gather that was started early failed: ", error.what());
    }
  }
  unit.gathers.clear();
  for (const size_t b : unit.buckets) withdraw(b, keep_changes && unit.state == State::kReady);
  unit.state = State::kSharded;
  unit.is_kept = false;
}

void ParameterUnits::shard_unused() {
  for (size_t u = 0; u < units_.size(); ++u) {
    if (units_[u].users == 0) shard(u);
  }
  end_pass();
}

void ParameterUnits::watch_backward() {
  const void* const running = RankContext::current().open_autograd.backward;
  if (std::exchange(watched_, running) == running) return;
  const std::shared_ptr<void> end(nullptr, [self = RefPtr<ParameterUnits>(this)](void*) {
    self->watched_ = nullptr;
    self->in_backward_ = false;
    self->shard_unused();
  });
  autograd::queue_callback([end] {});  // destroyed with the backward
}

void ParameterUnits::exchange(const std::vector<const autograd::Leaf*>& leaves) {
  for (size_t u = 0; u < units_.size(); ++u) {
    TANDEM_CHECK(StateError, units_[u].users == 0, "the parameters of ", label_of(units_[u].path),
                 " are whole, and would keep their old values in a step or load_state_dict of pieces; end the scope of "
                 "gathered() before");
  }
  if (leaves.empty()) return;
  for (size_t u = 0; u < units_.size(); ++u) shard(u, false);
}

}}}  // namespace tandem::v0::distributed
