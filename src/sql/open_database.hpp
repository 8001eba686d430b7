#pragma once

#include <memory>
#include <optional>
#include <string>

#include "base/mysql_address.hpp"
#include "cas/cas_backend.hpp"

namespace dlock {

/// The PostgreSQL database of a URL, not connected yet. `shown`: the URL for users; `password`
/// overrides any other.
std::unique_ptr<CasBackend> open_postgres(const std::string& url, const std::string& shown,
                                          const std::optional<Password>& password);

/// The same for MySQL and MariaDB.
std::unique_ptr<CasBackend> open_mysql(MysqlAddress address, const std::string& shown,
                                       const std::optional<Password>& password);

}  // namespace dlock
