#include <tandem/distributed/group/operation.h>

#include <tandem/base/format.h>
#include <tandem/distributed/rendezvous/failure_board.h>

namespace tandem { inline namespace v0 { namespace distributed {

std::string CollectiveOperation::title() const { return str(to_string(collective.kind), " #", collective.seq); }

int64_t CollectiveOperation::num_bytes() const {
  if (collective.kind != CollectiveKind::kAllToAll) return collective.num_bytes();
  int64_t count = 0;
  for (const Part& part : collective.inputs) count += part.num_elements;
  return count * size_of(collective.dtype);
}

std::string CollectiveOperation::payload() const {
  if (collective.kind == CollectiveKind::kBarrier) return {};
  const int64_t bytes = num_bytes();
  return str(bytes / size_of(collective.dtype), " ", collective.dtype, " (", format_bytes(bytes), ")");
}

std::string CollectiveOperation::shown_name() const {
  return collective.name.empty() ? to_string(collective.kind) : collective.name;
}

std::string Message::title() const {
  return str(transfer.sends ? "send to rank " : "recv from rank ", shown_peer, " tag ", transfer.tag);
}

std::string Message::payload() const {
  return str(transfer.num_elements, " ", transfer.dtype, " (", format_bytes(transfer.num_bytes()), ")");
}

std::string Message::shown_name() const {
  return !transfer.name.empty() ? transfer.name : transfer.sends ? "send" : "recv";
}

int64_t MessageBatch::num_bytes() const {
  int64_t bytes = 0;
  for (const GpuTransfer& transfer : transfers) bytes += transfer.num_elements * size_of(transfer.dtype);
  return bytes;
}

std::string describe_last(const LastStarted& last, const char* last_word) {
  if (last.seq == 0) return "has started nothing yet";
  // The number follows the kind: "all_gather" #1860 "'control record'".
  const size_t kind_size = std::min(last.what.find(' '), last.what.size());
  const std::string kind = last.what.substr(0, kind_size);
  const auto ago = std::chrono::duration_cast<std::chrono::milliseconds>(last.ago);
  return str(last_word, " ", kind, kind.empty() ? "" : " ", "#", last.seq, last.what.substr(kind_size), ", ",
             format_seconds(ago), " ago");
}

}}}  // namespace tandem::v0::distributed
