#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "support/lying_relay.hpp"

// Lies about lengths and counts: what they announce is not what follows.

namespace dlock::test {

/// What a reply says of a length instead, from what it would have said.
using OtherLength = std::function<std::int64_t(std::int64_t)>;
/// A reply with another length in place of each that it has. What does not fit in its field is cut.
using WithLengths = std::string (*)(const std::string& truth, const OtherLength& other);

/// Of texts and arrays.
std::string with_resp_lengths(const std::string& truth, const OtherLength& other);
/// Of bodies and chunks.
std::string with_http_lengths(const std::string& truth, const OtherLength& other);
std::string with_postgres_lengths(const std::string& truth, const OtherLength& other);
std::string with_mariadb_lengths(const std::string& truth, const OtherLength& other);
/// Of a frame.
std::string with_jute_lengths(const std::string& truth, const OtherLength& other);

/// One more and one less than what follows, none, a negative and a gigantic one.
void add_lies_of_lengths(WithLengths with, std::vector<Lie>& all);

}  // namespace dlock::test
