#pragma once

#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace dlock {

/// A password that each login reads anew, so that a rotated one reaches a client that runs. Copies
/// share what was read last; any thread may use one.
class Password {
 public:
  Password(std::string text) : Password(std::move(text), {}) {}
  Password(const char* text) : Password(std::string(text)) {}
  /// `read` returns the password of now, or throws Error; `text` is what it returned before.
  Password(std::string text, std::function<std::string()> read);

  /// For a login now. A file may be missing while it is replaced: then the last text counts.
  std::string text() const;
  bool operator==(const Password& other) const;

 private:
  struct Shared {
    std::mutex lock{};
    std::string last{};
    std::function<std::string()> read{};
  };
  std::shared_ptr<Shared> shared_;
};

/// How a connection is encrypted. Certificate and name of the server are always verified.
struct TlsSettings {
  std::string ca;           ///< PEM file, or directory of hashed ones; empty: the system's
  std::string certificate;  ///< PEM file with the client's own chain; empty: none
  std::string key;          ///< PEM file with its key
  std::string server_name;  ///< the name the server must prove, in place of its host
  bool operator==(const TlsSettings&) const = default;
};

/// One Redis or Valkey server, or Sentinel, and how to log in to it. Made from a URL and settings,
/// constant from there on; never shown but through name().
struct Endpoint {
  std::string host;  ///< name or address, IPv6 without brackets; unused with a socket
  int port = 6379;
  std::string socket_path;  ///< absolute path of a Unix socket, in place of host and port
  int database = 0;
  std::optional<std::string> user;
  std::optional<Password> password;
  std::optional<TlsSettings> tls;  ///< nothing: in plain text

  bool is_unix() const { return !socket_path.empty(); }
  /// `db1:6379`, `[::1]:6379`, `/run/redis.sock`: escaped.
  std::string address() const;
  /// `redis://db1:6379/2`, `unix:///run/redis.sock`: escaped, without credentials.
  std::string name() const;
  bool operator==(const Endpoint&) const = default;
};

/// `[::1]`; other than an IPv6 address as it is.
std::string in_brackets(std::string host);
/// `host:port`, with brackets around an IPv6 address: escaped.
std::string address_of(std::string_view host, std::string_view port);

/// Whether `host` is a name or an address by which a host reaches itself.
bool is_this_host(std::string_view host);

/// `redis+cluster://n1:6379,n2:6379`: what people call several servers that are one place, `kind`
/// being `cluster` or `sentinel`. Escaped, without credentials.
std::string deployment_name(const std::string& kind, const std::vector<Endpoint>& servers);

}  // namespace dlock
