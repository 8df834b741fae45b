#include <tandem/distributed/rendezvous/missing_ranks.h>

#include <tandem/distributed/rendezvous/failure_board.h>

namespace tandem { inline namespace v0 { namespace distributed {

namespace {

constexpr std::string_view kWaiting = "; waiting: rank";

/// The ranks in the form that follows "rank": " 2", "s 0, 1" or "s 0-5, 7".
std::string list(const std::vector<int>& ranks) {
  std::string text = ranks.size() == 1 ? "" : "s";
  for (size_t i = 0; i < ranks.size();) {
    size_t last = i;
    while (last + 1 < ranks.size() && ranks[last + 1] == ranks[last] + 1) ++last;
    if (last < i + 2) last = i;
    text += str(i == 0 ? " " : ", ", ranks[i]);
    if (last > i) text += str("-", ranks[last]);
    i = last + 1;
  }
  return text;
}

bool has_headline(std::string_view announced) {
  return announced.starts_with("rank") &&
         announced.substr(0, announced.find('\n')).find(kWaiting) != std::string_view::npos;
}

}  // namespace

std::string to_headline(const MissingRanks& ranks) {
  return str("rank", list(ranks.missing), ranks.world_size > 0 ? str(" of ", ranks.world_size) : "",
             ranks.have_started ? " did not finish " : " did not take part in ", ranks.operation,
             ranks.group.empty() ? "" : str(" of group '", ranks.group, "'"), " within ", format_seconds(ranks.timeout),
             kWaiting, list(ranks.waiting));
}

std::string headline_of(const std::exception& error) {
  const auto* const missing = dynamic_cast<const MissingRanksError*>(&error);
  return missing == nullptr ? "" : missing->headline();
}

std::string failure_to_announce(const std::exception& error) {
  const std::string headline = headline_of(error);
  return headline.empty() ? error.what() : str(headline, "\n", error.what());
}

std::string describe_failure(const std::string& rank, const std::string& how, std::string_view announced) {
  if (has_headline(announced)) return std::string(announced);
  return str(rank, " failed", how, announced.empty() ? "" : ": ", announced);
}

}}}  // namespace tandem::v0::distributed
