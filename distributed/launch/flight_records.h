// The launcher's side of the flight recorder (group/flight_recorder.h): finds the first operation in which ranks
// differ. Private to distributed/.
#pragma once

#include <string>
#include <vector>

#include <tandem/base/macros.h>
#include <tandem/distributed/launch/rank_processes.h>

namespace tandem { inline namespace v0 { namespace distributed {

/// Sets record_dir: TANDEM_FLIGHT_RECORDER_DIR, else log_dir, else a new name in the temporary folder.
TANDEM_API void set_record_dir(JobOptions* options);

/// Removes the rank's files, of all starts.
TANDEM_API void remove_flight_records(const std::string& folder, int rank);

/// The last lines of the rank's files, each after its path and the name of the group; empty without files.
TANDEM_API std::string read_flight_records(const std::string& folder, int rank, int restart);

/// From the records of each rank: "rank 2 is at all_gather #7 (eval.cc:12), the other ranks are at all_reduce #7
/// (train.cc:41)", and the file of that rank; of the first group in which ranks differ. Empty if no ranks differ.
TANDEM_API std::string describe_first_difference(const std::vector<std::string>& records);

}}}  // namespace tandem::v0::distributed
