#pragma once

#include <string>
#include <string_view>

namespace dlock {

// Whatever people typed may be a URL with a password in it, or meant to be one.

/// `text`, which may be a URL, or a wrong one, for a message: `***` in place of what stands before
/// the last `@`, and of each secret in its query, escaped, and cut where it is longer than
/// anybody reads.
std::string redacted(std::string_view text);

/// Any value for a message, in quotes: the same, but an `@` counts only in what has a `://`, which
/// may have come to the wrong flag.
std::string in_quotes(std::string_view text);

/// Whether a parameter of this name in the query of a URL is a secret: a password, a client's
/// secret, or a key that libpq takes in place of a password.
bool is_secret_name(std::string_view name);

/// Whether a URL brings a password along, or another secret.
bool holds_password(std::string_view text);

/// Overwrites in argv, where `ps` would show it, the value of every `--token`, what stands before
/// the `@` of every URL, and the secrets in its query. Main calls it first thing, after it has
/// copied the strings.
void scrub_secrets(int argc, char** argv);

}  // namespace dlock
