// The thread that receives for the groups of a process. Private to distributed/backends/network.
#pragma once

#include <condition_variable>
#include <memory>
#include <mutex>
#include <set>
#include <thread>

#include <tandem/distributed/rendezvous/socket.h>

namespace tandem { inline namespace v0 { namespace distributed::network {

class Mesh;

/// One thread per process, which serves meshes whose ranks are busy or sleep elsewhere.
class ReceivingThread {
 public:
  /// The thread of this process, which is started if no group has it. Throws ResourceError.
  static std::shared_ptr<ReceivingThread> get();
  ReceivingThread();
  ~ReceivingThread();

  void add(Mesh& mesh);
  /// After it the thread does not use the mesh.
  void remove(Mesh& mesh);

 private:
  void run();

  const FileDescriptor events_;
  const FileDescriptor end_;
  std::mutex mutex_;  // guards the members below
  std::condition_variable served_;
  std::set<Mesh*> meshes_;
  Mesh* serving_ = nullptr;
  std::thread thread_;
};

}}}  // namespace tandem::v0::distributed::network
