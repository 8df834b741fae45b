#include <tandem/tensor/generator.h>

#include <map>
#include <mutex>
#include <utility>

#include <tandem/base/error.h>
#include <tandem/base/rank_context.h>
#include <tandem/tensor/cuda_capture.h>

namespace tandem { inline namespace v0 {

namespace {

/// State of tensor/ in a RankContext.
struct TensorSlot {
  std::mutex mutex;  // guards all members: threads that work for the rank share the slot
  uint64_t seed = 0;
  Device own_device;
  std::map<std::pair<DeviceType, int8_t>, Generator> generators;  // a map: references to its elements stay valid
};

TensorSlot& tensor_slot() {
  std::shared_ptr<void>& slot = RankContext::current().tensor_slot;
  if (slot == nullptr) slot = std::make_shared<TensorSlot>();
  return *static_cast<TensorSlot*>(slot.get());
}

/// 0 for the rank's own device; for others a number that depends only on the device.
uint32_t stream_number(Device device, Device own) {
  if (device == own) return 0;
  return 1 + static_cast<uint32_t>(device.type) * 128 + static_cast<uint32_t>(device.index);
}

}  // namespace

Generator::Generator(uint64_t seed, uint32_t rank, uint32_t device_number) : state_{seed, rank, device_number, 0} {}

void Generator::manual_seed(uint64_t seed) {
  state_.seed = seed;
  state_.offset = 0;
}

PhiloxState Generator::reserve(int64_t num_values) {
  TANDEM_CHECK(ValueError, num_values >= 0, "Generator::reserve: num_values is ", num_values, ", expected at least 0");
  const PhiloxState start = state_;
  state_.offset += (static_cast<uint64_t>(num_values) + 3) / 4;
  return start;
}

PhiloxState Generator::reserve(int64_t num_values, Device device) {
  PhiloxState start = reserve(num_values);
  if (cuda::is_capturing(device)) {
    // `slot` keeps the calling rank's own generators alive as long as the graph.
    const auto replay = [this, num_values, slot = RankContext::current().tensor_slot] { return reserve(num_values); };
    start.of_step = cuda::step_value(device, start, replay);
  }
  return start;
}

State Generator::state_dict() const {
  State state;
  state.set("seed", static_cast<int64_t>(state_.seed));
  state.set("rank", static_cast<int64_t>(state_.rank));
  state.set("device_number", static_cast<int64_t>(state_.device_number));
  state.set("offset", static_cast<int64_t>(state_.offset));
  return state;
}

void Generator::load_state_dict(const State& state) {
  // Read both before writing either, so that an error changes nothing.
  const auto seed = static_cast<uint64_t>(state.get<int64_t>("seed"));
  const auto offset = static_cast<uint64_t>(state.get<int64_t>("offset"));
  state_.seed = seed;
  state_.offset = offset;
}

Device rank_device() {
  TensorSlot& slot = tensor_slot();
  std::lock_guard lock(slot.mutex);
  return slot.own_device;
}

void set_rank_device(Device device) {
  TensorSlot& slot = tensor_slot();
  std::lock_guard lock(slot.mutex);
  TANDEM_CHECK(StateError, slot.generators.empty() || device == slot.own_device,
               "set_rank_device: random numbers were already drawn with rank device ", slot.own_device,
               "; call it before the first use of a generator");
  slot.own_device = device;
}

Generator& default_generator(Device device) {
  TensorSlot& slot = tensor_slot();
  std::lock_guard lock(slot.mutex);
  const auto rank = static_cast<uint32_t>(RankContext::current().rank);
  return slot.generators
      .try_emplace({device.type, device.index}, slot.seed, rank, stream_number(device, slot.own_device))
      .first->second;
}

struct GeneratorPositions::Positions {
  uint64_t seed = 0;
  std::map<std::pair<DeviceType, int8_t>, Generator> generators;

  void read(TensorSlot& slot) {
    std::lock_guard lock(slot.mutex);
    seed = slot.seed;
    generators = slot.generators;
  }
  void write(TensorSlot& slot) const {
    std::lock_guard lock(slot.mutex);
    slot.seed = seed;
    // Generators of these positions may be missing, if another thread runs the backward of a checkpoint.
    for (const auto& [device, generator] : generators) slot.generators.try_emplace(device, generator);
    for (auto& [device, generator] : slot.generators) {
      const auto known = generators.find(device);
      if (known != generators.end()) {
        generator = known->second;
      } else {
        generator.manual_seed(seed);
      }
    }
  }
};

GeneratorPositions::GeneratorPositions() : positions_(std::make_shared<Positions>()) {
  positions_->read(tensor_slot());
  if (cuda::is_capturing()) {
    cuda::on_replay([positions = positions_, slot = RankContext::current().tensor_slot] {
      positions->read(*static_cast<TensorSlot*>(slot.get()));
    });
  }
}

void GeneratorPositions::restore() const {
  positions_->write(tensor_slot());
  if (cuda::is_capturing()) {
    cuda::on_replay([positions = positions_, slot = RankContext::current().tensor_slot] {
      positions->write(*static_cast<TensorSlot*>(slot.get()));
    });
  }
}

void manual_seed(uint64_t seed) {
  TensorSlot& slot = tensor_slot();
  std::lock_guard lock(slot.mutex);
  slot.seed = seed;
  for (auto& [device, generator] : slot.generators) generator.manual_seed(seed);
}

}}  // namespace tandem::v0
