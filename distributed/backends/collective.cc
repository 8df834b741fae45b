#include <tandem/distributed/backends/collective.h>

#include <algorithm>

namespace tandem { inline namespace v0 { namespace distributed {

const char* to_string(CollectiveKind kind) {
  static constexpr const char* kNames[] = {"all_reduce", "reduce",         "broadcast",  "gather", "all_gather",
                                           "scatter",    "reduce_scatter", "all_to_all", "barrier"};
  return kNames[static_cast<int>(kind)];
}

ShownShape& ShownShape::operator=(const Shape& shape) {
  dims = shape.dim();
  std::copy_n(shape.begin(), std::min(shape.size(), kMaxShownDims), sizes);
  return *this;
}

std::string to_string(const ShownShape& shape) {
  const auto dims = static_cast<size_t>(shape.dims);
  const std::string shown = to_string(Shape(std::span(shape.sizes, std::min(dims, kMaxShownDims))));
  return dims <= kMaxShownDims ? shown : str(shown.substr(0, shown.size() - 1), ", ..., ", dims, " dimensions]");
}

std::string describe_call(const Signature& s, const ShownShape& shape, std::string_view tensors, std::string_view name,
                          std::string_view file, uint32_t line) {
  using Kind = CollectiveKind;
  std::string text = to_string(s.kind);
  if (is_reduction(s.kind)) text += str(" ", to_string(s.op));
  if (s.root >= 0) text += str(s.kind == Kind::kReduce || s.kind == Kind::kGather ? " to " : " from ", s.root);
  if (!tensors.empty()) {
    text += str(" ", tensors);
  } else if (s.kind != Kind::kBarrier) {
    text += str(" ", s.dtype, " ", to_string(shape));
  }
  if (s.on_gpu) text += s.in_list ? " on a GPU, in a list" : " on a GPU";
  if (!name.empty()) text += str(", '", name, "'");
  text += str(", ", file, ":", line);
  return text;
}

std::string describe_call(const MessageSignature& s, bool sends, int shown_peer, const ShownShape& shape,
                          std::string_view name, std::string_view file, uint32_t line) {
  std::string text = str(sends ? "send" : "recv", " ", s.dtype, " ", to_string(shape), sends ? " to" : " from",
                         " rank ", shown_peer, " tag ", s.tag);
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

uint64_t hash_shape(const Shape& shape) {
  uint64_t hash = 0xcbf29ce484222325u;
  const auto add = [&hash](int64_t value) {  // maps hashes one to one
    hash = (hash ^ static_cast<uint64_t>(value)) * 0x9e3779b97f4a7c15u;
    hash ^= hash >> 32;
  };
  add(shape.dim());
  for (const int64_t size : shape) add(size);
  return hash;
}

}}}  // namespace tandem::v0::distributed
