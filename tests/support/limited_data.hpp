#pragma once

#include <sys/resource.h>

namespace dlock::test {

/// For ProcessOptions::before_exec: the limit of dlock's memory for data, whatever a server sends.
/// The stacks of threads count as data: with the usual 8 MiB each a majority could start none.
inline void limit_data() {
  const rlimit most{16UL << 20, 16UL << 20}, stack{1UL << 20, 1UL << 20};
  setrlimit(RLIMIT_DATA, &most);
  setrlimit(RLIMIT_STACK, &stack);
}

}  // namespace dlock::test
