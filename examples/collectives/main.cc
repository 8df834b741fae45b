// A tour of the collectives on four processes: what each rank brings, and what it has afterwards.
//
//     ./bazelw run //examples/collectives
//     ./bazelw run //examples/collectives -- --nproc 2 --backend gloo --check
//     ./bazelw run --config=cuda //examples/collectives -- --device cuda    # a GPU for each process
#include <tandem/examples/collectives/tour.h>
#include <tandem/examples/support/flags.h>
#include <tandem/tandem.h>

#include <CLI/CLI.hpp>
#include <iostream>
#include <memory>
#include <string>
#include <vector>

namespace td = tandem;

namespace {

struct Flags {
  std::string backend = "auto";
  std::string trace;
  int64_t side = 4000;
  bool check = false;
};

/// What moves CPU tensors as --backend says, and GPUs' by NCCL.
std::string full_backend(const std::string& backend, td::Device device) {
  return backend == "auto" || device.is_cpu() ? backend : td::str("cpu:", backend, ",cuda:nccl");
}

examples::Stop hello(td::distributed::Context& ctx) {
  examples::Stop stop("hello", "td::distributed::launch(argc, argv, f)",
                      "every rank runs f, and knows its number and its device");
  stop.check("after", td::str("hello from rank ", ctx.rank(), " of ", ctx.world_size()),
             td::str("hello from rank ", ctx.group()->rank(), " of ", ctx.group()->size()));
  stop.show("device", td::to_string(ctx.device()));
  return stop;
}

void run_tour(td::distributed::Context& ctx, const Flags& flags) {
  using namespace examples;
  const std::string backend = full_backend(flags.backend, ctx.device());
  auto group = ctx.group();
  if (backend != "auto") group = td::distributed::new_group(group->ranks(), {.backend = backend});
  const Tour tour = {.group = *group, .device = ctx.device(), .backend = backend};
  int wrong = 0;
  const auto visit = [&](const Stop& stop) {
    wrong += stop.wrong();
    if (flags.check) {
      print_json(stop, *group);
    } else {
      print_table(stop, *group);
    }
  };

  visit(hello(ctx));
  visit(all_reduce(tour));
  visit(all_reduce_bits(tour));
  visit(all_reduce_bfloat16(tour));
  visit(all_reduce_coalesced(tour));
  visit(reduce(tour));
  visit(reduce_scatter(tour));
  visit(reduce_scatter_coalesced(tour));
  visit(reduce_mean(tour));
  visit(broadcast(tour));
  visit(broadcast_coalesced(tour));
  visit(broadcast_large(tour, flags.side));
  visit(scatter(tour));
  visit(gather(tour));
  visit(all_gather(tour));
  visit(all_gather_unequal(tour));
  visit(all_gather_coalesced(tour));
  visit(all_to_all(tour));
  visit(all_to_all_uneven(tour));
  visit(send_recv(tour));
  visit(ring_shift(tour));
  visit(barrier(tour, *ctx.store()));
  visit(monitored_barrier(tour));
  visit(sub_groups(tour));
  visit(all_reduce_async(tour, flags.trace));
  visit(then(tour));
  visit(groups_in_flight(tour));
  visit(mismatched_dtypes(tour));
  visit(mismatched_sizes(tour));
  visit(mismatched_gather(tour));
  visit(wrong_device(tour));
  group->barrier();  // nobody leaves while others still look at tables
  require_right(wrong);
}

/// -1 to go on, else the exit status.
int parse_flags(int argc, char** argv, Flags& flags) {
  CLI::App app("A tour of the collectives: what each rank brings, and what it has afterwards.", "collectives");
  app.option_defaults()->always_capture_default()->multi_option_policy(CLI::MultiOptionPolicy::TakeLast);
  app.add_flag("--check", flags.check, "one line of JSON per rank and operation; status 1 where a value is wrong");
  app.add_option("--backend", flags.backend, "how the ranks exchange tensors of CPUs; those of GPUs go by NCCL")
      ->check(CLI::IsMember({"auto", "shm", "gloo"}));
  app.add_option("--side", flags.side, "rows and columns of the float16 matrix that is broadcast")
      ->check(CLI::Range(2000, 20000));
  app.add_option("--trace", flags.trace, "write a trace of the all_reduce during other work, for ui.perfetto.dev");
  int nproc = 1;  // taken out by launch; declared here for --help and so that it is not refused
  std::string device = "cpu";
  double timeout = 300;
  app.add_option("--nproc", nproc, "ranks to start, one process each");
  app.add_option("--device", device, "where each rank computes; auto: on a GPU if there is one for each")
      ->check(CLI::IsMember({"cpu", "cuda", "auto"}));
  app.add_option("--timeout", timeout, "seconds that a collective may take");
  try {
    app.parse(argc, argv);
  } catch (const CLI::ParseError& error) {
    if (error.get_exit_code() == 0) return app.exit(error);
    std::cerr << "collectives: " << error.what() << "\n";
    return 2;
  }
  return examples::enter_users_folder() ? -1 : 2;
}

}  // namespace

int main(int argc, char** argv) {
  Flags flags;
  const int status = parse_flags(argc, argv, flags);
  if (status >= 0) return status;
  return td::distributed::launch(argc, argv, [&](td::distributed::Context& ctx) { run_tour(ctx, flags); });
}
