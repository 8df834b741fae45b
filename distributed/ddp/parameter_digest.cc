#include <tandem/distributed/ddp/parameter_digest.h>

#include <algorithm>
#include <iterator>
#include <string_view>

#include <tandem/base/tuning.h>
#include <tandem/tensor/factories.h>
#include <tandem/tensor/primitives.h>

namespace tandem { inline namespace v0 { namespace distributed {

namespace {

/// FNV-1a, 64 bits.
uint64_t hash_of(std::string_view text) {
  uint64_t hash = 0xcbf29ce484222325u;
  for (const char c : text) hash = (hash ^ static_cast<uint8_t>(c)) * 0x100000001b3u;
  return hash;
}

std::string line_or_end(const std::string& lines, size_t begin) {
  return begin == lines.size() ? "(end of list)" : lines.substr(begin, lines.find('\n', begin) - begin);
}

/// The subject of the error, from the first lines that differ. One of them may be the end of a rank's list.
const char* subject_of(const std::string& a, const std::string& b) {
  for (const std::string& line : {a, b}) {
    if (line.starts_with("parameter ") || line.starts_with("buffer ")) return "models";
  }
  for (const std::string& line : {a, b}) {
    if (line.starts_with("communication hooks ")) return "communication hooks";
    if (line.starts_with("shard ")) return "values of the option shard";
  }
  return "tuning files (TANDEM_TUNING_FILE)";
}

}  // namespace

void check_same_parameters(const std::vector<std::pair<std::string, Tensor>>& parameters,
                           const std::vector<std::pair<std::string, Tensor>>& buffers, const std::string& options,
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
  text += options;
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
    const std::string first = text_of(0), other = text_of(r);
    const auto differs = std::mismatch(first.begin(), first.end(), other.begin(), other.end()).first;
    const auto begin = std::find(std::make_reverse_iterator(differs), first.rend(), '\n').base() - first.begin();
    const std::string a = line_or_end(first, static_cast<size_t>(begin));
    const std::string b = line_or_end(other, static_cast<size_t>(begin));
    TANDEM_CHECK(StateError, first == other, "DistributedDataParallel: ranks have different ", subject_of(a, b),
                 "\n  rank ", group.ranks()[0], ": ", a, "\n  rank ", group.ranks()[r], ": ", b);
  }
}

std::string on_ranks(const ProcessGroup& group, const std::vector<size_t>& indices) {
  std::string text = indices.size() == 1 ? " on rank" : " on ranks";
  for (const size_t r : indices) text += str(" ", group.ranks()[r]);
  return text;
}

int64_t hash_of_values(const Tensor& tensor) {
  const Tensor values = empty(tensor.shape(), {tensor.dtype()});  // on the CPU
  primitives::copy(tensor, values);
  const auto* const bytes = reinterpret_cast<const char*>(values.data_ptr());
  return static_cast<int64_t>(hash_of({bytes, static_cast<size_t>(values.num_bytes())}));
}

void check_same_hashes(const std::vector<std::pair<std::string, int64_t>>& hashes, ProcessGroup& group,
                       const char* error, const char* advice) {
  std::vector<int64_t> mine;
  for (const auto& [subject, hash] : hashes) mine.push_back(hash);
  const auto count = static_cast<int64_t>(hashes.size());
  const Tensor gathered = empty({group.size(), count}, {kInt64});
  group.all_gather(gathered, from_vector(mine, {count}), {.name = "hashes of the parameters"});
  const std::vector<int64_t> all = gathered.to_vector<int64_t>();
  std::string differing;
  for (size_t p = 0; p < hashes.size(); ++p) {
    std::vector<size_t> ranks;
    for (size_t r = 1; r < static_cast<size_t>(group.size()); ++r) {
      if (all[r * hashes.size() + p] != all[p]) ranks.push_back(r);
    }
    if (!ranks.empty()) differing += str("\n  ", hashes[p].first, on_ranks(group, ranks));
  }
  TANDEM_CHECK(StateError, differing.empty(), "DistributedDataParallel: ", error, " than on rank ", group.ranks()[0],
               differing, "\n  ", advice);
}

void check_same_values(const std::vector<std::pair<std::string, Tensor>>& parameters, ProcessGroup& group) {
  std::vector<std::pair<std::string, int64_t>> hashes;
  for (const auto& [name, tensor] : parameters) hashes.emplace_back(str("'", name, "'"), hash_of_values(tensor));
  check_same_hashes(hashes, group, "these parameters have other values",
                    "change parameters and take optimizer steps on all ranks alike, and after backward");
}

void check_same_tensors(const char* kind, const std::vector<std::pair<std::string, Tensor>>& known,
                        const std::vector<std::pair<std::string, Tensor>>& now) {
  for (size_t i = 0; i < std::max(known.size(), now.size()); ++i) {
    const bool is_known = i < known.size() && i < now.size() && &known[i].second.impl() == &now[i].second.impl();
    TANDEM_CHECK(StateError, is_known, "DistributedDataParallel: the ", kind, " '",
                 i < known.size() ? known[i].first : now[i].first,
                 "' is not the tensor that it was at construction; set values with copy_() instead of assigning a "
                 "tensor, or make a new DistributedDataParallel");
  }
}

}}}  // namespace tandem::v0::distributed
