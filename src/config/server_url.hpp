#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <variant>

namespace dlock {

/// `local:` or `local:/dir`.
struct LocalTarget {
  std::optional<std::string> dir;  ///< nothing: the user's own default directory
  bool operator==(const LocalTarget&) const = default;
};

/// One Redis or Valkey: `host` and `port`, or `socket`.
struct RedisTarget {
  std::string host;  ///< name or address, IPv6 without brackets; empty if `socket` is set
  int port = 6379;
  std::string socket;  ///< absolute path of a Unix socket
  int db = 0;
  std::optional<std::string> user;
  std::optional<std::string> password;  ///< resolve() fills it from where passwords come from
  bool operator==(const RedisTarget&) const = default;
};

using Target = std::variant<LocalTarget, RedisTarget>;

/// Reads `local:[/dir]`, `redis://[user:pw@|:pw@|user@]host[:port][/db]` and
/// `unix://[user:pw@]/path[?db=N]`; user, password and paths are percent-decoded. Throws
/// Error{usage} without saying where the URL stood; the message shows nothing before an `@`.
Target parse_server_url(std::string_view text);

/// What people may see of it: `redis://db1:6379/0`, `unix:///run/redis.sock?db=0`, `local:/dir`;
/// without user and password, escaped.
std::string shown(const Target& target);

/// `text`, which may be a URL, or a wrong one, for a message: `***` in place of what stands before
/// the last `@`, escaped, and cut where it is longer than anybody reads.
std::string redacted(std::string_view text);

/// Any value for a message, in quotes: the same, but an `@` counts only in what has a `://`, which
/// may have come to the wrong flag.
std::string in_quotes(std::string_view text);

/// Whether a URL brings a password along.
bool holds_password(std::string_view text);

/// Overwrites what stands before the `@` of every URL in argv, where `ps` would show it. Main calls
/// it first thing, after it has copied the strings.
void scrub_passwords(int argc, char** argv);

}  // namespace dlock
