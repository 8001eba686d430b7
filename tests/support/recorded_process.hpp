#pragma once

#include <string>

#include "support/redis_server.hpp"

namespace dlock::test {

/// The process behind `server`, as INFO names it.
std::string run_id_of(const RedisServer& server);

/// Has it said that the memory of `server` is whole since `age` ago, as a member of a quorum keeps
/// it below the prefix of the shipped defaults: it votes at once, or two minutes less `age` later.
/// Where `durable`, clients found that it forgets nothing when it is killed.
void record_process_of(const RedisServer& server, milliseconds age = std::chrono::hours(1),
                       bool durable = false);

}  // namespace dlock::test
