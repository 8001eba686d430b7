#pragma once

#include <optional>
#include <string>
#include <string_view>

#include "lock/claim.hpp"

namespace dlock {

/// The suffixes of every key's and every latch's file. dlock's only other files are the FIFOs of
/// waiters and the fence files of `guard`.
constexpr std::string_view key_suffix = ".dlock";
constexpr std::string_view latch_suffix = ".latch";

/// The file name of `key`: the key percent-encoded, so that it is readable; a long one is shortened
/// and ends in a hash. The file contains the whole key, which shows if two keys share a name.
std::string key_file_name(const LockKey& key);
/// The file name of the latch of this key.
std::string latch_file_name(const LockKey& key);

/// The file name of this resource's fence register, which dlock never removes.
std::string fence_file_name(const LockKey& resource);

/// The key that belongs to a file name of a lock or latch; nothing for a shortened or other name.
std::optional<LockKey> key_of_file_name(std::string_view name);

/// Whether a file of this name is for a key, or for a latch.
bool is_key_file_name(std::string_view name);
bool is_latch_file_name(std::string_view name);

}  // namespace dlock
