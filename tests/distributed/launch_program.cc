// The program of launch_test; its first argument selects the behaviour of the ranks.
#include <fcntl.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <sched.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <csignal>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <iterator>
#include <stdexcept>
#include <string>
#include <vector>

#include <tandem/base/chunked_work.h>
#include <tandem/base/parallel_for.h>
#include <tandem/base/rank_context.h>
#include <tandem/distributed/launch.h>
#include <tandem/distributed/process_group.h>
#include <tandem/tensor/factories.h>
#include <tandem/tensor/generator.h>
#include <tandem/tests/support/reset_connection.h>

namespace {

namespace td = tandem;
using td::distributed::Context;

constexpr std::chrono::seconds kLongTimeout{100};

/// A single write, so that readers see complete lines.
void say(const std::string& text) {
  if (write(1, text.data(), text.size()) < 0) std::abort();
}

void wait_until_stop_requested(Context& context, bool agree) {
  // Without a group stop requests are not exchanged, so each rank uses its own.
  while (!context.stop_requested()) usleep(1000);
  if (agree) context.set_stop_agreed();
}

/// The standard streams that are closed, and other descriptors without close-on-exec.
std::string wrong_descriptors() {
  std::string text;
  for (int fd = 0; fd < 1024; ++fd) {
    const int flags = fcntl(fd, F_GETFD);
    std::error_code error;
    const auto file = std::filesystem::read_symlink("/proc/self/fd/" + std::to_string(fd), error);
    const bool is_inherited = flags >= 0 && (flags & FD_CLOEXEC) == 0;
    if (fd <= 2 ? flags < 0 : is_inherited) text += " " + std::to_string(fd) + " " + file.string();
  }
  return text;
}

void run(Context& context, const std::vector<std::string>& args) {
  // ThreadSanitizer's runtime creates a thread's signal list at its first blocking call and loses a signal that arrives
  // at that time (GCC 12); so make a blocking call before a signal can be sent.
  usleep(1);
  const std::string mode = args.at(0);
  const int rank = context.rank();
  const bool chosen = args.size() > 1 && std::to_string(rank) == args[1];
  const std::string who = std::to_string(rank) + " of " + std::to_string(context.world_size());
  if (mode == "say") {
    const td::RankContext& own = td::RankContext::current();
    std::string text = "rank " + who + " local " + std::to_string(context.local_rank()) + " of " +
                       std::to_string(own.local_world_size) + " args";
    for (size_t i = 1; i < args.size(); ++i) text += " " + args[i];
    say(text + "\n");
  } else if (mode == "environment") {
    for (size_t i = 1; i < args.size(); ++i) {
      const char* value = std::getenv(args[i].c_str());
      say(args[i] + "=" + (value != nullptr ? value : "(unset)") + "\n");
    }
  } else if (mode == "device") {
    const td::Tensor x = td::zeros({1}, {td::kFloat32, context.device()});
    say(to_string(x.device()) + " " + to_string(td::rank_device()) + "\n");
  } else if (mode == "exchange") {
    context.store()->set(std::to_string(rank), std::to_string(10 * rank));
    int64_t sum = 0;
    for (int r = 0; r < context.world_size(); ++r)
      sum += std::stoi(context.store()->get(std::to_string(r), kLongTimeout));
    say("sum " + std::to_string(sum) + "\n");
  } else if (mode == "throw") {
    if (chosen) throw std::runtime_error("boom on rank " + who);
    context.store()->get("never", kLongTimeout);
  } else if (mode == "kill") {
    if (chosen) {
      context.store()->add("ready", 0);
      raise(SIGKILL);
    }
    context.store()->get("never", kLongTimeout);
  } else if (mode == "kill-parent") {  // the chosen rank, whose child goes on in its own session
    context.group()->barrier();
    if (chosen && fork() == 0) {
      setsid();
      say("pid " + std::to_string(getpid()) + "\n");
      kill(getppid(), SIGKILL);
    }
    if (chosen) pause();
    context.store()->get("never", kLongTimeout);
  } else if (mode == "kill-when-all-joined") {
    context.store()->set(std::to_string(rank), "here");
    for (int r = 0; r < context.world_size(); ++r) context.store()->get(std::to_string(r), kLongTimeout);
    context.store()->add("all know", 1);
    while (chosen && context.store()->add("all know", 0) < context.world_size()) usleep(1000);
    if (chosen) raise(SIGKILL);
    context.store()->get("never", kLongTimeout);
  } else if (mode == "reset" || mode == "reset-and-return") {  // resets the connection of the chosen rank to the store
    context.store()->set(std::to_string(rank), "here");
    for (int r = 0; r < context.world_size(); ++r) context.store()->get(std::to_string(r), kLongTimeout);
    context.store()->add("all know", 1);
    while (chosen && context.store()->add("all know", 0) < context.world_size()) usleep(1000);
    if (chosen && td::testing_support::reset_connections(std::stoi(std::getenv("MASTER_PORT"))) != 1) std::abort();
    if (!chosen || mode == "reset") context.store()->get("never", kLongTimeout);
  } else if (mode == "fail-until") {  // RANK, the first successful restart, "throw" or "kill"
    const std::string restart = std::getenv("TORCHELASTIC_RESTART_COUNT");
    context.group()->barrier();
    const int64_t joined = context.store()->add("joined", 1);  // 1 to world size, because the store is new
    if (joined == context.world_size()) context.store()->set("all joined", "");
    context.store()->get("all joined", kLongTimeout);
    say("restart " + restart + " joined by " + std::to_string(context.store()->add("joined", 0)) + "\n");
    if (std::stoi(restart) >= std::stoi(args.at(2))) return;
    context.store()->add("said", 1);
    while (chosen && context.store()->add("said", 0) < context.world_size()) usleep(1000);
    if (chosen && args.at(3) == "kill") raise(SIGKILL);
    if (chosen) throw std::runtime_error("boom " + restart);
    context.store()->get("never", kLongTimeout);
  } else if (mode == "kill-in-collective") {
    for (int step = 0; step < 1000000; ++step) {
      if (chosen && step == 5) raise(SIGKILL);
      context.group()->barrier();
    }
  } else if (mode == "operations") {  // what the chosen rank does instead of the third all_reduce
    td::Tensor x = td::ones({1});
    const std::string how = args.at(2);
    if (chosen && how == "own-quit") std::signal(SIGQUIT, [](int) { say("own handler\n"); });
    for (int i = 0; i < 2; ++i) context.group()->all_reduce(x, td::ReduceOp::kSum, {.name = "step"});
    if (chosen && how == "broadcast") context.group()->broadcast(x, 0);
    if (chosen && how == "throw") throw std::runtime_error("boom");
    if (chosen && how == "nothing") context.store()->get("never", kLongTimeout);
    if (chosen && how.ends_with("quit")) raise(SIGQUIT);
    while (chosen && how == "wait-for-quit") {
      const std::string file = "/rank-" + std::to_string(rank) + ".flight-default.txt";
      if (access((std::getenv("TANDEM_FLIGHT_RECORDER_DIR") + file).c_str(), R_OK) == 0) break;
      usleep(1000);
    }
    context.group()->all_reduce(x);
  } else if (mode == "reduce") {
    const td::Tensor x = td::ones({1});
    context.group()->all_reduce_async(x).wait();
  } else if (mode == "parallel_for" || mode == "chunks") {
    std::atomic<int64_t> sum{0};
    td::set_num_threads(4);
    const auto add = [&](int64_t i) { sum += i; };
    for (int round = 0; round < 2; ++round) {
      sum = 0;
      if (mode == "chunks") td::run_chunks({.name = "op", .num_chunks = 100, .max_in_flight = 2, .run = add});
      if (mode == "parallel_for") td::parallel_for(100, 1, [&](int64_t begin, int64_t) { add(begin); });
    }
    say("sum " + std::to_string(sum) + "\n");
  } else if (mode == "stuck") {
    context.group()->barrier();
    if (chosen) context.store()->get("never", kLongTimeout);
    context.group()->barrier();
  } else if (mode == "wait") {
    say("pid " + std::to_string(getpid()) + "\n");
    context.store()->get("never", kLongTimeout);
  } else if (mode == "stopped") {
    say("pid " + std::to_string(getpid()) + "\n");
    context.group()->barrier();
    if (chosen) raise(SIGSTOP);
    context.group()->barrier();
  } else if (mode == "exit") {
    std::fprintf(stderr, "last words of rank %d\n", rank);
    if (chosen) std::exit(std::stoi(args.at(2)));
    context.store()->get("never", kLongTimeout);
  } else if (mode == "lines") {
    for (int line = 0; line < std::stoi(args.at(1)); ++line) {
      for (const char* piece : {"begin ", "middle ", "end\n"}) say(piece);
    }
  } else if (mode == "flood") {
    const std::string line(1000, 'x');
    for (;;) say(line + "\n");
  } else if (mode == "unended") {
    say("no end of line from " + std::to_string(rank));
  } else if (mode == "stop") {
    say("ready\n");
    wait_until_stop_requested(context, true);
    say("stopped\n");
  } else if (mode == "stubborn") {
    say("pid " + std::to_string(getpid()) + "\n");
    wait_until_stop_requested(context, false);
    say("asked\n");
    for (;;) pause();
  } else if (mode == "descriptors") {
    for (const char* backend : {"auto", "gloo"}) {
      const auto group = context.new_group({0, 1}, {.backend = backend, .name = backend});
      group->barrier();
      say(backend + wrong_descriptors() + "\n");
    }
  } else if (mode == "cores") {
    cpu_set_t mask;
    if (sched_getaffinity(0, sizeof(mask), &mask) != 0) std::abort();
    std::string text;
    for (int core = 0; core < CPU_SETSIZE; ++core) text += CPU_ISSET(core, &mask) ? std::to_string(core) + " " : "";
    say(text + "\n");
  } else if (mode == "timeout") {
    context.store()->get("never", std::chrono::milliseconds(20));
  } else {
    throw std::invalid_argument("unknown mode " + mode);
  }
}

/// Makes a system call fail with EPERM in this process and its children.
void forbid(uint32_t call) {
  sock_filter filter[] = {
      BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(seccomp_data, nr)), BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, call, 0, 1),
      BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | EPERM), BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW)};
  const sock_fprog program = {std::size(filter), filter};
  if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) != 0 || prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program) != 0) {
    std::abort();
  }
}

void wait_for_all_children(int) {
  const int error = errno;  // of the function that the signal interrupts
  while (waitpid(-1, nullptr, WNOHANG) > 0) {
  }
  errno = error;
}

}  // namespace

int main(int argc, char** argv) {
  const std::string launcher = std::getenv("LAUNCHER") != nullptr ? std::getenv("LAUNCHER") : "";
  if (launcher == "without pidfd_open") forbid(SYS_pidfd_open);
  if (launcher == "without other descriptors" && std::getenv("RANK") == nullptr) syscall(SYS_close_range, 3, ~0U, 0);
  if (launcher == "ignores SIGCHLD") std::signal(SIGCHLD, SIG_IGN);
  if (launcher == "waits for all children") std::signal(SIGCHLD, wait_for_all_children);
  return td::distributed::launch(
      argc, argv, [&](Context& context) { run(context, std::vector<std::string>(argv + 1, argv + argc)); });
}
