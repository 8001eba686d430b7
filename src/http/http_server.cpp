#include "http/http_server.hpp"

#include "base/duration.hpp"
#include "base/error.hpp"
#include "base/text.hpp"

namespace dlock {

HttpServer::HttpServer(std::string_view url, const std::string& what)
    : encrypted_(url.starts_with("https://")), port_(encrypted_ ? 443 : 80) {
  const auto refuse = [&, whole = url] {
    throw_usage(what + " is not http[s]://HOST[:PORT][/PATH]: \"" + escaped(whole) + "\"");
  };
  if (!encrypted_ && !url.starts_with("http://")) refuse();
  url.remove_prefix(url.find("//") + 2);
  auto authority = url.substr(0, url.find('/'));
  path_ = url.substr(authority.size());
  while (path_.ends_with('/')) path_.pop_back();
  const auto colon = authority.find(':', authority.starts_with('[') ? authority.find(']') : 0);
  if (colon != std::string_view::npos) {
    const auto port = parse_number(authority.substr(colon + 1), 1, 65535);
    if (!port) refuse();
    port_ = static_cast<int>(*port);
    authority = authority.substr(0, colon);
  }
  if (authority.starts_with('[')) authority = authority.substr(1, authority.size() - 2);
  if (authority.empty()) refuse();
  host_ = authority;
}

std::string HttpServer::name() const {
  return std::string(encrypted_ ? "https://" : "http://") +
         dlock::address_of(host_, std::to_string(port_)) + escaped(path_);
}

HttpAddress HttpServer::address_of(const std::string& path, const std::string& server_name,
                                   const CallOptions& call_options) {
  if (resolved_.empty()) resolved_ = resolved_addresses(host_, port_, call_options);
  const std::string port = std::to_string(port_), rest = path_ + path;
  const std::string address = dlock::address_of(host_, port);
  if (!encrypted_) return {"http://" + address + rest, {}, resolved_};
  if (server_name.empty()) return {"https://" + address + rest, {}, resolved_};
  return {"https://" + dlock::address_of(server_name, port) + rest, "::" + address, resolved_};
}

}  // namespace dlock
