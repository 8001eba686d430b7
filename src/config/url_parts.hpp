#pragma once

#include <string>
#include <string_view>

namespace dlock {

// Shared by the readers of URLs. All throw Error{usage}, whose message shows no password.

/// The text before the first of `marks`, cut off the front of `text`.
std::string_view cut_until(std::string_view& text, std::string_view marks);

/// `text` percent-decoded; `what` names it in messages.
std::string decoded(std::string_view text, const std::string& what);

/// For more colons after :// than a HOST:PORT has.
[[noreturn]] void refuse_colons();

/// A name or an address, cut off the front of `authority`; IPv6 stands in brackets.
std::string take_host(std::string_view& authority);

int parse_port(std::string_view text);

/// The part between `://` and the path, cut off the front of `rest`. A `/`, `?` or `#` in a
/// password would end it too early, and the rest of the password would be taken for a path and
/// shown: that is refused unless `path_may_have_at`.
std::string_view take_authority(std::string_view& rest, bool path_may_have_at);

}  // namespace dlock
