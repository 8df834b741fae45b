// tensor/cuda.h in a build without CUDA.
#include <tandem/base/error.h>
#include <tandem/base/rank_context.h>
#include <tandem/tensor/cuda.h>
#include <tandem/tensor/cuda_capture.h>
#include <tandem/tensor/cuda_graph.h>
#include <tandem/tensor/cuda_memory.h>
#include <tandem/tensor/cuda_primitives.h>

namespace tandem { inline namespace v0 { namespace cuda {

namespace {

[[noreturn]] void throw_not_built(Device device) {
  throw DeviceError(
      with_module_scope(str(device, ": this build of tandem has no CUDA support; build with --config=cuda")));
}

}  // namespace

bool is_built() { return false; }
int device_count() { return 0; }

void check_device(Device device) {
  TANDEM_CHECK(DeviceError, !device.is_cpu(), device, ": is not a GPU");
  throw_not_built(device);
}

const DeviceProperties& device_properties(Device device) { throw_not_built(device); }

Versions versions() { return {}; }

struct Stream::Impl {};
Stream::Stream(Device device, bool) { throw_not_built(device); }
Device Stream::device() const { return {}; }
void* Stream::handle() const { return nullptr; }
uint64_t Stream::id() const { return 0; }
void Stream::synchronize() const {}
bool Stream::is_idle() const { return true; }
Stream current_stream(Device device) { throw_not_built(device); }
Stream side_stream(Device device, int) { throw_not_built(device); }

StreamGuard::StreamGuard(std::vector<Stream> streams) : streams_(std::move(streams)), previous_(nullptr) {}
StreamGuard::~StreamGuard() = default;

struct Event::Impl {};
Event::Event(Device device, bool) { throw_not_built(device); }
Device Event::device() const { return {}; }
void Event::record(const Stream&) const {}
void Event::make_wait(const Stream&) const {}
bool Event::is_completed() const { return true; }
void Event::synchronize() const {}
double Event::milliseconds_since(const Event&) const { return 0; }

void synchronize(Device device) { check_device(device); }

struct Graph::Impl {};
Graph::Graph(Device device) { throw_not_built(device); }
Graph::~Graph() = default;
void Graph::capture(const std::function<void()>&) {}
void Graph::replay() {}
bool is_capturing(Device) { return false; }
bool is_capturing() { return false; }
void check_not_capturing(const char*) {}
uint64_t capture_id() { return 0; }
void observe_replays(std::shared_ptr<ReplayObserver>) {}
Stream fork_capture(Device device) { throw_not_built(device); }
std::shared_ptr<const CapturePoint> capture_point() { return nullptr; }
void join_capture(const CapturePoint&) {}
void on_replay(std::function<void()>) {}
void on_failed_capture(std::function<void()>) {}
bool is_allocated_in_capture(const Tensor&) { return false; }
Tensor step_block(Device) { return {}; }
void fill_in_replays(const Tensor&, std::function<double()>) {}
Tensor add_step_bytes(const void*, size_t, std::function<void(void*)>) { return {}; }

uint64_t current_stream_id(Device device) { throw_not_built(device); }
void* system_allocate(Device device, int64_t) { throw_not_built(device); }
void wait_for_work(Device) noexcept {}
void system_free(Device, void*) noexcept {}
int64_t available_bytes(Device device) { throw_not_built(device); }

void copy_bytes(Device device, void*, const void*, int64_t) { throw_not_built(device); }
void fill(const Tensor& out, Scalar) { throw_not_built(out.device()); }
void fill_range(const Tensor& out, int64_t, int64_t) { throw_not_built(out.device()); }
void fill_linear(const Tensor& out, double, int64_t, double) { throw_not_built(out.device()); }
void copy(const Tensor& src, const Tensor& out) {
  throw_not_built(src.device().is_cpu() ? out.device() : src.device());
}
bool can_access_peer(Device device, Device) { throw_not_built(device); }
void sum(std::span<const Tensor>, const Tensor& out) { throw_not_built(out.device()); }
void add_into(const Tensor&, const Tensor& out) { throw_not_built(out.device()); }
bool bytes_equal(const Tensor& a, const Tensor&) { throw_not_built(a.device()); }

void set_allow_tf32(bool allow) { RankContext::current().allow_tf32 = allow; }
bool allow_tf32() { return RankContext::current().allow_tf32; }

}}}  // namespace tandem::v0::cuda
