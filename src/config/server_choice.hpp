#pragma once

#include <initializer_list>
#include <string>
#include <vector>

#include "config/server_url.hpp"
#include "config/sources.hpp"

namespace dlock {

/// The server to use, its password included.
struct ChosenServer {
  Target target = LocalTarget{};
  bool configured = false;
  std::vector<std::string> warnings;
};

/// The options that say which server, and how to reach it.
inline constexpr std::initializer_list<const char*> flags_about_a_server = {
    "server",          "password-file", "password-command",      "tls-ca", "tls-cert", "tls-key",
    "tls-server-name", "sentinel-user", "sentinel-password-file"};

/// Chooses the server and its password; the order of passwords is that of resolve().
ChosenServer choose_server(const Sources& sources);

/// --replicas, 0 if it is not given; refused where the server has none.
int replicas_of(const Target& server, const Sources& sources);

/// A server that lost its memory must know for how long leases may last that it has forgotten.
void check_quorum(const Target& server, const Sources& sources, std::optional<milliseconds> ttl,
                  std::optional<milliseconds> min_hold = std::nullopt);

}  // namespace dlock
