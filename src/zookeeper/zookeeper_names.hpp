#pragma once

#include <string>
#include <string_view>

namespace dlock {

/// Encodes text as a node's name: a slash would end it, and ZooKeeper accepts only valid UTF-8
/// without control characters.
std::string zookeeper_node_name(std::string_view text);

/// The name of the parent node of all records whose names begin with `prefix`.
std::string zookeeper_directory(std::string prefix);

}  // namespace dlock
