#pragma once

#include <cstdint>
#include <optional>
#include <string_view>

// The protocol of ZooKeeper's servers, byte by byte: frames of values in Apache's jute encoding.

namespace dlock::test {

/// The number at `at`; 0 where there is none.
std::int32_t jute_number_at(std::string_view bytes, std::size_t at);

/// The size of the first whole frame in `bytes`; nothing if it is incomplete. Bytes that cannot be
/// a frame, such as the answer to a four-letter command, count as one frame.
std::optional<std::size_t> jute_frame_size(std::string_view bytes);

}  // namespace dlock::test
