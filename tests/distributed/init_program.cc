// The program of init_process_test: a rank created by init_process_group.
#include <unistd.h>

#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <string>
#include <vector>

#include <tandem/base/error.h>
#include <tandem/distributed/init.h>
#include <tandem/tensor/factories.h>

namespace {

namespace td = tandem;
using namespace td::distributed;

/// A single write, so that readers see complete lines.
void say(const std::string& text) {
  if (write(1, text.data(), text.size()) < 0) std::abort();
}

float sum_of_ranks(ProcessGroup& group) {
  const td::Tensor t = td::full({7}, get_rank() + 1.0);
  group.all_reduce(t);
  return t.to_vector<float>()[6];
}

/// sum METHOD [ROUNDS]: the sum of (rank + 1) over all ranks, and over the ranks of equal parity.
void sum(const std::string& method, int rounds) {
  for (int round = 0; round < rounds; ++round) {
    init_process_group({.init_method = method, .timeout = std::chrono::seconds(30)});
    std::vector<int> half;
    for (int r = get_rank() % 2; r < get_world_size(); r += 2) half.push_back(r);
    const auto group = new_group(half);
    say("rank " + std::to_string(get_rank()) + " of " + std::to_string(get_world_size()) + " local " +
        std::to_string(Context::current().local_rank()) + " sum " + td::str(sum_of_ranks(*default_group())) + " half " +
        td::str(sum_of_ranks(*group)) + "\n");
    destroy_process_group();
  }
}

/// kill METHOD RANK: kills that rank; a group of the others continues.
void kill_one(const std::string& method, int victim) {
  init_process_group({.init_method = method, .timeout = std::chrono::seconds(30)});
  std::vector<int> others;
  for (int r = 0; r < get_world_size(); ++r) {
    if (r != victim) others.push_back(r);
  }
  if (get_rank() == victim) {
    default_group()->barrier();
    raise(SIGKILL);
  }
  const auto group = new_group(others);
  default_group()->barrier();
  try {
    default_group()->barrier();
  } catch (const td::CommError& e) {
    say("error of peer " + std::to_string(e.peer()) + "\n");
  }
  say("sum " + td::str(sum_of_ranks(*group)) + " again " + td::str(sum_of_ranks(*new_group(others))) + "\n");
  destroy_process_group();
}

}  // namespace

int main(int argc, char** argv) {
  const std::vector<std::string> args(argv + 1, argv + argc);
  try {
    if (args.at(0) == "sum") sum(args.at(1), args.size() > 2 ? std::stoi(args[2]) : 1);
    if (args.at(0) == "kill") kill_one(args.at(1), std::stoi(args.at(2)));
  } catch (const td::Error& e) {
    std::fprintf(stderr, "%s\n", e.what());
    return 1;
  }
  return 0;
}
