#include "http/http_server.hpp"

#include <algorithm>

#include "base/duration.hpp"
#include "base/error.hpp"
#include "base/text.hpp"

namespace dlock {
namespace {

/// The server of `http[s]://HOST[:PORT]`; nothing if `url` has another form.
std::optional<Endpoint> endpoint_of(std::string_view url) {
  constexpr std::string_view plain = "http://", encrypted = "https://";
  Endpoint server;
  if (url.starts_with(encrypted)) server.tls.emplace();
  if (!server.tls && !url.starts_with(plain)) return std::nullopt;
  url.remove_prefix(server.tls ? encrypted.size() : plain.size());
  server.port = server.tls ? 443 : 80;
  const auto colon = url.find(':', url.starts_with('[') ? url.find(']') : 0);
  if (colon != std::string_view::npos) {
    const auto port = parse_number(url.substr(colon + 1), 1, 65535);
    if (!port) return std::nullopt;
    server.port = static_cast<int>(*port);
    url = url.substr(0, colon);
  }
  if (url.starts_with('[') && url.ends_with(']')) url = url.substr(1, url.size() - 2);
  server.host = url;
  const bool is_host = !url.empty() && url.find_first_of("/@?#[]") == std::string_view::npos;
  return is_host ? std::optional(server) : std::nullopt;
}

}  // namespace

HttpServer HttpServer::of_url(const std::string& url, const std::string& what) {
  const auto path = std::min(url.size(), url.find('/', url.find("//") + 2));
  const auto endpoint = endpoint_of(url.substr(0, path));
  if (!endpoint) {
    throw_usage(what + " is not http[s]://HOST[:PORT][/PATH]: \"" + escaped(url) + "\"");
  }
  HttpServer server{*endpoint, url.substr(path)};
  while (server.path.ends_with('/')) server.path.pop_back();
  return server;
}

void HttpServer::look_up(const CallOptions& call_options) {
  if (resolved.empty()) resolved = resolved_addresses(endpoint.host, endpoint.port, call_options);
}

HttpAddress HttpServer::at(const std::string& rest) const {
  const std::string address = endpoint.address(), all = path + rest;
  if (!endpoint.tls) return {"http://" + address + all, {}, resolved};
  const std::string& proven = endpoint.tls->server_name;
  if (proven.empty()) return {"https://" + address + all, {}, resolved};
  return {"https://" + address_of(proven, std::to_string(endpoint.port)) + all, "::" + address,
          resolved};
}

std::string HttpServer::name() const {
  return (endpoint.tls ? "https://" : "http://") + endpoint.address() + escaped(path);
}

}  // namespace dlock
