// launch's flags.  Private to distributed/.
#pragma once

#include <chrono>
#include <optional>
#include <string>
#include <vector>

#include <tandem/base/macros.h>
#include <tandem/tensor/device.h>

namespace tandem { inline namespace v0 { namespace distributed {

struct LaunchFlags {
  std::optional<int> num_ranks;
  std::vector<Device> devices;  ///< of thread ranks; none: no --devices
  std::string device;           ///< of each rank: "cpu", "cuda", "auto"; empty: no --device
  std::string log_dir;
  bool tee = false;
  int max_restarts = 0;
  std::optional<std::chrono::milliseconds> timeout;
};

/// Takes the flags out of argv, as far as "--".  Throws ValueError for a missing or wrong value; argv is then
/// unchanged.
TANDEM_API LaunchFlags take_launch_flags(int& argc, char** argv);

/// A number of restarts; throws ValueError "what: ...".
TANDEM_API int parse_num_restarts(const std::string& what, const std::string& text);

/// Where the rank computes whose number among the host's `num_local_ranks` is `local_rank`; `choice`, of `what`, is "cpu", "cuda" (the
/// GPU of that number) or "auto" (the same where there are enough).  `is_shown_its_own`: CUDA_VISIBLE_DEVICES is the rank's own, so that
/// fewer GPUs than ranks are those of the ranks that see them: it takes the one of its number modulo their count.  Throws ValueError for another one or where there is no such GPU.
TANDEM_API Device choose_device(const std::string& what, const std::string& choice, int local_rank, int num_local_ranks,
                                bool is_shown_its_own);

/// Says so in one line where there are more ranks than cores.
TANDEM_API void warn_if_crowded(int num_ranks);

}}}  // namespace tandem::v0::distributed
