#pragma once

#include <cstdint>
#include <optional>
#include <string_view>

// What ZooKeeper's servers say, byte by byte: frames of values in Apache's jute coding.

namespace dlock::test {

/// The number at `at`; 0 where there is none.
std::int32_t jute_number_at(std::string_view bytes, std::size_t at);

/// How many bytes the first whole frame in `bytes` has; nothing where it is not whole yet. What
/// cannot be a frame, as the answer to a command of four letters, is one, all of it.
std::optional<std::size_t> jute_frame_size(std::string_view bytes);

}  // namespace dlock::test
