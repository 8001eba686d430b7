#pragma once

#include <string>

#include "simulator/server.hpp"

namespace dlock::sim {

/// The text of a request, a reply and a message to a waiter, for the story.
std::string text_of(const Request& request);
std::string text_of(const Said& said);
std::string text_of(const Message& message);
/// The end of a token, which is enough to tell tokens apart.
std::string text_of(const Token& token);

}  // namespace dlock::sim
