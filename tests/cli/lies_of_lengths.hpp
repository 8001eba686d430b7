#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "support/lying_relay.hpp"

// Lies about lengths and counts, which do not match the data that follow.

namespace dlock::test {

/// Returns the false length for a true one.
using OtherLength = std::function<std::int64_t(std::int64_t)>;
/// Replaces each length in a reply. A value too large for its field is truncated.
using WithLengths = std::string (*)(const std::string& truth, const OtherLength& other);

/// The lengths of texts and arrays.
std::string with_resp_lengths(const std::string& truth, const OtherLength& other);
/// The lengths of bodies and chunks.
std::string with_http_lengths(const std::string& truth, const OtherLength& other);
std::string with_postgres_lengths(const std::string& truth, const OtherLength& other);
std::string with_mariadb_lengths(const std::string& truth, const OtherLength& other);
/// The length of a frame.
std::string with_jute_lengths(const std::string& truth, const OtherLength& other);

/// Lengths of one more and one less than the data, zero, negative and huge.
void add_lies_of_lengths(WithLengths with, std::vector<Lie>& all);

}  // namespace dlock::test
