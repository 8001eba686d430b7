#pragma once

#include <functional>
#include <string>
#include <vector>

#include "base/clock.hpp"
#include "config/sources.hpp"
#include "lock/claim.hpp"
#include "lock/latch.hpp"

namespace dlock {

// From what was written to what is meant; each refuses a bad value with its place.

/// A duration of [least, most].
milliseconds duration_from(const SourcedValue& given, milliseconds least, milliseconds most);

/// A number of [low, high]; `what` names it in the message.
long long number_from(const SourcedValue& given, const std::string& what, long long low,
                      long long high);

/// `TERM`, `SIGTERM` or `15`, in any case.
int signal_from(const SourcedValue& given);

/// A descriptor that is open for writing.
int status_fd_from(const SourcedValue& given);

/// A path, if it may stand where it does: in a file a path must be absolute, for cron, a login
/// and systemd start in different directories.
const SourcedValue& absolute_in_file(const SourcedValue& given);

/// A file or directory that can be opened, by its whole path.
std::string readable_path_from(const SourcedValue& given);

std::string host_name_from(const SourcedValue& given);

/// Throws if a check of lock/claim found a fault.
LockKey key_from(const SourcedValue& given);
Owner owner_from(const SourcedValue& given);
Owner owner_path_from(const SourcedValue& given);
Token token_from(const SourcedValue& given);
ArrivalId arrival_id_from(const SourcedValue& given);

/// A decoration keeps no deployment from running: it is shortened, with a warning.
std::function<std::string(const SourcedValue&)> label_reader(std::vector<std::string>& warnings);
std::string reason_from(const SourcedValue& given);
std::string prefix_from(const SourcedValue& given);
OnLost on_lost_from(const SourcedValue& given);

}  // namespace dlock
