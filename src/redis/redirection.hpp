#pragma once

#include <optional>
#include <string>

#include "base/error.hpp"
#include "redis/node_address.hpp"
#include "redis/reply.hpp"

namespace dlock {

/// What a Cluster node answers when it cannot serve a key now
/// (https://redis.io/docs/latest/operate/oss_and_stack/reference/cluster-spec/).
struct Redirection {
  enum class Kind {
    moved,    ///< the slot belongs to the node at `to`, for good
    ask,      ///< the slot is on its way to `to`: this one request goes there, behind an ASKING
    later,    ///< not now: the slot is between two nodes, or nobody serves it at this moment
    nowhere,  ///< one of the first two, to a place that cannot be
  };
  Kind kind = Kind::later;
  NodeAddress to;  ///< the host is empty where it is that of the node that answered
};

/// What an error reply says of this kind; nothing where it is another error.
std::optional<Redirection> redirection_in(const Reply& reply);

/// An answer that is a redirection, for who can follow it. To all others it is an Error like any.
class Redirected : public Error {
 public:
  Redirected(Redirection redirection, const std::string& message)
      : Error(ErrorKind::unavailable, message), redirection_(std::move(redirection)) {}
  const Redirection& redirection() const { return redirection_; }

 private:
  Redirection redirection_;
};

}  // namespace dlock
