#pragma once

#include <zookeeper/zookeeper.h>

#include "base/shared_library.hpp"

namespace dlock {

/// The functions of libzookeeper that dlock uses.
struct LibZooKeeper {
  SharedLibrary library{
      "libzookeeper_st.so.2",
      "locks in ZooKeeper need its client library, on Debian the package libzookeeper-st2"};
  DLOCK_LIBRARY_FUNCTIONS(zerror, zoo_add_auth, zoo_aget_children2, zoo_amulti, zoo_aset)
  DLOCK_LIBRARY_FUNCTIONS(zoo_awget, zoo_check_op_init, zoo_client_id, zoo_create_op_init,
                          zoo_delete_op_init)
  DLOCK_LIBRARY_FUNCTIONS(zoo_recv_timeout, zoo_set_debug_level, zoo_set_op_init, zoo_set_servers,
                          zoo_state)
  DLOCK_LIBRARY_FUNCTION(zookeeper_close)
  DLOCK_LIBRARY_FUNCTION(zookeeper_init)
  DLOCK_LIBRARY_FUNCTION(zookeeper_interest)
  DLOCK_LIBRARY_FUNCTION(zookeeper_process)

  /// The library would otherwise log to stderr.
  LibZooKeeper() { zoo_set_debug_level(static_cast<ZooLogLevel>(0)); }
};

/// Loads the single-threaded library at the first call. Throws Error{host_refused} if it is not
/// installed.
inline const LibZooKeeper& libzookeeper() {
  static const LibZooKeeper functions;
  return functions;
}

}  // namespace dlock
