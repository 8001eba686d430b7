#pragma once

#include <string>
#include <string_view>

namespace dlock {

/// A name for a node: a slash would end it, and ZooKeeper takes valid UTF-8 only, without control
/// characters.
std::string zookeeper_node_name(std::string_view text);

/// The name of the node below which the records are whose names begin with `prefix`.
std::string zookeeper_directory(std::string prefix);

}  // namespace dlock
