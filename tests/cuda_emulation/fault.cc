// The SIGSEGV handler, for invalid addresses that no access check has detected: accesses of host code to device memory,
// and kernels without checks.
#include <signal.h>
#include <ucontext.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <cstring>

#include <tandem/tests/cuda_emulation/runtime.h>
#include <tandem/tests/cuda_emulation/symbols.h>

namespace cuda_emulation {
namespace {

void write_text(const std::string& text) {
  if (::write(STDERR_FILENO, text.data(), text.size()) < 0) {
    std::abort();
  }
}

thread_local uintptr_t fault_address = 0;

// Runs on the fiber's stack, or on the signal stack, and switches to the host thread immediately.
[[noreturn]] void end_kernel() {
  const Uninstrumented here;
  KernelRun& run = *running_kernel;
  if (run.fibers().on_guard(fault_address)) {
    run.fail(cudaErrorIllegalAddress,
             "overflow of a thread's stack (" + std::to_string(FiberPool::kStackBytes >> 10) + " KiB)");
  }
  run.fail(cudaErrorIllegalAddress, "invalid access: " + run.memory().describe(fault_address));
}

void handle(int signal, siginfo_t* info, void* context) {
  const auto address = reinterpret_cast<uintptr_t>(info->si_addr);
  if (running_kernel != nullptr) {
    // The handler returns into end_kernel() on the signal stack, which is unused after the return.
    fault_address = address;
    auto& registers = static_cast<ucontext_t*>(context)->uc_mcontext.gregs;
    stack_t stack{};
    ::sigaltstack(nullptr, &stack);
    const uintptr_t top = (reinterpret_cast<uintptr_t>(stack.ss_sp) + stack.ss_size) & ~uintptr_t{63};
    registers[REG_RSP] = static_cast<greg_t>(top - 8);
    registers[REG_RIP] = reinterpret_cast<greg_t>(&end_kernel);
    return;
  }
  Runtime& runtime = Runtime::get();
  if (const Device* device = runtime.device_of(info->si_addr)) {
    write_text("host access to device memory: " + place_in_arena(device->memory, info->si_addr) + "\n");
  }
  ::signal(signal, SIG_DFL);  // the access repeats and ends the process
}

/// A stack for the handler, because the fiber's stack may have overflowed.
struct SignalStack {
  static constexpr size_t kBytes = size_t{64} << 10;
  SignalStack() : memory(std::malloc(kBytes)) {
    stack_t stack{};
    stack.ss_sp = memory;
    stack.ss_size = kBytes;
    ::sigaltstack(&stack, &before);
  }
  ~SignalStack() {
    ::sigaltstack(&before, nullptr);
    std::free(memory);
  }
  SignalStack(const SignalStack&) = delete;
  SignalStack& operator=(const SignalStack&) = delete;
  void* memory;
  stack_t before{};
};

}  // namespace

void need_signal_stack() {
  static thread_local SignalStack stack;
  static_cast<void>(stack);
}

void install_fault_handler() {
  struct sigaction action {};
  action.sa_sigaction = &handle;
  action.sa_flags = SA_SIGINFO | SA_ONSTACK;
  ::sigemptyset(&action.sa_mask);
  ::sigaction(SIGSEGV, &action, nullptr);
  ::sigaction(SIGBUS, &action, nullptr);
}

}  // namespace cuda_emulation
