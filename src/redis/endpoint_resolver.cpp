#include "redis/endpoint_resolver.hpp"

#include <algorithm>
#include <cctype>

#include "base/duration.hpp"
#include "base/error.hpp"
#include "base/text.hpp"
#include "redis/redis_connection.hpp"
#include "redis/reply.hpp"

namespace dlock {

Endpoint endpoint_at(const Endpoint& like, const NodeAddress& address) {
  Endpoint endpoint = like;
  endpoint.host = address.host;
  endpoint.port = address.port;
  return endpoint;
}

std::optional<NodeAddress> announced(std::string_view host, std::string_view port) {
  constexpr std::size_t longest_host = 253;
  const bool plain = std::all_of(host.begin(), host.end(), [](char c) {
    const bool mark = c == '-' || c == '.' || c == '_' || c == ':' || c == '%';
    return mark || std::isalnum(static_cast<unsigned char>(c)) != 0;
  });
  const auto number = parse_number(port, 1, 65535);
  if (!plain || host.empty() || host.size() > longest_host || !number) return std::nullopt;
  return NodeAddress{std::string(host), static_cast<int>(*number)};
}

namespace {

/// After this time the next sentinel is asked.
constexpr milliseconds longest_silence{1000};

}  // namespace

SentinelResolver::SentinelResolver(std::vector<Endpoint> sentinels, std::string master_name,
                                   Endpoint master)
    : sentinels_(std::move(sentinels)),
      master_name_(std::move(master_name)),
      master_(std::move(master)),
      name_(deployment_name("sentinel", sentinels_) + "/" + escaped(master_name_)) {}

Endpoint SentinelResolver::find(const CallOptions& call_options) {
  std::vector<Error> errors;
  for (std::size_t i = 0; i < sentinels_.size(); ++i) {
    const auto left = left_until(call_options.deadline);
    const auto not_asked = static_cast<int>(sentinels_.size() - i);
    // The last sentinel gets longer, since a slow answer is better than none; the server needs some
    // time, too.
    const auto longest = not_asked == 1 ? std::max(longest_silence, left / 2) : longest_silence;
    const auto until = later(BootClock::now(), std::min(left / not_asked, longest));
    try {
      auto master = ask(Endpoint(sentinels_[i]), {until, call_options.cancel_fd});
      std::swap(sentinels_[0], sentinels_[i]);
      return master;
    } catch (const Error& error) {
      if (error.kind() == ErrorKind::interrupted) throw;
      errors.push_back(error);
    }
  }
  // A sentinel that refuses us says more than one that is unreachable.
  const auto refusal = std::find_if(errors.begin(), errors.end(), [](const Error& error) {
    return error.kind() != ErrorKind::unavailable;
  });
  const Error& worst = refusal == errors.end() ? errors.front() : *refusal;
  const std::string many = "none of " + std::to_string(errors.size()) + " sentinels is usable: ";
  throw worst.reworded((errors.size() > 1 ? many : "") + worst.what());
}

void SentinelResolver::note_failure() {
  std::rotate(sentinels_.begin(), std::next(sentinels_.begin()), sentinels_.end());
}

Endpoint SentinelResolver::ask(const Endpoint& sentinel, const CallOptions& call_options) {
  RedisConnection connection(std::make_unique<FixedEndpoint>(sentinel));
  const Request requests[] = {{"SENTINEL", "get-master-addr-by-name", master_name_},
                              {"SENTINEL", "sentinels", master_name_}};
  const auto replies = connection.exchange(requests, call_options);
  const Reply& address = replies[0];
  if (address.is_error()) throw server_error(address, sentinel.name());
  if (!address.is_array(2)) {
    throw_unavailable(sentinel.name() + ": it knows no master named " + master_name_);
  }
  const std::string& host = address.items[0].text;
  const std::string& port = address.items[1].text;
  const auto named = announced(host, port);
  if (!named) {
    throw_unavailable(sentinel.name() + ": it names a master that cannot be: \"" + escaped(host) +
                      "\" port \"" + escaped(port) + "\"");
  }
  learn(sentinel, replies[1]);
  return endpoint_at(master_, *named);
}

void SentinelResolver::learn(const Endpoint& asked, const Reply& reply) {
  for (const Reply& fields : reply.items) {
    std::string_view host;
    std::string_view port;
    for (std::size_t i = 0; i + 1 < fields.items.size(); i += 2) {
      if (fields.items[i].text == "ip") host = fields.items[i + 1].text;
      if (fields.items[i].text == "port") port = fields.items[i + 1].text;
    }
    const auto address = announced(host, port);
    if (!address) continue;
    Endpoint sentinel = endpoint_at(asked, *address);
    const bool known =
        std::find(sentinels_.begin(), sentinels_.end(), sentinel) != sentinels_.end();
    if (!known) sentinels_.push_back(std::move(sentinel));
  }
}

}  // namespace dlock
