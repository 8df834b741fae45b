// A tour of the collectives on four processes: what each rank brings, and what it has afterwards.
//
//     ./bazelw run //examples/collectives
//     ./bazelw run //examples/collectives -- --nproc 2 --backend gloo --check
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

std::shared_ptr<td::distributed::ProcessGroup> make_group(td::distributed::Context& ctx, const std::string& backend) {
  if (backend == "auto") return ctx.group();
  std::vector<int> everybody;
  for (int r = 0; r < ctx.world_size(); ++r) everybody.push_back(r);
  return td::distributed::new_group(everybody, {.backend = backend});
}

examples::Stop hello(td::distributed::Context& ctx) {
  examples::Stop stop("hello", "td::distributed::launch(argc, argv, f)", "every rank runs f, and knows its number");
  stop.check("after", td::str("hello from rank ", ctx.rank(), " of ", ctx.world_size()),
             td::str("hello from rank ", ctx.group()->rank(), " of ", ctx.group()->size()));
  return stop;
}

void tour(td::distributed::Context& ctx, const Flags& flags) {
  using namespace examples;
  const auto group = make_group(ctx, flags.backend);
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
  visit(all_reduce(*group));
  visit(all_reduce_bits(*group));
  visit(all_reduce_bfloat16(*group));
  visit(all_reduce_coalesced(*group));
  visit(reduce(*group));
  visit(reduce_scatter(*group));
  visit(reduce_scatter_coalesced(*group));
  visit(reduce_mean(*group));
  visit(broadcast(*group));
  visit(broadcast_coalesced(*group));
  visit(broadcast_large(*group, flags.side));
  visit(scatter(*group));
  visit(gather(*group));
  visit(all_gather(*group));
  visit(all_gather_unequal(*group));
  visit(all_gather_coalesced(*group));
  visit(all_to_all(*group));
  visit(all_to_all_uneven(*group));
  visit(send_recv(*group));
  visit(ring_shift(*group));
  visit(barrier(*group, *ctx.store()));
  visit(monitored_barrier(*group));
  visit(sub_groups(*group, flags.backend));
  visit(all_reduce_async(*group, flags.trace));
  visit(then(*group));
  visit(groups_in_flight(*group, flags.backend));
  visit(mismatched_dtypes(*group, flags.backend));
  visit(mismatched_sizes(*group, flags.backend));
  visit(mismatched_gather(*group, flags.backend));
  visit(wrong_device(*group, flags.backend));
  group->barrier();  // nobody leaves while others still look at tables
  require_right(wrong);
}

/// -1 to go on, else the exit status.
int parse_flags(int argc, char** argv, Flags& flags) {
  CLI::App app("A tour of the collectives: what each rank brings, and what it has afterwards.", "collectives");
  app.option_defaults()->always_capture_default()->multi_option_policy(CLI::MultiOptionPolicy::TakeLast);
  app.add_flag("--check", flags.check, "one line of JSON per rank and operation; status 1 where a value is wrong");
  app.add_option("--backend", flags.backend, "how the ranks exchange")->check(CLI::IsMember({"auto", "shm", "gloo"}));
  app.add_option("--side", flags.side, "rows and columns of the float16 matrix that is broadcast")
      ->check(CLI::Range(2000, 20000));
  app.add_option("--trace", flags.trace, "write a trace of the all_reduce beside other work, for ui.perfetto.dev");
  int nproc = 1;  // taken out by launch; declared here for --help and so that it is not refused
  double timeout = 300;
  app.add_option("--nproc", nproc, "ranks to start, one process each");
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
  return td::distributed::launch(argc, argv, [&](td::distributed::Context& ctx) { tour(ctx, flags); });
}
