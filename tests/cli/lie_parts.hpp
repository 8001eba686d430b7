#pragma once

#include <functional>
#include <string>
#include <utility>

#include "support/lying_relay.hpp"

// Building blocks of lies.

namespace dlock::test {

using Then = FalseReply::Then;

constexpr milliseconds drip{25};

inline Lie instead(std::string name, std::string bytes, Then then = Then::go_on,
                   std::string again = {}) {
  return {std::move(name), [=](const std::string&) { return FalseReply{bytes, then, again}; }};
}

inline Lie instead(std::string bytes) { return instead(bytes.substr(0, 30), bytes); }

inline Lie endless(std::string bytes, std::string again = std::string(4096, 'x')) {
  return instead("endless " + bytes.substr(0, 20), bytes, Then::repeat, std::move(again));
}

inline Lie made_of_truth(std::string name, std::function<FalseReply(const std::string&)> tell) {
  return {std::move(name), std::move(tell)};
}

/// Sends `bytes` in one piece, then `again` without end, byte by byte.
inline Lie dripping(std::string name, std::string bytes, std::string again) {
  return made_of_truth(std::move(name), [=](const std::string&) {
    return FalseReply{bytes, Then::repeat, again, drip};
  });
}

inline std::string half(const std::string& truth) {
  return truth.substr(0, (truth.size() + 1) / 2);
}

}  // namespace dlock::test
