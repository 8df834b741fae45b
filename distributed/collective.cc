#include <tandem/distributed/collective.h>

namespace tandem::inline v0::distributed {

const char* to_string(CollectiveKind kind) {
  constexpr const char* kNames[] = {"all_reduce", "broadcast", "all_gather", "barrier"};
  return kNames[static_cast<int>(kind)];
}

const char* to_string(ReduceOp op) {
  constexpr const char* kNames[] = {"sum", "avg", "product", "min", "max"};
  return kNames[static_cast<int>(op)];
}

std::string collective_label(int rank, int world_size, CollectiveKind kind, int64_t seq) {
  return str("[rank ", rank, " of ", world_size, "] ", to_string(kind), " #", seq);
}

std::string failure_text(const std::string& headline, int culprit, std::string_view reason) {
  return culprit < 0 ? str(headline, "\n  ", reason) : str(headline, "\n  rank ", culprit, ": ", reason);
}

std::string describe_call(CollectiveKind kind, ReduceOp op, DType dtype, int root, const Shape& shape,
                          std::string_view name, std::string_view file, uint32_t line) {
  std::string text = to_string(kind);
  if (kind == CollectiveKind::kAllReduce) text += str(" ", to_string(op));
  if (kind == CollectiveKind::kBroadcast) text += str(" from ", root);
  if (kind != CollectiveKind::kBarrier) text += str(" ", dtype, " ", shape);
  if (!name.empty()) text += str(", '", name, "'");
  text += str(", ", file, ":", line);
  return text;
}

uint64_t hash_name(std::string_view name) {
  if (name.empty()) return 0;
  uint64_t hash = 0xcbf29ce484222325u;  // FNV-1a
  for (const char c : name) hash = (hash ^ static_cast<unsigned char>(c)) * 0x100000001b3u;
  return hash;
}

}  // namespace tandem::inline v0::distributed
