#include <tandem/distributed/backends/network/receiving_thread.h>

#include <sys/epoll.h>
#include <sys/eventfd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

#include <tandem/base/error.h>
#include <tandem/base/thread.h>
#include <tandem/distributed/backends/network/mesh.h>

namespace tandem { inline namespace v0 { namespace distributed::network {

namespace {

constexpr int kMaxEvents = 16;

void control(const FileDescriptor& events, int operation, int fd, void* data) {
  epoll_event event = {};
  event.events = EPOLLIN;
  event.data.ptr = data;
  epoll_ctl(events.get(), operation, fd, &event);
}

}  // namespace

std::shared_ptr<ReceivingThread> ReceivingThread::get() {
  static struct {
    std::mutex mutex;
    std::weak_ptr<ReceivingThread> thread;
  } instance;
  std::lock_guard lock(instance.mutex);
  std::shared_ptr<ReceivingThread> thread = instance.thread.lock();
  if (thread == nullptr) instance.thread = thread = std::make_shared<ReceivingThread>();
  return thread;
}

ReceivingThread::ReceivingThread()
    : events_(epoll_create1(EPOLL_CLOEXEC)), end_(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)) {
  TANDEM_CHECK(IoError, events_ && end_, "gloo: cannot wait for connections: ", std::strerror(errno));
  control(events_, EPOLL_CTL_ADD, end_.get(), nullptr);
  thread_ = start_thread([this] { run(); });
}

ReceivingThread::~ReceivingThread() {
  eventfd_write(end_.get(), 1);
  thread_.join();
}

void ReceivingThread::add(Mesh& mesh) {
  std::lock_guard lock(mutex_);
  if (meshes_.insert(&mesh).second) control(events_, EPOLL_CTL_ADD, mesh.events(), &mesh);
}

void ReceivingThread::remove(Mesh& mesh) {
  std::lock_guard lock(mutex_);
  if (meshes_.erase(&mesh) > 0) control(events_, EPOLL_CTL_DEL, mesh.events(), nullptr);
}

void ReceivingThread::run() {
  for (Mesh::Clock::time_point next = {};;) {
    epoll_event events[kMaxEvents] = {};
    const int count = epoll_wait(events_.get(), events, kMaxEvents, milliseconds_until(next));
    std::lock_guard lock(mutex_);
    for (int i = 0; i < count; ++i) {
      auto* const mesh = static_cast<Mesh*>(events[i].data.ptr);
      if (mesh == nullptr) return;
      if (meshes_.contains(mesh)) mesh->serve();
    }
    next = Mesh::Clock::now() + SilenceWatch::kInterval;  // also of a mesh that is added meanwhile
    for (Mesh* mesh : meshes_) next = std::min(next, mesh->check());
  }
}

}}}  // namespace tandem::v0::distributed::network
