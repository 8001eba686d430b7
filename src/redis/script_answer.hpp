#pragma once

#include <cstddef>
#include <cstdint>
#include <string_view>
#include <vector>

#include "lock/grant.hpp"
#include "redis/reply.hpp"

namespace dlock {

/// The answer of the script, item by item; Error{unavailable} where it is nothing the script says.
[[noreturn]] void unexpected_answer();
const Reply& item(const Reply& reply, std::size_t i);
std::string_view word(const Reply& reply, std::size_t i);
std::int64_t number(const Reply& reply, std::size_t i);
milliseconds span(const Reply& reply, std::size_t i);

/// A reply as a list of items, where it came as one line with blanks between them.
Reply in_items(Reply reply);

/// The holds in a reply from `first` on, `now` by the server's clock.
std::vector<Holder> holders_from(const Reply& reply, std::size_t first, std::int64_t now);

/// A reply that begins with "refused".
Refusal refusal_from(const Reply& reply);

}  // namespace dlock
