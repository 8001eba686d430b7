#pragma once

#include <cstdint>

namespace dlock {

/// Identifies this boot of the machine: a hash of the kernel's boot id; 0 if the kernel's cannot be
/// read, as where /proc lacks it or a container has mounted another one over it.
std::uint64_t boot_hash();

}  // namespace dlock
