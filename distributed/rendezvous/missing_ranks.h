// Errors about ranks that are missing at a deadline, in the form that launchers show. Private to distributed/.
#pragma once

#include <chrono>
#include <exception>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <tandem/base/error.h>
#include <tandem/base/macros.h>

namespace tandem { inline namespace v0 { namespace distributed {

/// The missing and the waiting ranks of an operation: ranks in the job, ascending.
struct MissingRanks {
  std::vector<int> missing = {};
  std::vector<int> waiting = {};
  int world_size = 0;          ///< of the job; 0: not shown
  std::string group = {};      ///< "": not shown
  std::string operation = {};  ///< "all_reduce (collective 7)"
  std::chrono::milliseconds timeout{0};
  bool have_started = false;  ///< the missing ranks have started the operation but do not finish it
};

/// "rank 2 of 3 did not take part in all_reduce (collective 7) within 2.0 s; waiting: ranks 0, 1"; "did not finish" if
/// the missing ranks have started it.
TANDEM_API std::string to_headline(const MissingRanks& ranks);

/// The error of a rank whose deadline has passed. Launchers show its headline instead of the rank's number.
class TANDEM_API MissingRanksError : public CommError {
 public:
  MissingRanksError(std::string headline, const std::string& what, int rank, int peer, int64_t seq = -1)
      : CommError(what, rank, peer, seq), headline_(std::move(headline)) {}
  const std::string& headline() const { return headline_; }

 private:
  std::string headline_;
};

/// The headline of a MissingRanksError; "" for other errors.
TANDEM_API std::string headline_of(const std::exception& error);
/// The text that a rank announces when it ends with `error`: the headline, if there is one, and what().
TANDEM_API std::string failure_to_announce(const std::exception& error);
/// "rank 1 of 4 failed (exit status 1): loss is NaN"; only `announced` if that has a headline. `how` is "" or " (exit
/// status 1)".
TANDEM_API std::string describe_failure(const std::string& rank, const std::string& how, std::string_view announced);

}}}  // namespace tandem::v0::distributed
