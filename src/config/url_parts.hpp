#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/endpoint.hpp"

namespace dlock {

// The parts that URLs of all engines have. All functions throw Error{usage}, whose message never
// shows a password, not even one whose @ is forgotten or misplaced.

/// The parts of `SCHEME://USER:PASSWORD@HOSTS/PATH?QUERY`.
struct UrlParts {
  std::optional<std::string> user{};
  std::optional<std::string> password{};
  std::string_view hosts;
  std::string_view path{};  ///< after its first slash, not decoded
  std::string_view query{};

  /// A server with this login, which has no empty password.
  Endpoint login(bool tls) const;
};

/// Takes the text after `://` apart. A `/`, `?` or `#` in a password would end the hosts too early,
/// and the rest of the password would be shown as a path. An `@` after them is therefore refused
/// unless `path_may_have_at`.
UrlParts url_parts(std::string_view rest, bool path_may_have_at = false);

/// The same for a URL of this `form`, which has no query.
UrlParts url_parts(std::string_view rest, const char* form);

/// A parameter of a query, decoded.
struct UrlParameter {
  std::string name;
  std::string value;
};

/// Removes `NAME=VALUE`, and the `&` after it, from the front of a query that is not empty.
UrlParameter take_parameter(std::string_view& query);

/// Removes the text before the first of `marks` from the front of `text`, and returns it.
std::string_view cut_until(std::string_view& text, std::string_view marks);

/// Percent-decodes `text`; `what` names it in messages.
std::string decoded(std::string_view text, const std::string& what);

/// Refuses an IPv6 address without brackets.
void refuse_colons(std::string_view host_and_port);

/// Whether this is the name or the address of a host, IPv6 without brackets.
bool is_host(const std::string& text);

/// Removes a host name or address from the front of `authority`; IPv6 is in brackets.
std::string take_host(std::string_view& authority);

/// The port in `:PORT`, which follows a host; `usual` if nothing does.
int port_in(std::string_view text, int usual);

/// Parses `H1[:P1],H2,...`; the other members of each endpoint are those of `like`.
std::vector<Endpoint> endpoints_at(std::string_view hosts, const Endpoint& like);

}  // namespace dlock
