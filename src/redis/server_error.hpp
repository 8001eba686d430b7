#pragma once

#include <span>
#include <string>
#include <string_view>

#include "base/error.hpp"
#include "redis/reply.hpp"

namespace dlock {

/// The meaning of an error reply for the user, as the Error to throw: each class the server has is
/// told apart, and none is ever read as "held by another". Inside a script Redis 6.2 wraps the
/// class in an ERR of its own, so the text is searched for it.
Error server_error(const Reply& reply);
/// The same, of the server that people call `server`.
Error server_error(const Reply& reply, const std::string& server);

/// The same for a reply to AUTH. It quotes what dlock knows of the reply, or the reply without
/// `credentials`, which a server may repeat.
Error auth_error(const Reply& reply, std::span<const std::string> credentials);

/// Whether `reply` is an error of this class, as itself or wrapped.
bool is_of_class(const Reply& reply, std::string_view code);

}  // namespace dlock
