#pragma once

#include <cstddef>
#include <set>
#include <string>
#include <string_view>

#include "zookeeper/zookeeper_reply_check.hpp"

namespace dlock {

/// Encodes text as a node's name: a slash would end it, and ZooKeeper accepts only valid UTF-8
/// without control characters.
std::string zookeeper_node_name(std::string_view text);

/// The name of the parent node of all records whose names begin with `prefix`.
std::string zookeeper_directory(std::string prefix);

/// Keeps the first `most` records of a directory whose names begin with `prefix` and come after
/// `after`, and counts all of them. `before` is the part of a record's name before its node's.
class ZooKeeperFirstRecords final : public ChildListener {
 public:
  ZooKeeperFirstRecords(std::string before, std::string prefix, std::string after,
                        std::size_t most);

  void begin() override;
  void hear(std::string_view name) override;

  const std::set<std::string>& first() const { return first_; }
  std::size_t count() const { return count_; }

 private:
  std::string before_, prefix_, after_;
  std::size_t most_;
  std::set<std::string> first_;
  std::size_t count_ = 0;
};

}  // namespace dlock
