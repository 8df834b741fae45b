// Warnings about connections that are closed because they did not send the token. Private to distributed/.
#pragma once

#include <string>
#include <utility>

#include <tandem/base/macros.h>

struct sockaddr_storage;

namespace tandem { inline namespace v0 { namespace distributed {

/// Logs the first ten warnings about one listening socket. Not thread-safe.
class TANDEM_API DropLog {
 public:
  /// `owner` is the prefix of each warning: "store".
  explicit DropLog(std::string owner) : owner_(std::move(owner)) {}
  /// "store: dropped the connection from 127.0.0.1:41234 (user 1000): why". The user is shown if the other end is an
  /// open socket of this network namespace.
  void warn(const sockaddr_storage& other_end, const std::string& why);

 private:
  const std::string owner_;
  int num_warnings_ = 0;
};

}}}  // namespace tandem::v0::distributed
