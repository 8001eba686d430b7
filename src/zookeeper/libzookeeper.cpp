#include "zookeeper/libzookeeper.hpp"

#include "base/shared_library.hpp"

namespace dlock {
namespace {

LibZooKeeper load_libzookeeper() {
  const SharedLibrary library(
      "libzookeeper_st.so.2",
      "locks in ZooKeeper need its client library, on Debian the package libzookeeper-st2");
  LibZooKeeper loaded{};
#define DLOCK_LIBZOOKEEPER_LOAD(name) library.find(#name, loaded.name);
  DLOCK_LIBZOOKEEPER_FUNCTIONS(DLOCK_LIBZOOKEEPER_LOAD)
#undef DLOCK_LIBZOOKEEPER_LOAD
  // The library would otherwise log to stderr.
  loaded.zoo_set_debug_level(static_cast<ZooLogLevel>(0));
  return loaded;
}

}  // namespace

const LibZooKeeper& libzookeeper() {
  static const LibZooKeeper functions = load_libzookeeper();
  return functions;
}

}  // namespace dlock
