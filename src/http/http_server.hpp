#pragma once

#include <string>

#include "base/endpoint.hpp"
#include "http/http_client.hpp"

namespace dlock {

/// A server that speaks HTTP, and its addresses, which are looked up once.
struct HttpServer {
  /// The server of a URL `http[s]://HOST[:PORT][/PATH]`. Throws Error{usage} if `url` has another
  /// form; `what` names the server.
  static HttpServer of_url(const std::string& url, const std::string& what);

  Endpoint endpoint;
  std::string path{};      ///< of all requests: what follows host and port in the server's URL
  std::string resolved{};  ///< as HttpAddress::resolved; cleared: look_up() looks the host up again

  /// Throws Error{unavailable} if the host has no address.
  void look_up(const CallOptions& call_options);
  /// Where to send a request for `rest`, which follows the path. If the TLS settings name a server,
  /// the certificate must be for that name.
  HttpAddress at(const std::string& rest) const;
  /// The URL, for people.
  std::string name() const;
};

}  // namespace dlock
