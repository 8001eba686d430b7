#pragma once

#include <string_view>

#include "config/server_url.hpp"

namespace dlock {

/// A URL of PostgreSQL, `rest` being what follows `://`: libpq reads it, and knows more forms than
/// need be known here. Throws Error{usage} as parse_server_url() does.
SqlTarget parse_postgres_url(std::string_view text, std::string_view rest);

/// A URL of MySQL or MariaDB, which its library cannot read.
SqlTarget parse_mysql_url(std::string_view scheme, std::string_view rest);

}  // namespace dlock
