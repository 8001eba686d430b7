#include <string>

#include "base/error.hpp"
#include "base/text.hpp"
#include "commands/commands.hpp"
#include "commands/open_store.hpp"
#include "local/fence_register_file.hpp"
#include "output/sentences.hpp"
#include "supervise/supervise.hpp"

namespace dlock {
namespace {

std::string resource_name(const GuardSettings& settings) {
  return escaped(settings.state ? *settings.state : settings.state_key->text);
}

/// Opens and locks the file of the register; returns nothing if servers store the fence.
std::optional<FenceFile> open_fence_file(const GuardSettings& settings, const Log& log) {
  const auto waiting = [&] {
    log.notice("waiting: " + resource_name(settings) + " is locked by another command's guard");
  };
  if (settings.state) return FenceFile::open(*settings.state, waiting);
  const auto* local = std::get_if<LocalTarget>(&settings.server);
  if (local == nullptr) return std::nullopt;
  return FenceFile::open(directory_of(*local), *settings.state_key, waiting);
}

int run_guarded(const GuardSettings& settings, const Log& log, Signals& signals) {
  Program program;
  program.argv = settings.command_argv;
  Child child(program, signals);
  const Ending ending = supervise(child, signals, SuperviseOptions());
  const ChildEnd& end = ending.child;
  if (end.exec_error) {
    log.error(exec_error_text(program.argv.front(), *end.exec_error));
    return static_cast<int>(exec_exit_code(*end.exec_error));
  }
  if (end.signal) die_of(*end.signal);
  return end.exit_code.value();
}

}  // namespace

int carry_out(const GuardSettings& settings, const Log& log) {
  const Fence fence = settings.fence;
  Fence largest = fence;
  // A signal may still end dlock here: nothing is held, and a recorded fence does no harm.
  std::optional<FenceFile> file = open_fence_file(settings, log);
  if (!file) {
    largest = open_fence_register(settings)->record_max(*settings.state_key, fence, short_call());
  }
  Signals signals;
  if (file) largest = file->record_max(fence);
  if (largest > fence) {
    log.error(resource_name(settings) + ": fence " + std::to_string(fence.value) +
              " is older than " + std::to_string(largest.value) +
              ", which is recorded: COMMAND was not run");
    return static_cast<int>(ExitCode::lost);
  }
  log.detail(resource_name(settings) + ": recorded fence " + std::to_string(fence.value));
  return run_guarded(settings, log, signals);
}

}  // namespace dlock
