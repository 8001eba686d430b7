#pragma once

#include <string>
#include <string_view>

#include "http/http_client.hpp"

namespace dlock {

/// The server of a URL `http[s]://HOST[:PORT][/PATH]`, and its addresses once they are looked up.
class HttpServer {
 public:
  HttpServer() = default;
  /// Throws Error{usage} with the URL if it has another form; `what` names it.
  HttpServer(std::string_view url, const std::string& what);

  /// Where to send a request for `path`, which begins with a slash. With a `server_name`, the
  /// certificate must be for that name. Throws Error{unavailable} if the host has no address.
  HttpAddress address_of(const std::string& path, const std::string& server_name,
                         const CallOptions& call_options);
  /// The next request looks the host up again.
  void forget_addresses() { resolved_.clear(); }

  bool is_encrypted() const { return encrypted_; }
  const std::string& host() const { return host_; }
  /// The URL, for people.
  std::string name() const;

 private:
  bool encrypted_ = true;
  std::string host_;
  int port_ = 0;
  std::string path_;
  std::string resolved_;  ///< as HttpAddress::resolved
};

}  // namespace dlock
