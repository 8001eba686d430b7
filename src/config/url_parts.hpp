#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/endpoint.hpp"

namespace dlock {

// The parts of a server's URL, for parse_server_url(). These functions throw Error{usage}. No
// message shows a password, not even one whose @ is forgotten or misplaced.

/// The parts of `SCHEME://USER:PASSWORD@HOSTS/PATH?QUERY`.
struct UrlParts {
  std::optional<std::string> user{};
  std::optional<std::string> password{};
  std::string_view hosts;
  std::string_view path{};  ///< after its first slash, not decoded
  std::string_view query{};

  /// A server with this login. Refuses an empty password.
  Endpoint login(bool tls) const;
};

/// Splits the text after `://` into its parts. A `/`, `?` or `#` in a password would end the hosts
/// too early, and messages would show the rest of the password as a path. An `@` after such a
/// character is therefore refused unless `path_may_have_at`.
UrlParts url_parts(std::string_view rest, bool path_may_have_at = false);
/// Like url_parts() above, but refuses a query: a URL of this `form` has none.
UrlParts url_parts(std::string_view rest, const char* form);

/// A parameter of a query, decoded.
struct UrlParameter {
  std::string name;
  std::string value;
};
/// Removes `NAME=VALUE`, and the `&` after it, from the front of a query that is not empty.
UrlParameter take_parameter(std::string_view& query);

/// Percent-decodes `text`; `what` names it in messages.
std::string decoded(std::string_view text, const std::string& what);
/// Removes the text before the first of `marks` from the front of `text`, and returns it.
std::string_view cut_until(std::string_view& text, std::string_view marks);
/// Refuses a relative path: each connection reads the file again, and the attach daemon has another
/// working directory.
std::string absolute_path(const std::string& path, const std::string& of);
/// Refuses an IPv6 address without brackets.
void refuse_colons(std::string_view host_and_port);
/// Removes a host name or address from the front of `authority`; IPv6 is in brackets.
std::string take_host(std::string_view& authority);
/// The port in `:PORT`, which is the text after a host; `usual` if the text is empty.
int port_in(std::string_view text, int usual);
/// Parses `H1[:P1],H2,...`; the other members of each endpoint are those of `like`.
std::vector<Endpoint> endpoints_at(std::string_view hosts, const Endpoint& like);

}  // namespace dlock
