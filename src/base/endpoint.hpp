#pragma once

#include <cstddef>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <string_view>

#include "base/clock.hpp"
#include "base/wait.hpp"

namespace dlock {

/// The longest string, in bytes, that Redis accepts from a client that has not logged in.
inline constexpr std::size_t longest_password = 16384;

/// A password that each login reads anew, so that a running client gets a rotated one. Copies share
/// the password that was read last. Several threads may use a Password at once.
class Password {
 public:
  Password(std::string text);
  Password(const char* text) : Password(std::string(text)) {}
  /// Returns the current password, or throws Error.
  using Read = std::function<std::string(const CallOptions&)>;
  /// Calls `read` at once, and throws its Error if that fails.
  explicit Password(Read read);

  /// The password for a login now. Throws Error{unavailable} if it cannot be read; the next login
  /// then uses the last one, which may still be valid. Logins that follow within the time that
  /// reading took share the password, because a client may log in to several servers at once.
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

/// How dlock encrypts a connection. dlock always verifies the server's certificate and name.
struct TlsSettings {
  std::string ca{};           ///< PEM file, or directory of hashed files; empty: the system's
  std::string certificate{};  ///< PEM file with the client's own chain; empty: none
  std::string key{};          ///< PEM file with the private key of `certificate`
  std::string server_name{};  ///< the name that the server must prove, instead of the URL's host
  bool operator==(const TlsSettings&) const = default;
};

/// One Redis or Valkey server, or Sentinel, and how to log in to it. It is made from a URL and
/// settings and never changes; messages show only its name().
struct Endpoint {
  std::string host;  ///< name or address, IPv6 without brackets; unused with a socket
  int port = 6379;
  std::string socket_path;  ///< absolute path of a Unix socket, in place of host and port
  int database = 0;
  std::optional<std::string> user;
  std::optional<Password> password;
  std::optional<TlsSettings> tls;  ///< nothing: plain text

  bool is_unix() const { return !socket_path.empty(); }
  /// `db1:6379`, `[::1]:6379`, `/run/redis.sock`: escaped.
  std::string address() const;
  /// `redis://db1:6379/2`, `unix:///run/redis.sock`: escaped, without credentials.
  std::string name() const;
  bool operator==(const Endpoint&) const = default;
};

/// `[::1]` for an IPv6 address; any other host is unchanged.
std::string in_brackets(std::string host);
/// `host:port`, with brackets around an IPv6 address: escaped.
std::string address_of(std::string_view host, std::string_view port);

/// Whether `host` is a name or an address by which a host reaches itself.
bool is_this_host(std::string_view host);

}  // namespace dlock
