#pragma once

#include <zookeeper/zookeeper.h>

// The list serves two uses: the members of LibZooKeeper, and their loading.
#define DLOCK_LIBZOOKEEPER_FUNCTIONS(EACH) \
  EACH(zerror)                             \
  EACH(zoo_add_auth)                       \
  EACH(zoo_aget_children2)                 \
  EACH(zoo_amulti)                         \
  EACH(zoo_aset)                           \
  EACH(zoo_awget)                          \
  EACH(zoo_check_op_init)                  \
  EACH(zoo_client_id)                      \
  EACH(zoo_create_op_init)                 \
  EACH(zoo_delete_op_init)                 \
  EACH(zoo_recv_timeout)                   \
  EACH(zoo_set_debug_level)                \
  EACH(zoo_set_op_init)                    \
  EACH(zoo_set_servers)                    \
  EACH(zoo_state)                          \
  EACH(zookeeper_close)                    \
  EACH(zookeeper_init)                     \
  EACH(zookeeper_interest)                 \
  EACH(zookeeper_process)

namespace dlock {

/// The functions of libzookeeper that dlock uses, by their own names.
struct LibZooKeeper {
#define DLOCK_LIBZOOKEEPER_MEMBER(name) decltype(&::name) name;
  DLOCK_LIBZOOKEEPER_FUNCTIONS(DLOCK_LIBZOOKEEPER_MEMBER)
#undef DLOCK_LIBZOOKEEPER_MEMBER
};

/// Loads the single-threaded library at the first call. Throws Error{host_refused} if it is not
/// installed.
const LibZooKeeper& libzookeeper();

}  // namespace dlock
