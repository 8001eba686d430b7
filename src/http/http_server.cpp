#include "http/http_server.hpp"

#include <algorithm>

#include "base/error.hpp"
#include "base/text.hpp"

namespace dlock {

HttpServer HttpServer::of_url(const std::string& url, const std::string& what) {
  const auto path = std::min(url.size(), url.find('/', url.find("//") + 2));
  const auto endpoint = http_endpoint(url.substr(0, path));
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
