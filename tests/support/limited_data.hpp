#pragma once

#include <sys/resource.h>

namespace dlock::test {

/// For ProcessOptions::before_exec: as much memory as dlock may take for its own data, whatever a
/// server sends. The stacks of threads are data: with the usual 8 MiB each a majority would start
/// none.
inline void limit_data() {
  const rlimit most{16UL << 20, 16UL << 20}, stack{1UL << 20, 1UL << 20};
  setrlimit(RLIMIT_DATA, &most);
  setrlimit(RLIMIT_STACK, &stack);
}

}  // namespace dlock::test
