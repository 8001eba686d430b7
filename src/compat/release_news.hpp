#pragma once

#include <optional>
#include <string>
#include <vector>

#include "redis/redis_client.hpp"
#include "redis/redis_connection.hpp"

namespace dlock {

/// Wakes a waiter when its key changes: a second connection listens for what the library publishes,
/// and for what the server tells about keys that the first one has read
/// (https://redis.io/docs/latest/develop/reference/client-side-caching/), which includes a release
/// by anybody and an expiry. A server that can do neither is polled.
class ReleaseNews {
 public:
  /// Listens for `key`, as read by the client of `link` from now on, and on `channels`, as the
  /// driver of the layout has them; what came before is forgotten. Returns whether it has just
  /// begun to, so that the key has to be read once more. Trouble is no error: then the waiter
  /// polls.
  bool listen(const LinkId& link, const std::string& key, const std::vector<std::string>& channels,
              const CallOptions& call_options);
  /// Whether a change of the key wakes.
  bool works() const { return tracks_ || hears_; }
  /// Sleeps until `until`, or until there is news.
  Wake::Reason await(Deadline until, int cancel_fd);
  /// Ends the second connection: nobody waits any more.
  void close();

 private:
  bool is_set_up_for(const LinkId& link, const std::vector<std::string>& channels) const;
  void open(RedisClient& client, const CallOptions& call_options);
  void track(RedisClient& client, std::int64_t listener, const CallOptions& call_options);
  bool concerns_us(const Published& message) const;
  Wake::Reason paced(Deadline until, int cancel_fd);

  std::optional<RedisConnection> listener_;
  std::string key_;
  std::vector<std::string> channels_;
  LinkId link_;          ///< on which the key is read
  bool tracks_ = false;  ///< the server tells of changes
  bool hears_ = false;   ///< the library does
  Deadline again_at_{};  ///< a listener that broke is not opened before
  Deadline pace_{};      ///< the end of the time that the wake-ups so far may take
};

}  // namespace dlock
