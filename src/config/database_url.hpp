#pragma once

#include <string_view>

#include "config/server_url.hpp"

namespace dlock {

/// Parses a URL of PostgreSQL; `rest` is the part after `://`. libpq reads the URL itself, and
/// accepts more forms than this needs to know. Throws Error{usage} like parse_server_url().
SqlTarget parse_postgres_url(std::string_view text, std::string_view rest);

/// Parses a URL of MySQL or MariaDB, because their client library takes no URLs.
SqlTarget parse_mysql_url(std::string_view scheme, std::string_view rest);

}  // namespace dlock
