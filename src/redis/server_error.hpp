#pragma once

#include <span>
#include <string>
#include <string_view>

#include "base/error.hpp"
#include "redis/reply.hpp"

namespace dlock {

/// Returns the Error to throw for an error reply. It distinguishes all classes of the server and
/// never reads one as "held by another". Redis 6.2 wraps the class of a script's error in ERR, so
/// the text is searched for it.
Error server_error(const Reply& reply);
/// The same, with `server` as the server's name in the message.
Error server_error(const Reply& reply, const std::string& server);

/// The same for a reply to AUTH. The message quotes only known text of the reply, or the reply
/// without `credentials`, which a server may repeat.
Error auth_error(const Reply& reply, std::span<const std::string> credentials);

/// Whether `reply` is an error of this class, plain or wrapped.
bool is_of_class(const Reply& reply, std::string_view code);

}  // namespace dlock
