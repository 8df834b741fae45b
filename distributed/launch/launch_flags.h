// Command line flags of launch(). Private to distributed/.
#pragma once

#include <chrono>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include <tandem/base/macros.h>
#include <tandem/distributed/launch.h>
#include <tandem/tensor/device.h>

namespace tandem { inline namespace v0 { namespace distributed {

struct LaunchFlags {
  std::optional<int> num_ranks;
  std::vector<Device> devices;  ///< --devices: one thread rank per device; empty if not given
  std::string device;           ///< --device: "cpu", "cuda" or "auto"; empty if not given
  std::string log_dir;
  bool tee = false;
  int max_restarts = 0;
  std::optional<std::chrono::milliseconds> timeout;
};

/// The flag with this name in its `names`, or nullptr.
TANDEM_API const LaunchFlag* find_launch_flag(std::string_view name);

/// Removes the flags before "--" from argv. Throws ValueError for a missing or invalid value and then leaves argv
/// unchanged.
TANDEM_API LaunchFlags take_launch_flags(int& argc, char** argv);

/// Parses a number of restarts. Throws ValueError; the text begins with `what`.
TANDEM_API int parse_num_restarts(const std::string& what, const std::string& text);

/// The device of the rank with `local_rank` among `num_local_ranks` ranks of this host. `choice` is "cpu", "cuda" (GPU
/// number `local_rank`) or "auto" (cuda if there is a GPU for each local rank, else cpu). `has_own_visible_devices`:
/// CUDA_VISIBLE_DEVICES was set for this rank only; if it sees fewer GPUs than local ranks, the rank uses GPU
/// `local_rank` modulo their number. Throws ValueError for another `choice` or if the GPU does not exist; the text
/// begins with `what`.
TANDEM_API Device choose_device(const std::string& what, const std::string& choice, int local_rank, int num_local_ranks,
                                bool has_own_visible_devices);

/// Prints a warning to stderr if there are more ranks than cores.
TANDEM_API void warn_if_oversubscribed(int num_ranks);

}}}  // namespace tandem::v0::distributed
