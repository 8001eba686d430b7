#include "base/endpoint.hpp"

#include <utility>

#include "base/error.hpp"
#include "base/text.hpp"

namespace dlock {

Password::Password(std::string text, std::function<std::string()> read)
    : shared_(std::make_shared<Shared>()) {
  shared_->last = std::move(text);
  shared_->read = std::move(read);
}

std::string Password::text() const {
  const std::lock_guard locked(shared_->lock);
  try {
    if (shared_->read) shared_->last = shared_->read();
  } catch (const Error&) {
    // The server refuses the last one if it is no longer right.
  }
  return shared_->last;
}

bool Password::operator==(const Password& other) const {
  const auto last = [](Shared& shared) {
    const std::lock_guard locked(shared.lock);
    return shared.last;
  };
  return shared_ == other.shared_ || last(*shared_) == last(*other.shared_);
}

std::string Endpoint::address() const {
  if (is_unix()) return escaped(socket_path);
  return address_of(host, std::to_string(port));
}

std::string Endpoint::name() const {
  const std::string number = std::to_string(database);
  if (is_unix()) return "unix://" + address() + (database == 0 ? "" : "?db=" + number);
  const std::string scheme = tls ? "rediss://" : "redis://";
  return scheme + address() + (database == 0 ? "" : "/" + number);
}

std::string in_brackets(std::string host) {
  const bool ipv6 = host.find(':') != std::string::npos;
  return ipv6 ? "[" + std::move(host) + "]" : host;
}

std::string address_of(std::string_view host, std::string_view port) {
  return in_brackets(escaped(host)) + ":" + escaped(port);
}

bool is_this_host(std::string_view host) {
  return host == "localhost" || host == "::1" || host.starts_with("127.");
}

std::string deployment_name(const std::string& kind, const std::vector<Endpoint>& servers) {
  const std::string scheme = servers.front().tls ? "rediss" : "redis";
  return scheme + "+" + kind + "://" +
         joined(servers, ",", [](const Endpoint& each) { return each.address(); });
}

}  // namespace dlock
