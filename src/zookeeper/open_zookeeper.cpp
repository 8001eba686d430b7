#include "zookeeper/open_zookeeper.hpp"

#include <algorithm>

#ifdef DLOCK_WITH_ZOOKEEPER
#include "zookeeper/zookeeper_backend.hpp"
#else
#include "base/error.hpp"
#endif

namespace dlock {

milliseconds session_for(milliseconds ttl) {
  constexpr milliseconds least{4000};
  constexpr milliseconds most{60'000};
  return std::clamp(ttl, least, most);
}

#ifdef DLOCK_WITH_ZOOKEEPER
std::unique_ptr<CasBackend> open_zookeeper(const std::vector<Endpoint>& servers,
                                           const std::string& shown, const std::string& chroot,
                                           const std::string& prefix, milliseconds session) {
  return std::make_unique<ZooKeeperBackend>(servers, shown, chroot, prefix, session);
}
#else
std::unique_ptr<CasBackend> open_zookeeper(const std::vector<Endpoint>&, const std::string&,
                                           const std::string&, const std::string&, milliseconds) {
  throw_usage("this dlock was built without ZooKeeper");
}
#endif

}  // namespace dlock
