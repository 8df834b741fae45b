#include <tandem/ops/move.h>

#include <algorithm>
#include <memory>
#include <utility>

#include <tandem/base/format.h>
#include <tandem/ops/common/common.h>
#include <tandem/ops/move/device_copy.h>
#include <tandem/tensor/allocator.h>
#include <tandem/tensor/bandwidth.h>
#include <tandem/tensor/cuda.h>

namespace tandem { inline namespace v0 {

namespace {

using Clock = std::chrono::steady_clock;

constexpr int64_t kLargeBytes = int64_t{1} << 20;

void check_input(const char* op, const Tensor& input) {
  TANDEM_CHECK(StateError, input.defined(), ops::operand_error(op, "input is undefined", {{"input", input}}));
}

}  // namespace

Tensor to(const Tensor& input, Device device) {
  check_input("to", input);
  if (input.device() == device) return input;
  // Small tensors skip the check: querying the free memory would take longer than the copy.
  if (input.num_bytes() >= kLargeBytes) {
    ops::DeviceCopy transfer("to", {});
    transfer.expect_copy(input, device);
    transfer.check_memory();
  }
  const Tensor output = empty(input.shape(), {input.dtype(), device});
  primitives::copy(input, output);
  return ops::record_move("to", input, output);
}

Tensor Tensor::to(Device device) const { return tandem::to(*this, device); }

Future<Tensor> to_async(const Tensor& input, Device device, const TransferOptions& options) {
  check_input("to_async", input);
  Promise<Tensor> promise;
  ops::DeviceCopy transfer("to_async", options);
  if (input.device() == device) {
    promise.set_value(input);
    return promise.future();
  }
  ops::expect_moves(transfer, {input}, {&device, 1});
  transfer.check_memory();
  Tensor output = empty(input.shape(), {input.dtype(), device});
  transfer.add({input.detach()}, {output.detach()});
  ops::record_move("to_async", input, output);
  const std::shared_ptr<RunningChunks> running =
      transfer.start([promise, result = std::move(output), storage = input.storage(),
                      version = input.version()](std::exception_ptr error) mutable {
        if (!error && storage->version() != version) {
          error = std::make_exception_ptr(StateError(str("to_async: input was changed in place by ",
                                                         storage->last_writer(), " before the move was complete")));
        }
        storage = {};
        if (!error) return promise.set_value(std::exchange(result, {}));
        result = {};  // released before the failure is published
        promise.set_exception(std::move(error));
      });
  if (running != nullptr) {
    // A waiting thread with a deadline does not help, because the duration of a chunk is not bounded.
    promise.set_help(
        [running](Clock::time_point deadline) { return deadline == Clock::time_point::max() && running->help(); });
    promise.set_cancel([running] { return running->cancel(); });
  }
  return promise.future();
}

std::vector<Tensor> gather_to(Device device, const std::vector<Tensor>& tensors, const TransferOptions& options) {
  ops::check_tensors("gather_to", tensors);
  return ops::move_each("gather_to", tensors, std::vector<Device>(tensors.size(), device), options);
}

namespace {

MovePlan planned(const char* op, const std::vector<Tensor>& tensors, Device device, const TransferOptions& options) {
  ops::check_tensors(op, tensors);
  ops::DeviceCopy transfer(op, options);
  transfer.expect_result(device, 0);  // lists the target first, even if all tensors are there already
  ops::expect_moves(transfer, tensors, std::vector<Device>(tensors.size(), device));
  return transfer.plan(true);
}

std::string format_time(std::chrono::nanoseconds time) {
  return format_fixed(std::chrono::duration<double, std::milli>(time).count(), 1) + " ms";
}

std::string format_bandwidth(double bytes_per_second) {
  return bytes_per_second == 0 ? "-" : format_fixed(bytes_per_second / 1e9, 1) + " GB/s";
}

}  // namespace

MovePlan plan_move(const std::vector<Tensor>& tensors, Device device, const TransferOptions& options) {
  return planned("plan_move", tensors, device, options);
}

bool MovePlan::fits() const {
  return std::all_of(requirements.begin(), requirements.end(),
                     [](const MemoryRequirement& requirement) { return requirement.fits(); });
}

std::string to_string(const MovePlan& plan) {
  std::string text = str(format_bytes(plan.num_bytes), " (", plan.num_bytes, " bytes) in ", plan.num_chunks,
                         plan.num_chunks == 1 ? " chunk" : " chunks");
  if (plan.expected_time.count() > 0) text += str(", about ", format_time(plan.expected_time));
  for (const MemoryRequirement& requirement : plan.requirements) {
    text += str("\n  ", requirement.device, ": ", requirement.result_bytes, " bytes for results, ",
                requirement.staging_bytes, " for chunks in flight; free ", requirement.free_bytes,
                requirement.fits() ? "" : "  <- too little");
  }
  return text;
}

DeviceSuggestion suggest_device(const std::vector<Tensor>& tensors, const std::vector<Device>& candidates,
                                const TransferOptions& options) {
  DeviceSuggestion suggestion;
  std::vector<Device> devices = candidates;
  if (devices.empty()) {
    for (int i = 0; i < cpu_device_count(); ++i) devices.emplace_back(DeviceType::kCPU, i);
    for (int i = 0; i < cuda::device_count(); ++i) devices.push_back(Device::cuda(i));
  }
  bool all_known = true;
  suggestion.choices.reserve(devices.size());
  for (const Device device : devices) {
    DeviceChoice& choice = suggestion.choices.emplace_back();
    choice.device = device;
    choice.plan = planned("suggest_device", tensors, device, options);
    bool known = true;
    for (const Tensor& tensor : tensors) {
      if (tensor.device() == device || tensor.num_bytes() == 0) continue;
      const double bandwidth = device_bandwidth(tensor.device(), device);
      known = known && bandwidth > 0;
      if (choice.bytes_per_second == 0 || bandwidth < choice.bytes_per_second) choice.bytes_per_second = bandwidth;
    }
    if (!known) choice.bytes_per_second = 0;
    all_known = all_known && (known || !choice.plan.fits());
  }
  // Times are compared only if all of them are known.
  const auto order = [&](const DeviceChoice& c) {
    return std::pair(all_known ? c.plan.expected_time : std::chrono::nanoseconds(0), c.plan.num_bytes);
  };
  const DeviceChoice* best = nullptr;
  for (const DeviceChoice& choice : suggestion.choices) {
    if (choice.plan.fits() && (best == nullptr || order(choice) < order(*best))) best = &choice;
  }
  if (best != nullptr) suggestion.best = best->device;
  return suggestion;
}

std::string to_string(const DeviceSuggestion& suggestion) {
  std::string text;
  const auto spaces = [](const std::string& cell, size_t width) {
    return std::string(width - std::min(width, cell.size()), ' ');
  };
  const auto row = [&](const std::string& device, const std::string& free, const std::string& needed,
                       const std::string& moved, const std::string& bandwidth, const std::string& time,
                       const std::string& note) {
    text += device + spaces(device, 8) + spaces(free, 12) + free + spaces(needed, 12) + needed + spaces(moved, 12) +
            moved + spaces(bandwidth, 13) + bandwidth + spaces(time, 12) + time + note;
  };
  row("device", "free", "needed", "to move", "bandwidth", "time", "");
  for (const DeviceChoice& choice : suggestion.choices) {
    const MemoryRequirement& target = choice.plan.requirements.front();
    text += "\n";
    row(to_string(choice.device), format_bytes(target.free_bytes),
        format_bytes(target.result_bytes + target.staging_bytes), format_bytes(choice.plan.num_bytes),
        format_bandwidth(choice.bytes_per_second),
        choice.plan.num_bytes > 0 && choice.bytes_per_second == 0 ? "?" : format_time(choice.plan.expected_time),
        !choice.plan.fits()                ? "  does not fit"
        : suggestion.best == choice.device ? "  <- suggested"
                                           : "");
  }
  return text;
}

}}  // namespace tandem::v0
