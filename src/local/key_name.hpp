#pragma once

#include <optional>
#include <string>
#include <string_view>

#include "lock/claim.hpp"

namespace dlock {

/// End the names of every key's file and of every latch's. Of what ends otherwise in the directory
/// only the FIFOs of waiters and the fence files of `guard` are dlock's.
constexpr std::string_view key_suffix = ".dlock";
constexpr std::string_view latch_suffix = ".latch";

/// The name of the file of `key`: the key percent-encoded, so that people can read it; a long one
/// is cut and ends in a hash. The whole key stands inside the file, which decides.
std::string key_file_name(const LockKey& key);
/// The same of the latch of this key.
std::string latch_file_name(const LockKey& key);

/// The same for the file with the largest fence that came to a resource; nobody tidies it up.
std::string fence_file_name(const LockKey& resource);

/// The key that a file of either name is for; nothing if the name was cut, or is of neither.
std::optional<LockKey> key_of_file_name(std::string_view name);

/// Whether a file of this name is for a key at all, or for a latch.
bool is_key_file_name(std::string_view name);
bool is_latch_file_name(std::string_view name);

}  // namespace dlock
