#include "simulator/fiber.hpp"

#include <cxxabi.h>

#include <cstdint>
#include <cstring>
#include <utility>
#include <vector>

namespace dlock::sim {
namespace {

constexpr std::size_t stack_size = 256 * 1024;

/// Unused stacks are kept, because there are many short schedules.
std::vector<std::unique_ptr<char[]>> spare_stacks;

std::unique_ptr<char[]> take_stack() {
  if (spare_stacks.empty()) return std::unique_ptr<char[]>(new char[stack_size]);
  auto stack = std::move(spare_stacks.back());
  spare_stacks.pop_back();
  return stack;
}

}  // namespace

Fiber::Fiber(std::function<void()> body) : body_(std::move(body)), stack_(take_stack()) {
  getcontext(&inside_);
  inside_.uc_stack.ss_sp = stack_.get();
  inside_.uc_stack.ss_size = stack_size;
  inside_.uc_link = nullptr;
  const auto self = reinterpret_cast<std::uintptr_t>(this);
  // makecontext passes ints.
  makecontext(&inside_, reinterpret_cast<void (*)()>(&Fiber::run), 2,
              static_cast<unsigned int>(self >> 32), static_cast<unsigned int>(self));
}

Fiber::~Fiber() { spare_stacks.push_back(std::move(stack_)); }

void Fiber::run(unsigned int high, unsigned int low) {
  const auto self = (static_cast<std::uintptr_t>(high) << 32) | low;
  auto* fiber = reinterpret_cast<Fiber*>(self);
  fiber->body_();
  fiber->ended_ = true;
  fiber->leave();
}

void Fiber::enter() {
  exchange_handled();
  swapcontext(&outside_, &inside_);
  exchange_handled();
}

void Fiber::leave() { swapcontext(&inside_, &outside_); }

/// Exchanges the exceptions in handling: a fiber may leave while it handles one, and another may
/// handle one meanwhile (https://itanium-cxx-abi.github.io/cxx-abi/abi-eh.html, __cxa_eh_globals).
void Fiber::exchange_handled() {
  void* const globals = __cxxabiv1::__cxa_get_globals();
  Handled theirs;
  std::memcpy(&theirs, globals, sizeof theirs);
  std::memcpy(globals, &handled_, sizeof handled_);
  handled_ = theirs;
}

}  // namespace dlock::sim
