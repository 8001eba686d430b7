#pragma once

#include <cstddef>
#include <cstdint>
#include <string_view>
#include <vector>

#include "lock/grant.hpp"
#include "redis/reply.hpp"

namespace dlock {

/// Read the script's answer item by item. They throw Error{unavailable} if the script gives no such
/// answer.
[[noreturn]] void unexpected_answer();
const Reply& item(const Reply& reply, std::size_t i);
std::string_view word(const Reply& reply, std::size_t i);
std::int64_t number(const Reply& reply, std::size_t i);
milliseconds span(const Reply& reply, std::size_t i);

/// Splits a reply of one line at its blanks into a list of items.
Reply in_items(Reply reply);

/// The holds in a reply from `first` on; `now` is the server's clock.
std::vector<Holder> holders_from(const Reply& reply, std::size_t first, std::int64_t now);

/// Parses a reply that begins with "refused".
Refusal refusal_from(const Reply& reply);

}  // namespace dlock
