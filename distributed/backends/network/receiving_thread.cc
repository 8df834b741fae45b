#include <tandem/distributed/backends/network/receiving_thread.h>

#include <sys/epoll.h>
#include <sys/eventfd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <iterator>

#include <tandem/base/error.h>
#include <tandem/base/thread.h>
#include <tandem/distributed/backends/network/mesh.h>

namespace tandem { inline namespace v0 { namespace distributed::network {

namespace {

constexpr int kMaxEvents = 16;

void watch(const FileDescriptor& events, int fd, void* data) {
  epoll_event event = {};
  event.events = EPOLLIN | EPOLLET;  // while a rank reads, its events would wake this thread again and again
  event.data.ptr = data;
  TANDEM_CHECK(ResourceError, epoll_ctl(events.get(), EPOLL_CTL_ADD, fd, &event) == 0,
               "gloo: epoll_ctl failed: ", std::strerror(errno));
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
  watch(events_, end_.get(), nullptr);
  thread_ = start_thread([this] { run(); });
}

ReceivingThread::~ReceivingThread() {
  eventfd_write(end_.get(), 1);
  thread_.join();
}

void ReceivingThread::add(Mesh& mesh) {
  std::lock_guard lock(mutex_);
  if (meshes_.insert(&mesh).second) watch(events_, mesh.events(), &mesh);
}

void ReceivingThread::remove(Mesh& mesh) {
  std::unique_lock lock(mutex_);
  if (meshes_.erase(&mesh) > 0) epoll_ctl(events_.get(), EPOLL_CTL_DEL, mesh.events(), nullptr);
  served_.wait(lock, [&] { return serving_ != &mesh; });
}

void ReceivingThread::run() {
  std::set<Mesh*> ready;
  for (Mesh::Clock::time_point next = {};;) {
    epoll_event events[kMaxEvents] = {};
    const int count = epoll_wait(events_.get(), events, kMaxEvents, ready.empty() ? milliseconds_until(next) : 0);
    for (int i = 0; i < count; ++i) {
      if (events[i].data.ptr == nullptr) return;
      ready.insert(static_cast<Mesh*>(events[i].data.ptr));
    }
    std::unique_lock lock(mutex_);
    for (auto place = ready.begin(); place != ready.end();) {
      const bool is_served = meshes_.contains(*place);
      serving_ = is_served ? *place : nullptr;
      lock.unlock();
      const bool has_more = is_served && (*place)->serve();
      lock.lock();
      serving_ = nullptr;
      served_.notify_all();
      place = has_more ? std::next(place) : ready.erase(place);
    }
    next = Mesh::Clock::now() + SilenceWatch::kInterval;  // also of a mesh that is added meanwhile
    for (Mesh* mesh : meshes_) next = std::min(next, mesh->check());
  }
}

}}}  // namespace tandem::v0::distributed::network
