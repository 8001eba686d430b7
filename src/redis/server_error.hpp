#pragma once

#include "base/error.hpp"
#include "redis/reply.hpp"

namespace dlock {

/// What an error reply means for the user, as the Error to throw: each class the server has is
/// told apart, and none is ever read as "held by another". Inside a script Redis 6.2 wraps the
/// class in an ERR of its own, so the text is searched for it.
Error server_error(const Reply& reply);

}  // namespace dlock
