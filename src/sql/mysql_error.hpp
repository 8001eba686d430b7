#pragma once

#include <string>

#include "base/error.hpp"
#include "base/mysql_address.hpp"

namespace dlock {

/// Whether libmariadb gave an error that number, not the server.
bool is_of_library(unsigned error);

/// Whether another address of the same host may do, after a failure with this number and text.
bool was_not_reached(unsigned error, const std::string& message);

/// The error that a failure to connect raises. `shown`: the URL for people.
Error connect_error(unsigned error, const std::string& message, const MysqlAddress& address,
                    const std::string& shown);

}  // namespace dlock
