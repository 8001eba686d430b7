#pragma once

#include <cstddef>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace dlock::test {

/// The size of the first whole RESP2 message (request or reply) or request of HTTP in `bytes`;
/// nothing if it is incomplete. Other bytes count as one message.
std::optional<std::size_t> message_size(std::string_view bytes);

/// The words of a request: an array of bulk strings.
std::vector<std::string> request_words(std::string_view message);

/// The request made of these words.
std::string request(const std::vector<std::string>& words);

/// Whether the message is a published one and no reply.
bool is_published(std::string_view message);

}  // namespace dlock::test
