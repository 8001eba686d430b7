#pragma once

#include <doctest/doctest.h>
#include <fcntl.h>
#include <unistd.h>

#include "base/fd.hpp"

namespace dlock::test {

/// A full pipe without a reader: a write blocks or fails with EAGAIN.
struct FullPipe {
  enum class Writers { block, try_again };

  explicit FullPipe(Writers writers = Writers::block) {
    int ends[2];
    REQUIRE(pipe2(ends, O_CLOEXEC | O_NONBLOCK) == 0);
    reader = Fd(ends[0]);
    writer = Fd(ends[1]);
    const char bytes[4096] = {};
    while (write(writer.get(), bytes, sizeof bytes) > 0) {
    }
    if (writers == Writers::block) REQUIRE(fcntl(writer.get(), F_SETFL, 0) == 0);
  }

  Fd reader;
  Fd writer;
};

}  // namespace dlock::test
