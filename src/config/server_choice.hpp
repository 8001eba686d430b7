#pragma once

#include <initializer_list>
#include <string>
#include <vector>

#include "config/server_url.hpp"
#include "config/sources.hpp"

namespace dlock {

/// The server to use, with its password.
struct ChosenServer {
  Target target = LocalTarget{};
  bool configured = false;
  std::vector<std::string> warnings;
};

/// The options that name the server and say how to reach it.
inline constexpr std::initializer_list<const char*> flags_about_a_server = {
    "server",          "password-file", "password-command",      "tls-ca", "tls-cert", "tls-key",
    "tls-server-name", "sentinel-user", "sentinel-password-file"};

/// Chooses the server and its password, in the order that resolve() documents.
ChosenServer choose_server(const Sources& sources);

/// Returns the value of --replicas, 0 if not given; refuses it if the server has no replicas.
int replicas_of(const Target& server, const Sources& sources);

/// Refuses leases and min-holds that are too long for a majority of servers: a node that lost its
/// memory waits for the longest lease before it votes again.
void check_quorum(const Target& server, const Sources& sources, std::optional<milliseconds> ttl,
                  std::optional<milliseconds> min_hold = std::nullopt);

}  // namespace dlock
