// Names connections that are closed because they show no token. Private to distributed/.
#pragma once

#include <string>
#include <utility>

#include <tandem/base/macros.h>

struct sockaddr_storage;

namespace tandem { inline namespace v0 { namespace distributed {

/// The warnings of one listening socket, the first ten of them. Used by one thread at a time.
class TANDEM_API DropLog {
 public:
  /// `owner` begins each warning: "store".
  explicit DropLog(std::string owner) : owner_(std::move(owner)) {}
  /// "store: dropped the connection from 127.0.0.1:41234 (user 1000): why". The user is known where the other end is an
  /// open socket of this network namespace.
  void warn(const sockaddr_storage& other_end, const std::string& why);

 private:
  const std::string owner_;
  int num_warnings_ = 0;
};

}}}  // namespace tandem::v0::distributed
