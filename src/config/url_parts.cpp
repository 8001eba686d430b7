#include "config/url_parts.hpp"

#include <arpa/inet.h>

#include <algorithm>
#include <cctype>

#include "base/duration.hpp"
#include "base/error.hpp"
#include "base/text.hpp"
#include "config/secrets.hpp"

namespace dlock {

Endpoint UrlParts::login(bool tls) const {
  if (password == "") throw_usage("the password before the @ is empty");
  Endpoint server;
  server.user = user;
  if (password) server.password = *password;
  if (tls) server.tls.emplace();
  return server;
}

std::string decoded(std::string_view text, const std::string& what) {
  const auto is_hex = [](char c) { return std::isxdigit(static_cast<unsigned char>(c)) != 0; };
  for (std::size_t i = text.find('%'); i != std::string_view::npos; i = text.find('%', i + 1)) {
    const bool pair = i + 2 < text.size() && is_hex(text[i + 1]) && is_hex(text[i + 2]);
    if (!pair) throw_usage(what + " has a % without two hex digits after it: a % itself is %25");
  }
  std::string plain = percent_decoded(text);
  if (plain.find('\0') != std::string::npos) throw_usage(what + " holds a NUL");
  return plain;
}

std::string_view cut_until(std::string_view& text, std::string_view marks) {
  const auto part = text.substr(0, text.find_first_of(marks));
  text.remove_prefix(part.size());
  return part;
}

namespace {

/// Removes `user:pw@`, `:pw@` or `user@` from the front of the hosts.
void take_login(UrlParts& parts) {
  const auto at = parts.hosts.rfind('@');
  if (at == std::string_view::npos) return;
  auto login = parts.hosts.substr(0, at);
  parts.hosts.remove_prefix(at + 1);
  const bool several = login.find('@') != std::string_view::npos;
  if (several && login.find(',') != std::string_view::npos) {
    throw_usage("user and password come once, before the first host; a comma in them is %2C");
  }
  const auto user = cut_until(login, ":");
  if (!user.empty()) parts.user = decoded(user, "the user");
  if (!login.empty()) parts.password = decoded(login.substr(1), "the password");
  if (!parts.user && !parts.password) throw_usage("nothing comes before the @");
}

}  // namespace

UrlParts url_parts(std::string_view rest, bool path_may_have_at) {
  UrlParts parts{.hosts = cut_until(rest, "/?#")};
  if (!path_may_have_at && rest.find('@') != std::string_view::npos) {
    throw_usage("an @ follows the host: in a user or password / is %2F, ? is %3F and # is %23");
  }
  if (rest.find('#') != std::string_view::npos) {
    throw_usage("a # stands in the URL: in a user, password or name it is written %23");
  }
  take_login(parts);
  parts.path = cut_until(rest, "?");
  if (!parts.path.empty()) parts.path.remove_prefix(1);
  if (!rest.empty()) parts.query = rest.substr(1);
  return parts;
}

UrlParts url_parts(std::string_view rest, const char* form) {
  UrlParts parts = url_parts(rest);
  const bool has_query = rest.find('?') != std::string_view::npos;
  if (has_query) throw_usage(std::string("nothing may follow ") + form);
  return parts;
}

UrlParameter take_parameter(std::string_view& query) {
  auto value = take_until(query, '&');
  const bool has_value = value.find('=') != std::string_view::npos;
  if (!has_value) throw_usage("after the ? comes NAME=VALUE, and more of them after an &");
  std::string name = decoded(take_until(value, '='), "the name of a parameter");
  std::string text = decoded(value, redacted(name));
  if (text.empty()) throw_usage("\"" + redacted(name) + "=\" has no value");
  return {std::move(name), std::move(text)};
}

std::string absolute_path(const std::string& path, const std::string& of) {
  if (path.starts_with('/') && !path.starts_with("//")) return path;
  throw_usage(of + " is not an absolute path: \"" + redacted(path) + "\"");
}

void refuse_colons(std::string_view host_and_port) {
  if (std::count(host_and_port.begin(), host_and_port.end(), ':') < 2) return;
  throw_usage("an IPv6 address has brackets, as in [::1]:6379, and an @ follows a password");
}

std::string take_host(std::string_view& authority) {
  if (authority.starts_with('[')) {
    const auto close = authority.find(']');
    std::string address = decoded(authority.substr(1, close - 1), "the address");
    in6_addr parsed{};
    const std::string without_zone = address.substr(0, address.find('%'));
    if (close == std::string_view::npos ||
        inet_pton(AF_INET6, without_zone.c_str(), &parsed) != 1) {
      throw_usage("\"" + redacted(authority) +
                  "\" is not an IPv6 address in brackets, as in [::1]:6379");
    }
    authority.remove_prefix(close + 1);
    return address;
  }
  refuse_colons(authority);
  std::string host(cut_until(authority, ":"));
  const bool named = std::all_of(host.begin(), host.end(), [](unsigned char c) {
    return c == '-' || c == '.' || c == '_' || std::isalnum(c) != 0;
  });
  if (host.empty()) throw_usage("the host is missing: redis://HOST[:PORT][/DB]");
  if (!named) throw_usage("invalid host name \"" + redacted(host) + "\"");
  return host;
}

int port_in(std::string_view text, int usual) {
  if (text.empty()) return usual;
  if (!text.starts_with(':')) throw_usage("\"" + redacted(text) + "\" after the host is not :PORT");
  const auto port = parse_number(text.substr(1), 1, 65535);
  if (port) return static_cast<int>(*port);
  // The text may be a password without its @.
  throw_usage("the port is no number from 1 to 65535; an @ follows a password");
}

std::vector<Endpoint> endpoints_at(std::string_view hosts, const Endpoint& like) {
  std::vector<Endpoint> endpoints;
  while (true) {
    Endpoint endpoint = like;
    auto address = cut_until(hosts, ",");
    endpoint.host = take_host(address);
    endpoint.port = port_in(address, like.port);
    const bool twice = std::find(endpoints.begin(), endpoints.end(), endpoint) != endpoints.end();
    if (twice) throw_usage(endpoint.address() + " is named twice");
    endpoints.push_back(std::move(endpoint));
    if (hosts.empty()) return endpoints;
    hosts.remove_prefix(1);
  }
}

}  // namespace dlock
