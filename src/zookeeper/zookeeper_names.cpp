#include "zookeeper/zookeeper_names.hpp"

#include <iterator>
#include <utility>

#include "base/text.hpp"

namespace dlock {

std::string zookeeper_node_name(std::string_view text) {
  static const std::string special = [] {
    std::string bytes = "/";
    for (int byte = 0x80; byte <= 0xff; ++byte) bytes += static_cast<char>(byte);
    return bytes;
  }();
  return percent_encoded(text, special);
}

std::string zookeeper_directory(std::string prefix) {
  if (prefix.ends_with(':')) prefix.pop_back();
  return prefix.empty() ? "dlock-locks" : zookeeper_node_name(prefix);
}

ZooKeeperFirstRecords::ZooKeeperFirstRecords(std::string before, std::string prefix,
                                             std::string after, std::size_t most)
    : before_(std::move(before)),
      prefix_(std::move(prefix)),
      after_(std::move(after)),
      most_(most) {}

void ZooKeeperFirstRecords::begin() {
  first_.clear();
  count_ = 0;
}

void ZooKeeperFirstRecords::hear(std::string_view name) {
  std::string record = before_ + percent_decoded(name);
  if (!record.starts_with(prefix_) || record <= after_) return;
  ++count_;
  first_.insert(std::move(record));
  if (first_.size() > most_) first_.erase(std::prev(first_.end()));
}

}  // namespace dlock
