#pragma once

#include <initializer_list>

#include "config/settings.hpp"
#include "config/sources.hpp"

namespace dlock {

/// The options that name the server and say how to reach it.
inline constexpr std::initializer_list<const char*> flags_about_a_server = {
    "server",      "prefix",  "password-file",   "password-command", "tls-ca",
    "tls-cert",    "tls-key", "tls-server-name", "sentinel-user",    "sentinel-password-file",
    "sentinel-tls"};

/// Chooses the server with its password and TLS files, in the order that resolve() documents.
void choose_server(const Sources& sources, ServerSettings& settings);

/// Sets the layout of --compat, once all other settings are resolved. Throws Error{usage} if there
/// is no such layout, if it does not support another flag, or if its library does not use such
/// servers.
void choose_layout(const CommandLine& line, ServerSettings& settings);

/// Warns before a lock is taken in an engine that forgets locks.
void warn_of_engine(ClaimSettings& settings);

/// Chooses what inspect shows, once all other settings are resolved. With --all-kinds keys become
/// patterns. In an engine that cannot list its keys, patterns without wildcards become keys.
/// Throws Error{usage} if other libraries have no locks on this server, or if their locks cannot be
/// shown in this form.
void choose_shown(InspectSettings& settings);

}  // namespace dlock
