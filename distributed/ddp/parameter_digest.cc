#include <tandem/distributed/ddp/parameter_digest.h>

#include <algorithm>
#include <sstream>

#include <tandem/base/tuning.h>
#include <tandem/tensor/factories.h>

namespace tandem { inline namespace v0 { namespace distributed {

namespace {

/// FNV-1a, 64 bits.
uint64_t hash_of(const std::string& text) {
  uint64_t hash = 0xcbf29ce484222325u;
  for (const char c : text) hash = (hash ^ static_cast<uint8_t>(c)) * 0x100000001b3u;
  return hash;
}

std::string line_or_end(std::istringstream& lines) {
  std::string line;
  return std::getline(lines, line) ? line : "(end of list)";
}

/// The subject of the error, from the first lines that differ. One of them may be the end of a rank's list.
const char* subject_of(const std::string& a, const std::string& b) {
  for (const std::string& line : {a, b}) {
    if (line.starts_with("parameter ") || line.starts_with("buffer ")) return "models";
  }
  for (const std::string& line : {a, b}) {
    if (line.starts_with("communication hooks ")) return "communication hooks";
  }
  return "tuning files (TANDEM_TUNING_FILE)";
}

}  // namespace

void check_same_parameters(const std::vector<std::pair<std::string, Tensor>>& parameters,
                           const std::vector<std::pair<std::string, Tensor>>& buffers, const std::string& hooks,
                           ProcessGroup& group) {
  std::string text;
  const auto describe_all = [&text](const char* kind, const auto& tensors) {
    for (const auto& [name, tensor] : tensors) {
      text += str(kind, " '", name, "' ", tensor.dtype(), " ", tensor.shape(),
                  tensor.requires_grad() ? "\n" : ", requires no grad\n");
    }
  };
  describe_all("parameter", parameters);
  describe_all("buffer", buffers);
  if (!hooks.empty()) text += str("communication hooks ", hooks, "\n");
  if (Tuning::from_environment().hash() != 0)
    text += str("tuning file, hash ", Tuning::from_environment().hash(), "\n");

  const auto length = static_cast<int64_t>(text.size());
  const Tensor mine = from_vector<int64_t>({static_cast<int64_t>(hash_of(text)), length}, {2});
  const Tensor all = empty({group.size(), 2}, {kInt64});
  group.all_gather(all, mine, {.name = "digest of the parameters"});
  const std::vector<int64_t> digests = all.to_vector<int64_t>();
  int64_t longest = 0;
  bool same = true;
  for (size_t r = 0; r < digests.size(); r += 2) {
    same = same && digests[r] == digests[0] && digests[r + 1] == digests[1];
    longest = std::max(longest, digests[r + 1]);
  }
  if (same) return;

  // Gather the full descriptions, so that every rank can report the first difference.
  std::vector<uint8_t> padded(text.begin(), text.end());
  padded.resize(static_cast<size_t>(longest));
  const Tensor texts = empty({group.size(), longest}, {kUInt8});
  group.all_gather(texts, from_vector(padded, {longest}), {.name = "description of the parameters"});
  const std::vector<uint8_t> bytes = texts.to_vector<uint8_t>();
  const auto text_of = [&](size_t rank) {
    const auto begin = bytes.begin() + static_cast<int64_t>(rank) * longest;
    return std::string(begin, begin + digests[2 * rank + 1]);
  };
  for (size_t r = 1; r < static_cast<size_t>(group.size()); ++r) {
    std::istringstream first(text_of(0)), other(text_of(r));
    std::string a, b;
    do {
      a = line_or_end(first);
      b = line_or_end(other);
    } while (a == b && a != "(end of list)");
    TANDEM_CHECK(StateError, a == b, "DistributedDataParallel: ranks have different ", subject_of(a, b), "\n  rank ",
                 group.ranks()[0], ": ", a, "\n  rank ", group.ranks()[r], ": ", b);
  }
}

}}}  // namespace tandem::v0::distributed
