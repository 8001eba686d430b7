#pragma once

#include <functional>

#include "base/error.hpp"
#include "compat/key_servers.hpp"
#include "config/settings.hpp"
#include "local/directory.hpp"
#include "lock/fence_register.hpp"
#include "lock/latch.hpp"
#include "lock/store.hpp"
#include "output/log.hpp"

namespace dlock {

/// The engine that `settings` name: the one place where a URL becomes a store, in dlock's own
/// layout or in that of another library. Nothing is opened or connected yet.
StorePtr open_store(const Settings& settings);

/// The same, and with -v a line on stderr for each step it takes.
StorePtr open_store(const Settings& settings, const Log& log);

/// Where the keys of other libraries live, on one server, behind Sentinel or in a Cluster.
std::unique_ptr<KeyServers> open_key_servers(const Settings& settings,
                                             const LinkListener& on_link = {});

/// The same place for latches.
std::unique_ptr<Latches> open_latches(const Settings& settings);

/// The same for what `guard` asks, where `settings` name servers and not `local:`.
std::unique_ptr<FenceRegister> open_seals(const Settings& settings);

/// The directory behind `local:`.
DirectorySettings directory_of(const LocalTarget& target);

/// Does the same for every key, also after trouble with one, which is told at once. Returns the
/// first exit code that is not 0.
int for_each_key(const std::vector<LockKey>& keys, const Log& log,
                 const std::function<ExitCode(const LockKey&)>& body);

}  // namespace dlock
