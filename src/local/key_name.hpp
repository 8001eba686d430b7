#pragma once

#include <optional>
#include <string>
#include <string_view>

#include "lock/claim.hpp"

namespace dlock {

/// Ends the name of every key's file; what ends otherwise in the directory is none of ours.
constexpr std::string_view key_suffix = ".dlock";

/// The name of the file of `key`: the key percent-encoded, so that people can read it; a long one
/// is cut and ends in a hash. The whole key stands inside the file, which decides.
std::string key_file_name(const LockKey& key);

/// The same for the file with the largest fence that came to a resource; nobody tidies it up.
std::string seal_file_name(const LockKey& resource);

/// The key that a file of this name is for; nothing if the name was cut, or is not of a key.
std::optional<LockKey> key_of_file_name(std::string_view name);

/// Whether a file of this name is for a key at all.
bool is_key_file_name(std::string_view name);

}  // namespace dlock
