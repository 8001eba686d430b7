#pragma once

#include <string>

#include "support/redis_server.hpp"

namespace dlock::test {

/// The run_id of `server`, as INFO reports it.
std::string run_id_of(const RedisServer& server);

/// Records on `server`, below the default prefix, that it has kept its memory for `age`, as a
/// quorum client would. It votes at once if `age` exceeds the quarantine of two minutes, else after
/// the rest of it. `durable` says that clients found it to keep its data when killed.
void record_process_of(const RedisServer& server, milliseconds age = std::chrono::hours(1),
                       bool durable = false);

}  // namespace dlock::test
