#include <sys/mman.h>

#include <cstdio>
#include <cstdlib>

#include <tandem/tests/cuda_emulation/fiber.h>

#ifdef __SANITIZE_ADDRESS__
#include <sanitizer/asan_interface.h>
#include <sanitizer/common_interface_defs.h>
#endif

namespace cuda_emulation {
namespace {

#ifdef __SANITIZE_ADDRESS__
Context* left = nullptr;  // the context from which the running one was entered

void before_switch(Context& from, Context& to) {
  left = &from;
  __sanitizer_start_switch_fiber(&from.fake_stack, to.stack_bottom, to.stack_size);
}

void after_switch(Context* self) {
  __sanitizer_finish_switch_fiber(self != nullptr ? self->fake_stack : nullptr, &left->stack_bottom, &left->stack_size);
}
#else
void before_switch(Context&, Context&) {}
void after_switch(Context*) {}
#endif

}  // namespace

// Saves the callee-saved registers of the System V calling convention. Continues by a jump instead of a return, because
// the processor's return stack buffer belongs to the previous fiber.
asm(R"(
.text
.p2align 4
.type tandem_emulation_switch, @function
tandem_emulation_switch:
  pushq %rbp
  pushq %rbx
  pushq %r12
  pushq %r13
  pushq %r14
  pushq %r15
  movq %rsp, (%rdi)
  movq %rsi, %rsp
  popq %r15
  popq %r14
  popq %r13
  popq %r12
  popq %rbx
  popq %rbp
  popq %rcx
  jmpq *%rcx
.size tandem_emulation_switch, .-tandem_emulation_switch
)");

extern "C" void tandem_emulation_switch(void** save_stack_pointer, void* stack_pointer);

void switch_context(Context& from, Context& to) {
  before_switch(from, to);
  tandem_emulation_switch(&from.stack_pointer, to.stack_pointer);
  after_switch(&from);
}

namespace {

void (*entry)() = nullptr;

void first_entry() {
  after_switch(nullptr);
  entry();
  std::abort();
}

}  // namespace

FiberPool::FiberPool(void (*function)()) : fibers_(kMaxFibers) {
  entry = function;
  void* p = ::mmap(nullptr, kMaxFibers * kStride, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (p == MAP_FAILED) {
    std::perror("cuda_emulation: mmap of stacks");
    std::abort();
  }
  region_ = reinterpret_cast<uintptr_t>(p);
  idle_.reserve(kMaxFibers);
}

void FiberPool::set_to_beginning(Fiber& fiber, size_t index) {
  const uintptr_t low = region_ + index * kStride + kGuardBytes;
  fiber.stack_low = low;
  fiber.stack_bottom = reinterpret_cast<const void*>(low);
  fiber.stack_size = kStackBytes;
  fiber.fake_stack = nullptr;
#ifdef __SANITIZE_ADDRESS__
  ASAN_UNPOISON_MEMORY_REGION(reinterpret_cast<void*>(low), kStackBytes);
#endif
  // Different offsets, because equal offsets of all stacks would map to the same few sets of the L1 cache.
  const size_t colour = index % 61 * 64;
  auto* top = reinterpret_cast<uintptr_t*>(low + kStackBytes - 256 - colour);
  *--top = 0;  // a return address, so that the stack is aligned as after a call
  *--top = reinterpret_cast<uintptr_t>(&first_entry);
  for (int i = 0; i < 6; ++i) {
    *--top = 0;
  }
  fiber.stack_pointer = top;
}

Fiber& FiberPool::take() {
  if (!idle_.empty()) {
    Fiber& fiber = *idle_.back();
    idle_.pop_back();
    return fiber;
  }
  if (num_made_ == kMaxFibers) {
    std::fputs("cuda_emulation: too many fibers\n", stderr);
    std::abort();
  }
  const size_t index = num_made_++;
  void* low = reinterpret_cast<void*>(region_ + index * kStride + kGuardBytes);
  if (::mprotect(low, kStackBytes, PROT_READ | PROT_WRITE) != 0) {
    std::perror("cuda_emulation: mprotect of a stack");
    std::abort();
  }
  set_to_beginning(fibers_[index], index);
  return fibers_[index];
}

void FiberPool::restart() {
  idle_.clear();
  for (size_t i = 0; i < num_made_; ++i) {
    set_to_beginning(fibers_[i], i);
    idle_.push_back(&fibers_[i]);
  }
}

}  // namespace cuda_emulation
