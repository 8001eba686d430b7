#include "etcd/open_etcd.hpp"

#ifdef DLOCK_WITH_ETCD
#include "etcd/etcd_backend.hpp"
#else
#include "base/error.hpp"
#endif

namespace dlock {

#ifdef DLOCK_WITH_ETCD
std::unique_ptr<CasBackend> open_etcd(const std::vector<Endpoint>& servers,
                                      const std::string& shown) {
  return std::make_unique<EtcdBackend>(servers, shown);
}
#else
std::unique_ptr<CasBackend> open_etcd(const std::vector<Endpoint>&, const std::string&) {
  throw_usage("this dlock was built without etcd");
}
#endif

}  // namespace dlock
