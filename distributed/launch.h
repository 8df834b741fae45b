// Starting ranks: as processes of this program, or as threads.
#pragma once

#include <functional>
#include <optional>
#include <string>
#include <vector>

#include <tandem/base/macros.h>
#include <tandem/distributed/context.h>

namespace tandem { inline namespace v0 { namespace distributed {

using RankFunction = std::function<void(Context&)>;

/// Runs `f` on every rank and returns the exit status for main.
///
/// Takes --nproc N, --device cpu|cuda|auto, --devices D,E.., --log-dir DIR, --tee, --max-restarts N and --timeout SECONDS
/// out of argv.  Where rank variables are set (torchrun's, see docs/launching.md) this process is a rank of that job; else
/// with --nproc N > 1 it starts N copies of itself as ranks and waits for them; with --devices cpu,cpu:1 the ranks are threads
/// of this process, one on each of the devices (CPU devices that are not declared yet are); else it is the only rank.
/// --device is where each rank computes, Context::device(): the CPU, the GPU of its number on its host, or with auto that GPU
/// where there is one for each of the host's ranks, else the CPU; TANDEM_DEVICE says the same.  On a GPU random numbers are not
/// drawn before launch.  An exception that leaves `f` aborts the group and is reported once, with its rank, on stderr.  Status: 0, 1 after an error, 2 after wrong
/// flags or variables, 130 / 143 after SIGINT / SIGTERM.
TANDEM_API int launch(int& argc, char** argv, const RankFunction& f);

/// Runs the function that spawn named, where this process is one of spawn's, and returns its status; else nullopt.  The
/// main of a program that spawns (a test's, say) begins with it; launch calls it itself:
///     if (const auto status = rank_main_entry(argc, argv)) return *status;
TANDEM_API std::optional<int> rank_main_entry(int argc, char** argv);

/// Starts `n` processes of this program that run the function registered as `name` with TANDEM_RANK_MAIN, with `args`,
/// and waits for them; throws CommError with the root cause if one fails.  This program's main must begin with
/// rank_main_entry.
TANDEM_API void spawn(int n, const std::string& name, const std::vector<std::string>& args = {});

/// Runs `f` on n ranks that are threads of this process and waits; rethrows the first failing rank's exception.  Each
/// rank has its own RankContext, generators and group; its device is cpu.
TANDEM_API void run_threads(int n, const RankFunction& f);
/// The same with one rank for each device, which is the rank's Context::device(): a model mirrored on the devices of one
/// process.  The same bits as with as many processes.  Throws DeviceError where one does not exist.
TANDEM_API void run_threads(const std::vector<Device>& devices, const RankFunction& f);

/// Registers a function for spawn; used by TANDEM_RANK_MAIN.
TANDEM_API bool register_rank_main(const char* name, void (*f)(Context&, const std::vector<std::string>&));

}}}  // namespace tandem::v0::distributed

/// Defines a function that spawn(n, "name", args) runs on each rank:
///     TANDEM_RANK_MAIN(hello) { std::cout << context.rank() << "\n"; }    // also in scope: args
#define TANDEM_RANK_MAIN(name)                                                                                        \
  static void tandem_rank_main_##name(::tandem::distributed::Context& context, const std::vector<std::string>& args); \
  static const bool tandem_rank_main_registered_##name =                                                              \
      ::tandem::distributed::register_rank_main(#name, &tandem_rank_main_##name);                                     \
  static void tandem_rank_main_##name([[maybe_unused]] ::tandem::distributed::Context& context,                       \
                                      [[maybe_unused]] const std::vector<std::string>& args)
