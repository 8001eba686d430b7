#pragma once

#include <string>

#include "base/error.hpp"
#include "base/mysql_address.hpp"

namespace dlock {

/// Whether an error number comes from libmariadb and not from the server.
bool is_of_library(unsigned error);

/// Whether another address of the same host may work, after a failure with this number and text.
bool was_not_reached(unsigned error, const std::string& message);

/// The error to throw after a failure to connect. `shown`: the URL for users.
Error connect_error(unsigned error, const std::string& message, const MysqlAddress& address,
                    const std::string& shown);

}  // namespace dlock
