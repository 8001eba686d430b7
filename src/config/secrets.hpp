#pragma once

#include <string>
#include <string_view>

namespace dlock {

// Any text that a user typed may be a URL with a password, or an attempt at one.

/// Makes `text`, which may be a valid or invalid URL, safe for a message. It replaces the part
/// before the last `@`, and each secret in the query, by `***`, escapes the rest, and shortens a
/// long text.
std::string redacted(std::string_view text);

/// The same in quotes, for any value. An `@` counts only in a text with `://`, which may be a URL
/// that was given to the wrong flag.
std::string in_quotes(std::string_view text);

/// Whether a URL contains a password or another secret.
bool holds_password(std::string_view text);

/// Overwrites secrets in argv, where `ps` would show them: the value of every `--token`, the part
/// of every URL before its `@`, and secrets in its query. main calls it first, once it has copied
/// the strings.
void scrub_secrets(int argc, char** argv);

}  // namespace dlock
