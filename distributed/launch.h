// Starts ranks: as processes of this program, or as threads.
#pragma once

#include <concepts>
#include <functional>
#include <optional>
#include <string>
#include <type_traits>
#include <vector>

#include <tandem/base/macros.h>
#include <tandem/distributed/context.h>

namespace tandem { inline namespace v0 { namespace distributed {

/// The function that each rank runs.
using RankFunction = std::function<void(Context&)>;

/// A flag of launch(), for the --help of a program.
struct LaunchFlag {
  std::string names;  ///< separated by commas
  std::string value;  ///< what follows it: "SECONDS"; empty if nothing
  std::string help;   ///< one sentence
};
/// The flags that launch() takes.
TANDEM_API const std::vector<LaunchFlag>& launch_flags();

/// Runs `f` on every rank and returns the exit status for main.
///
/// Removes --nproc N, --device cpu|cuda|auto, --devices D,E.., --log-dir DIR, --tee, --max-restarts N and --timeout
/// SECONDS from argv. --nproc-per-node is another name of --nproc, whose value may also be cpu, gpu or auto, as for
/// tandem-run. If rank variables are set (by torchrun and others, see docs/clusters.md), this process is a
/// rank of that job. Otherwise --nproc N with N > 1 starts N copies of this program as ranks and waits for them;
/// --devices cpu,cpu:1 runs the ranks as threads of this process, one per device, and creates missing virtual CPU
/// devices; without either flag this process is the only rank.
///
/// --device, or the variable TANDEM_DEVICE, sets Context::device(): cpu, cuda (GPU number local_rank), or auto (cuda if
/// there is a GPU for each local rank, else cpu). With a GPU, do not draw random numbers before launch.
///
/// An exception thrown by `f` aborts the job and is reported once, with its rank, on stderr. Exit status: 0; 1 after
/// an error; 2 for invalid flags or variables; 130 after SIGINT; 143 after SIGTERM.
TANDEM_API int launch(int& argc, char** argv, const RankFunction& f);
/// Refuses other functions, with a message of the compiler.
template <class F>
requires(!std::convertible_to<F, RankFunction>) int launch(int&, char**, const F&) {
  static_assert(std::is_void_v<F>, "launch: f is not a function of the context: [](distributed::Context& ctx) { .. }");
  return 2;
}

/// In a process started by spawn: runs the function of spawn and returns the exit status. Otherwise returns nullopt.
/// The main function of a program that uses spawn must begin with this call, unless it calls launch, which contains it:
///     if (const auto status = rank_main_entry(argc, argv)) return *status;
TANDEM_API std::optional<int> rank_main_entry(int argc, char** argv);

/// Starts `n` processes of this program that run the function registered as `name` with TANDEM_RANK_MAIN, passing
/// `args`, and waits for them. Throws CommError with the root cause if a rank fails; ValueError if n is not in [1,
/// 1024] or `name` is not registered. The main function of the program must begin with rank_main_entry.
TANDEM_API void spawn(int n, const std::string& name, const std::vector<std::string>& args = {});

/// Runs `f` on n ranks that are threads of this process and waits for them; rethrows the exception of the rank that
/// failed first. Each rank has its own RankContext, generators and group; its device is cpu.
TANDEM_API void run_threads(int n, const RankFunction& f);
/// Runs `f` on one thread rank per device; the device is Context::device() of its rank. Results have the same bits as
/// with the same number of processes. Throws DeviceError if a device does not exist.
TANDEM_API void run_threads(const std::vector<Device>& devices, const RankFunction& f);

/// Registers a function for spawn; called by TANDEM_RANK_MAIN.
TANDEM_API bool register_rank_main(const char* name, void (*f)(Context&, const std::vector<std::string>&));

}}}  // namespace tandem::v0::distributed

/// Defines a function for spawn(n, "name", args). Its parameters are `context` and `args`:
///     TANDEM_RANK_MAIN(hello) { std::cout << context.rank() << "\n"; }
#define TANDEM_RANK_MAIN(name)                                                                                        \
  static void tandem_rank_main_##name(::tandem::distributed::Context& context, const std::vector<std::string>& args); \
  static const bool tandem_rank_main_registered_##name =                                                              \
      ::tandem::distributed::register_rank_main(#name, &tandem_rank_main_##name);                                     \
  static void tandem_rank_main_##name([[maybe_unused]] ::tandem::distributed::Context& context,                       \
                                      [[maybe_unused]] const std::vector<std::string>& args)
