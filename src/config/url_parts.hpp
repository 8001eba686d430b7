#pragma once

#include <string>
#include <string_view>

namespace dlock {

// Helpers of the URL parsers. All throw Error{usage}, whose message never shows a password.

/// Removes the text before the first of `marks` from the front of `text`, and returns it.
std::string_view cut_until(std::string_view& text, std::string_view marks);

/// Percent-decodes `text`; `what` names it in messages.
std::string decoded(std::string_view text, const std::string& what);

/// Reports that :// is followed by more colons than a HOST:PORT has.
[[noreturn]] void refuse_colons();

/// Removes a host name or address from the front of `authority`; IPv6 is in brackets.
std::string take_host(std::string_view& authority);

int parse_port(std::string_view text);

/// Removes the part between `://` and the path from the front of `rest`, and returns it. A `/`, `?`
/// or `#` in a password would end that part too early, and the rest of the password would be shown
/// as a path. An `@` after it is therefore refused unless `path_may_have_at`.
std::string_view take_authority(std::string_view& rest, bool path_may_have_at);

}  // namespace dlock
