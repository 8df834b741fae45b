// Deadlines that pass before other ranks come, as launchers show them. Private to distributed/.
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

/// What ranks waited for in vain. Ranks are numbers in the job, ascending.
struct MissingRanks {
  std::vector<int> missing = {};
  std::vector<int> waiting = {};
  int world_size = 0;          ///< of the job; 0: not shown
  std::string group = {};      ///< "": not shown
  std::string operation = {};  ///< "all_reduce (collective 7)"
  std::chrono::milliseconds timeout{0};
  bool have_started = false;  ///< the missing ranks stand still in the operation
};

/// "rank 2 of 3 did not take part in all_reduce (collective 7) within 2.0 s; waiting: ranks 0, 1"; "did not finish" of
/// ranks that have started it.
TANDEM_API std::string to_headline(const MissingRanks& ranks);

/// The error of a rank whose deadline has passed. Launchers show the headline in place of that rank's number.
class TANDEM_API MissingRanksError : public CommError {
 public:
  MissingRanksError(std::string headline, const std::string& what, int rank, int peer, int64_t seq = -1)
      : CommError(what, rank, peer, seq), headline_(std::move(headline)) {}
  const std::string& headline() const { return headline_; }

 private:
  std::string headline_;
};

/// Of a MissingRanksError; "" of other errors.
TANDEM_API std::string headline_of(const std::exception& error);
/// What a rank that ends by `error` announces: what(), after the headline where there is one.
TANDEM_API std::string failure_to_announce(const std::exception& error);
/// "rank 1 of 4 failed (exit status 1): loss is NaN"; the text alone where it has a headline. `how` is "" or " (exit
/// status 1)".
TANDEM_API std::string describe_failure(const std::string& rank, const std::string& how, std::string_view announced);

}}}  // namespace tandem::v0::distributed
