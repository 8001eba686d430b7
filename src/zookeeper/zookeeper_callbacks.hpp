#pragma once

#include <algorithm>
#include <cstddef>
#include <memory>
#include <set>
#include <string>
#include <vector>

#include "zookeeper/libzookeeper.hpp"
#include "zookeeper/zookeeper_client.hpp"

// The callbacks that libzookeeper calls for a ZooKeeperClient.

namespace dlock {

/// The paths that have changed since they were watched. The library gets a pointer to it for its
/// callbacks.
struct ZooKeeperWatches {
  std::set<std::string> changed;

  static void call(zhandle_t*, int type, int, const char* path, void* context) {
    constexpr int session_event = -1;
    if (type == session_event || context == nullptr) return;
    static_cast<ZooKeeperWatches*>(context)->changed.insert(path);
  }
};

/// The replies that a caller awaits. The batch lives until the library has called back for each of
/// them, which may be after the caller has given up.
struct ZooKeeperBatch {
  std::vector<ZooKeeperReply> replies;
  std::size_t pending = 0;
  /// The library refers to these until the reply to a multi-request.
  std::vector<zoo_op_result_t> results{};
  std::size_t bytes = 0;  ///< of data

  static constexpr std::size_t most_bytes = 5U << 20;
  bool is_too_large() const { return bytes > most_bytes; }

  struct Slot {
    std::shared_ptr<ZooKeeperBatch> batch;
    std::size_t index;
  };

  static ZooKeeperReply& take(const void* data, int code, std::unique_ptr<const Slot>& slot) {
    slot.reset(static_cast<const Slot*>(data));
    --slot->batch->pending;
    ZooKeeperReply& reply = slot->batch->replies[slot->index];
    reply.code = code;
    return reply;
  }
  static void done(int code, const void* data) {
    std::unique_ptr<const Slot> slot;
    take(data, code, slot);
  }
  static void take_stat(ZooKeeperReply& reply, const Stat* stat) {
    if (stat == nullptr) return;
    reply.czxid = stat->czxid;
    reply.mzxid = stat->mzxid;
    reply.mtime_ms = stat->mtime;
    reply.version = stat->version;
  }
  static void created(int code, const char*, const void* data) { done(code, data); }
  /// Stores the code of the change that failed; the codes after it say nothing.
  static void done_all(int code, const void* data) {
    const auto& results = static_cast<const Slot*>(data)->batch->results;
    const auto failed = std::find_if(results.begin(), results.end(), [](const auto& result) {
      return result.err != ZOK && result.err != ZRUNTIMEINCONSISTENCY;
    });
    done(is_lost(code) || failed == results.end() ? code : failed->err, data);
  }
  static void got_stat(int code, const Stat* stat, const void* data) {
    std::unique_ptr<const Slot> slot;
    take_stat(take(data, code, slot), stat);
  }
  static void got_data(int code, const char* value, int length, const Stat* stat,
                       const void* data) {
    std::unique_ptr<const Slot> slot;
    ZooKeeperReply& reply = take(data, code, slot);
    take_stat(reply, stat);
    if (value == nullptr || length <= 0) return;
    slot->batch->bytes += static_cast<std::size_t>(length);
    if (slot->batch->is_too_large()) return;
    reply.data.assign(value, static_cast<std::size_t>(length));
  }
  static void got_names(int code, const String_vector* names, const Stat* stat, const void* data) {
    std::unique_ptr<const Slot> slot;
    ZooKeeperReply& reply = take(data, code, slot);
    take_stat(reply, stat);
    if (names == nullptr || code != ZOK) return;
    reply.children.assign(names->data, names->data + names->count);
  }
};

}  // namespace dlock
