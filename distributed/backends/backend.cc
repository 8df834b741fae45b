#include <tandem/distributed/backends/backend.h>

#include <utility>

#include <tandem/distributed/rendezvous/failure_board.h>

namespace tandem { inline namespace v0 { namespace distributed {

void Backend::do_notify(const std::function<void()>&) {
  throw StateError(str(name(), ": cannot be combined with other backends in one group"));
}

void throw_peer_error(const ProcessGroupOptions& options, int rank, const std::string& reason) {
  const int culprit = job_rank(options, rank);
  throw GroupError(failure_text(" failed", culprit, reason), reason, culprit);
}

void throw_call_mismatch(const ProcessGroupOptions& options, RankCall one, RankCall other) {
  const int culprit = job_rank(options, one.rank == options.rank ? other.rank : one.rank);
  if (job_rank(options, other.rank) < job_rank(options, one.rank)) std::swap(one, other);
  std::string text = "calls do not match across ranks";
  for (const RankCall& c : {one, other}) text += str("\n  rank ", job_rank(options, c.rank), "  ", c.call);
  throw GroupError(": " + text, text, culprit, {}, true);
}

void throw_parts_disagree(const ProcessGroupOptions& options, DType dtype, const RankCall& sender,
                          const ShownShape& sent, const RankCall& receiver, const ShownShape& expected) {
  const auto call = [&](const RankCall& c, const char* verb, const ShownShape& shape, const char* preposition,
                        int peer) {
    return RankCall{c.rank, str(verb, " ", dtype, " ", to_string(shape), " ", preposition, " rank ",
                                job_rank(options, peer), ": ", c.call)};
  };
  throw_call_mismatch(options, call(sender, "sends", sent, "to", receiver.rank),
                      call(receiver, "expects", expected, "from", sender.rank));
}

namespace {

// Prefix and suffix of the CPU backend's name in "cpu:gloo,cuda:nccl".
constexpr std::string_view kCpu = "cpu:", kAndNccl = ",cuda:nccl";

bool is_mixed(std::string_view text) { return text.starts_with(kCpu) && text.ends_with(kAndNccl); }

}  // namespace

bool moves_gpu_tensors(const ProcessGroupOptions& options) {
  return options.backend == "auto" || is_mixed(options.backend);
}

std::string cpu_backend(const ProcessGroupOptions& options) {
  const std::string& text = options.backend;
  return is_mixed(text) ? text.substr(kCpu.size(), text.size() - kCpu.size() - kAndNccl.size()) : text;
}

}}}  // namespace tandem::v0::distributed
