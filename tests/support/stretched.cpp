#include "support/stretched.hpp"

#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <fstream>

namespace dlock::test {

milliseconds stretched(milliseconds limit) {
  double last_minute = 0, ignored = 0;
  int running = 0;
  std::ifstream("/proc/loadavg") >> last_minute >> ignored >> ignored >> running;
  const double processors = static_cast<double>(std::max(1L, sysconf(_SC_NPROCESSORS_ONLN)));
  const double load = std::max(last_minute, static_cast<double>(running)) / processors;
  return limit * std::max(slower, static_cast<int>(std::ceil(2 * load)));
}

}  // namespace dlock::test
