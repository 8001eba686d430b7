#pragma once

#include <memory>
#include <string>
#include <vector>

#include "base/endpoint.hpp"
#include "lock/store.hpp"

namespace dlock {

/// Where the server of a connection is: asked anew for each link, for it may have moved.
class Route {
 public:
  virtual ~Route() = default;

  /// Throws Error{unavailable} or {denied} if that cannot be known now.
  virtual Endpoint find(const Patience& patience) = 0;
  /// Whether the server may be another next time: then trouble with it is worth another look for as
  /// long as there is time.
  virtual bool may_move() const = 0;
  /// What people call it; escaped, without credentials.
  virtual std::string name() const = 0;
};

/// One server at one address.
class FixedRoute final : public Route {
 public:
  explicit FixedRoute(Endpoint endpoint) : endpoint_(std::move(endpoint)) {}

  Endpoint find(const Patience&) override { return endpoint_; }
  bool may_move() const override { return false; }
  std::string name() const override { return endpoint_.name(); }

 private:
  Endpoint endpoint_;
};

}  // namespace dlock
