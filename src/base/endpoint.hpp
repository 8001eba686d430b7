#pragma once

#include <cstddef>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/clock.hpp"
#include "base/wait.hpp"

namespace dlock {

/// Redis itself takes no longer one from a client it does not know yet.
inline constexpr std::size_t longest_password = 16384;

/// A password that each login reads anew, so that a rotated one reaches a client that runs. Copies
/// share what was read last; any thread may use one.
class Password {
 public:
  Password(std::string text);
  Password(const char* text) : Password(std::string(text)) {}
  /// Returns the password of now, or throws Error.
  using Read = std::function<std::string(const CallOptions&)>;
  /// The first one is read at once.
  explicit Password(Read read);

  /// For a login now. Throws Error{unavailable} where it cannot be read; the next login then takes
  /// the last one, which may still be right. Logins share one that took as long to read as it is
  /// old: those at several servers come together.
  std::string text(const CallOptions& call_options) const;
  bool operator==(const Password& other) const;

 private:
  struct Shared {
    void read_anew(const CallOptions& call_options);

    std::mutex lock{};
    std::string last{};
    Read read{};
    Deadline fresh_until{};
    bool failed = false;
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
