// Runs every collective on four processes and prints each rank's inputs and outputs.
//
//     ./bazelw run //examples/collectives
//     ./bazelw run //examples/collectives -- --nproc 2 --backend gloo --check
//     ./bazelw run --config=cuda //examples/collectives -- --device cuda    # one GPU per process
#include <tandem/examples/collectives/operations.h>
#include <tandem/examples/support/flags.h>
#include <tandem/tandem.h>

#include <CLI/CLI.hpp>
#include <iostream>
#include <string>

namespace td = tandem;

namespace {

struct Flags {
  std::string backend = "auto";
  std::string trace;
  int64_t side = 4000;
  bool check = false;
};

/// The backend option of a group: --backend for CPU tensors, NCCL for GPU tensors.
std::string backend_option(const std::string& backend, td::Device device) {
  return backend == "auto" || device.is_cpu() ? backend : td::str("cpu:", backend, ",cuda:nccl");
}

examples::OperationReport hello(td::distributed::Context& ctx) {
  examples::OperationReport report("hello", "td::distributed::launch(argc, argv, f)",
                                   "every rank runs f; its context has the rank, the world size and the device");
  report.check("after", td::str("hello from rank ", ctx.rank(), " of ", ctx.world_size()),
               td::str("hello from rank ", ctx.group()->rank(), " of ", ctx.group()->size()));
  report.show("device", td::to_string(ctx.device()));
  return report;
}

void run_operations(td::distributed::Context& ctx, const Flags& flags) {
  using namespace examples;
  const std::string backend = backend_option(flags.backend, ctx.device());
  auto group = ctx.group();
  if (backend != "auto") group = td::distributed::new_group(group->ranks(), {.backend = backend});
  const Setup setup = {.group = *group, .device = ctx.device(), .backend = backend};
  int wrong = 0;
  const auto show = [&](const OperationReport& report) {
    wrong += report.wrong();
    if (flags.check) {
      print_json(report, group);
    } else {
      print_table(report, group);
    }
  };

  show(hello(ctx));
  show(all_reduce(setup));
  show(all_reduce_bits(setup));
  show(all_reduce_bfloat16(setup));
  show(all_reduce_coalesced(setup));
  show(reduce(setup));
  show(reduce_scatter(setup));
  show(reduce_scatter_coalesced(setup));
  show(reduce_mean(setup));
  show(broadcast(setup));
  show(broadcast_coalesced(setup));
  show(broadcast_large(setup, flags.side));
  show(scatter(setup));
  show(gather(setup));
  show(all_gather(setup));
  show(all_gather_unequal(setup));
  show(all_gather_coalesced(setup));
  show(all_to_all(setup));
  show(all_to_all_uneven(setup));
  show(send_recv(setup));
  show(ring_shift(setup));
  show(barrier(setup, *ctx.store()));
  show(monitored_barrier(setup));
  show(sub_groups(setup));
  show(all_reduce_async(setup, flags.trace));
  show(then(setup));
  show(groups_in_flight(setup));
  show(mismatched_dtypes(setup));
  show(mismatched_sizes(setup));
  show(mismatched_gather(setup));
  show(wrong_device(setup));
  group->barrier();  // no rank exits while others are still in a collective
  throw_if_wrong(wrong);
}

/// Returns the exit status, or -1 to continue.
int parse_flags(int argc, char** argv, Flags& flags) {
  CLI::App app("Runs every collective and prints each rank's inputs and outputs.", "collectives");
  app.option_defaults()->always_capture_default()->multi_option_policy(CLI::MultiOptionPolicy::TakeLast);
  app.add_flag("--check", flags.check,
               "print one line of JSON per rank and operation; exit status 1 if a value is wrong");
  app.add_option("--backend", flags.backend, "backend for CPU tensors; GPU tensors use NCCL")
      ->check(CLI::IsMember({"auto", "shm", "gloo"}));
  app.add_option("--side", flags.side, "rows and columns of the float16 matrix that is broadcast")
      ->check([](const std::string& text) {
        return CLI::Range(2000, 20000)(text).empty() ? ""
                                                     : "expected an integer from 2000 to 20000, got '" + text + "'";
      });
  app.add_option("--trace", flags.trace, "write a trace of the asynchronous all_reduce, for ui.perfetto.dev");
  examples::add_launch_flags(app);
  try {
    app.parse(argc, argv);
  } catch (const CLI::ParseError& error) {
    if (error.get_exit_code() == 0) return app.exit(error);
    std::cerr << "collectives: " << error.what() << "\n";
    return 2;
  }
  return examples::change_to_user_folder() ? -1 : 2;
}

}  // namespace

int main(int argc, char** argv) {
  Flags flags;
  const int status = parse_flags(argc, argv, flags);
  if (status >= 0) return status;
  return td::distributed::launch(argc, argv, [&](td::distributed::Context& ctx) { run_operations(ctx, flags); });
}
