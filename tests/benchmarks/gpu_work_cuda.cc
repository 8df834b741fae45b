// Counts what a GPU does in one warm training step, at full size: kernels with their memory accesses, products and
// convolutions of the libraries, copies and fills, each with the operation that it belongs to. The emulated GPU runs a
// few blocks of each kernel. tools/gpu_prediction computes times from the output: a line of JSON per record.
//
//     ./bazelw run --config=cuda-emulated //tests/benchmarks:gpu_work -- --case gpt2-124m-64 --amp
#include <CLI/CLI.hpp>
#include <algorithm>
#include <cmath>
#include <cstdint>
#include <iostream>
#include <memory>
#include <mutex>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include <cuda_emulation/control.h>

#include <tandem/base/trace_clock.h>
#include <tandem/benchmarks/support/cases.h>
#include <tandem/tandem.h>

namespace {

using cuda_emulation::KernelTraffic;
using tandem::Device;
using tandem::TraceEvent;

constexpr uint64_t kSampledBlocks = 4;
// Kernels whose results are indices of later kernels: those of the sort in the backward of embeddings.
const std::vector<std::string> kWhole = {"count_kernel", "scan_kernel", "scatter_kernel"};

int64_t num_tasks() {
  const cuda_emulation::CallCounts counts = cuda_emulation::call_counts();
  return counts.kernels + counts.memory_tasks;
}

/// Times spans by the number of tasks that were given to the GPU, which is the index of the next record.
class TaskClock : public tandem::TraceClock {
 public:
  int64_t mark() noexcept override {
    const std::lock_guard lock(mutex_);
    marks_.push_back(num_tasks() - begin_);
    return static_cast<int64_t>(marks_.size()) - 1;
  }
  std::vector<int64_t> times_ns() override {
    const std::lock_guard lock(mutex_);
    return marks_;
  }

 private:
  const int64_t begin_ = num_tasks();
  std::mutex mutex_;
  std::vector<int64_t> marks_;
};

/// The innermost span of a category among `categories` that contains the record; "" if no span contains it.
std::string span_at(const std::vector<TraceEvent>& events, const std::vector<std::string>& categories, int64_t record) {
  const TraceEvent* best = nullptr;
  for (const TraceEvent& event : events) {
    if (record < event.begin_ns || record >= event.end_ns) continue;
    if (std::find(categories.begin(), categories.end(), event.category) == categories.end()) continue;
    if (best == nullptr || event.end_ns - event.begin_ns <= best->end_ns - best->begin_ns) best = &event;
  }
  return best == nullptr ? "" : best->name;
}

nlohmann::json json_of(const KernelTraffic& record) {
  nlohmann::json line = {{"name", record.kernel}};
  if (record.launches == 0) {
    line["flops"] = record.flops;
    line["bytes"] = record.bytes;
    return line;
  }
  // Per grid, from the blocks that ran.
  const double scale = static_cast<double>(record.blocks) / static_cast<double>(record.blocks_run);
  const auto scaled = [&](int64_t n) { return std::round(scale * static_cast<double>(n)); };
  line["blocks"] = record.blocks;
  line["threads"] = record.threads;
  line["reads"] = scaled(record.reads.requests);
  line["writes"] = scaled(record.writes.requests);
  line["traffic"] = scaled(record.traffic_bytes());
  line["least"] = scaled(record.least_bytes());
  for (const int64_t n : record.widths) line["widths"].push_back(scaled(n));
  line["wavefronts"] = scaled(record.wavefronts);
  line["least_wavefronts"] = scaled(record.least_wavefronts);
  return line;
}

}  // namespace

int main(int argc, char** argv) {
  CLI::App app("Counts the work of a GPU in a training step");
  std::string name;
  bool amp = false;
  app.add_option("--case", name, "training case")->required()->check(CLI::IsMember(tandem::benchmarks::case_names()));
  app.add_flag("--amp", amp, "autocast: matrix products and convolutions in bfloat16");
  CLI11_PARSE(app, argc, argv);
  try {
    tandem::manual_seed(1);
    tandem::benchmarks::TrainingCase training = tandem::benchmarks::make_case(name);
    const Device device("cuda");
    tandem::benchmarks::move_case(training, device);
    if (amp) training.autocast_dtype = tandem::kBFloat16;
    cuda_emulation::set_sampling(kSampledBlocks, kWhole);
    training.step();
    tandem::cuda::synchronize(device);

    cuda_emulation::start_counting();
    tandem::start_trace(std::make_shared<TaskClock>());
    training.step();
    const std::vector<TraceEvent> events = tandem::stop_trace();
    tandem::cuda::synchronize(device);
    const std::vector<KernelTraffic> records = cuda_emulation::stop_counting();
    std::cout << nlohmann::json{{"case", name}, {"amp", amp}, {"items", training.items_per_step}} << "\n";
    for (size_t i = 0; i < records.size(); ++i) {
      nlohmann::json line = json_of(records[i]);
      const auto at = static_cast<int64_t>(i);
      line["op"] = span_at(events, {"op", "copy", "backward", "optimizer"}, at);
      line["backward"] = !span_at(events, {"backward"}, at).empty();
      std::cout << line << "\n";
    }
  } catch (const tandem::Error& error) {
    std::cerr << error.what() << "\n";
    return 2;
  }
}
