#pragma once

#include <string>
#include <system_error>
#include <thread>
#include <utility>

#include "base/error.hpp"

namespace dlock {

/// A thread without which the caller cannot go on; throws Error{host_refused} if the host has no
/// room for one. `work` must not throw.
template <typename Work>
std::thread start_thread(Work work) {
  try {
    return std::thread(std::move(work));
  } catch (const std::system_error& error) {
    throw Error(ErrorKind::host_refused, std::string("cannot start a thread: ") + error.what());
  }
}

}  // namespace dlock
