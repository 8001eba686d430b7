#pragma once

#include <cstddef>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace dlock::test {

/// How many bytes the first whole RESP2 message (request or reply) in `bytes` has; nothing where
/// it is not whole yet. What is not RESP counts as one message, all of it.
std::optional<std::size_t> message_size(std::string_view bytes);

/// The words of a request: an array of bulk strings.
std::vector<std::string> request_words(std::string_view message);

/// The reverse, to send.
std::string request(const std::vector<std::string>& words);

/// Whether a reply is one that nobody asked for: a published message.
bool is_published(std::string_view message);

}  // namespace dlock::test
