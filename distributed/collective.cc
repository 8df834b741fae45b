#include <tandem/distributed/collective.h>

namespace tandem::inline v0::distributed {

const char* to_string(CollectiveKind kind) {
  constexpr const char* kNames[] = {"all_reduce", "reduce",         "broadcast",  "gather", "all_gather",
                                    "scatter",    "reduce_scatter", "all_to_all", "barrier"};
  return kNames[static_cast<int>(kind)];
}

std::string failure_text(const std::string& headline, int culprit, std::string_view reason) {
  return culprit < 0 ? str(headline, "\n  ", reason) : str(headline, "\n  rank ", culprit, ": ", reason);
}

std::string describe_call(const Signature& s, const Shape& shape, std::string_view name, std::string_view file,
                          uint32_t line) {
  using Kind = CollectiveKind;
  std::string text = to_string(s.kind);
  const bool reduces = s.kind == Kind::kAllReduce || s.kind == Kind::kReduce || s.kind == Kind::kReduceScatter;
  if (reduces) text += str(" ", to_string(s.op));
  if (s.root >= 0) text += str(s.kind == Kind::kReduce || s.kind == Kind::kGather ? " to " : " from ", s.root);
  if (s.kind != Kind::kBarrier) text += str(" ", s.dtype, " ", shape);
  if (s.on_gpu) text += s.in_list ? " on a GPU, in a list" : " on a GPU";
  if (!name.empty()) text += str(", '", name, "'");
  text += str(", ", file, ":", line);
  return text;
}

std::string describe_call(const Transfer& t, int shown_peer) {
  return describe_call(t, shown_peer, t.where.file_name(), t.where.line());
}

std::string describe_call(const Transfer& t, int shown_peer, std::string_view file, uint32_t line) {
  std::string text = str(t.sends ? "send" : "recv", " ", t.dtype, " ", t.shape, t.sends ? " to" : " from", " rank ",
                         shown_peer, " tag ", t.tag);
  if (!t.name.empty()) text += str(", '", t.name, "'");
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
