#pragma once

#include <cstddef>
#include <set>
#include <string>
#include <string_view>

#include "zookeeper/zookeeper_reply_check.hpp"

namespace dlock {

/// A name for a node: a slash would end it, and ZooKeeper takes valid UTF-8 only, without control
/// characters.
std::string zookeeper_node_name(std::string_view text);

/// The name of the node below which the records are whose names begin with `prefix`.
std::string zookeeper_directory(std::string prefix);

/// Keeps the first records of a directory whose names begin with `prefix` and come after `after`,
/// `most` of them, and counts all. `before` is what each record's name has before its node's.
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
