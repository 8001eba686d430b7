#pragma once

#include <span>
#include <string>
#include <vector>

#include "doctor/facts.hpp"
#include "redis/redis_connection.hpp"

namespace dlock {

// What all examinations have in common: asking, and reading answers into facts.

/// The replies, errors included; Error{unavailable} where there are none within some seconds.
std::vector<Reply> ask_all(RedisConnection& connection, std::span<const Request> requests);
Reply ask(RedisConnection& connection, const Request& request);

/// Why this reply holds no answer: `NOPERM`, `unknown command`, or what the server said, escaped;
/// empty if it is no error.
std::string refusal_of(const Reply& reply);

/// A reply as text, numbers too.
std::string text_of(const Reply& reply);

/// `name:value` lines, as INFO has them.
ServerInfo told_in_lines(const Reply& reply);
/// Names and values in turn, as CONFIG GET, HELLO and SENTINEL MASTER have them.
ServerInfo told_in_pairs(const Reply& reply);

/// What the server is: `master`, `slave`, `sentinel`, `active-replica`, by what tells it; empty if
/// nothing does. And `standalone`, `cluster` or `sentinel`.
std::string role_of(const ServerFacts& facts);
std::string mode_of(const ServerFacts& facts);

}  // namespace dlock
