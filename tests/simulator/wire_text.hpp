#pragma once

#include <string>

#include "simulator/server.hpp"

namespace dlock::sim {

/// A request, what was said to it, and a message to a waiter, for the story.
std::string text_of(const Request& request);
std::string text_of(const Said& said);
std::string text_of(const Message& message);
/// The end of it, which is enough to tell tokens apart.
std::string text_of(const Token& token);

}  // namespace dlock::sim
