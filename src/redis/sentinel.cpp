#include <algorithm>
#include <utility>

#include "base/error.hpp"
#include "base/text.hpp"
#include "base/wait.hpp"
#include "redis/redis_connection.hpp"
#include "redis/reply.hpp"

namespace dlock {
EndpointResolver::EndpointResolver(std::vector<Endpoint> sentinels, std::string master_name,
                                   Endpoint master)
    : sentinels_(std::move(sentinels)),
      master_name_(std::move(master_name)),
      server_(std::move(master)),
      name_(deployment_name("sentinel", sentinels_, server_.tls.has_value()) + "/" +
            escaped(master_name_)) {}

Endpoint EndpointResolver::find(const CallOptions& call_options) {
  /// After this time the resolver asks the next sentinel.
  constexpr milliseconds longest_silence{1000};
  if (sentinels_.empty()) return server_;
  std::optional<Error> worst;
  for (std::size_t i = 0; i < sentinels_.size(); ++i) {
    const std::size_t not_asked = sentinels_.size() - i;
    // The last sentinel gets longer, since a slow answer is better than none; the server needs some
    // time, too.
    const auto half = left_until(call_options.deadline) / 2;
    const auto longest = not_asked == 1 ? std::max(longest_silence, half) : longest_silence;
    try {
      auto master = ask(sentinels_[i], at_most(longest, share_of(call_options, not_asked)));
      std::swap(sentinels_[0], sentinels_[i]);
      return master;
    } catch (const Error& error) {
      if (error.kind() == ErrorKind::interrupted) throw;
      // A sentinel that refuses us says more than one that is unreachable.
      const bool says_more =
          worst && worst->kind() == ErrorKind::unavailable && error.kind() != worst->kind();
      if (!worst || says_more) worst.emplace(error);
    }
  }
  const std::size_t asked = sentinels_.size();
  const std::string many = "none of " + std::to_string(asked) + " sentinels is usable: ";
  throw worst->reworded((asked > 1 ? many : "") + worst->what());
}

void EndpointResolver::note_failure() {
  if (sentinels_.empty()) return;
  std::rotate(sentinels_.begin(), std::next(sentinels_.begin()), sentinels_.end());
}

Endpoint EndpointResolver::ask(const Endpoint& sentinel, const CallOptions& call_options) {
  RedisConnection connection(sentinel);
  const Request request{"SENTINEL", "get-master-addr-by-name", master_name_};
  const Reply address = connection.exchange(std::span(&request, 1), call_options).front();
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
  return endpoint_at(server_, *named);
}

}  // namespace dlock
