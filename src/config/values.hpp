#pragma once

#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/duration.hpp"
#include "config/sources.hpp"
#include "lock/claim.hpp"
#include "lock/latch.hpp"

namespace dlock {

/// Parses `10`, `0.25`, `.5` (seconds), `500ms`, `30s`, `5m`, `1h30m`, `1d`; decimal, at most 365
/// days. Fractions of a millisecond are rounded up. Returns nothing for any other text.
std::optional<milliseconds> parse_duration(std::string_view text);

// Conversions from text to values; each refuses a bad value and names its source.

/// A duration in [least, most].
milliseconds duration_from(const SourcedValue& given, milliseconds least, milliseconds most);

/// A number in [low, high]; `what` names it in the message.
long long number_from(const SourcedValue& given, const std::string& what, long long low,
                      long long high);

/// `TERM`, `SIGTERM` or `15`, in any case.
int signal_from(const SourcedValue& given);

/// A descriptor that is open for writing.
int status_fd_from(const SourcedValue& given);

/// A path. In a configuration file it must be absolute, because cron, a login and systemd start in
/// different directories.
const SourcedValue& absolute_in_file(const SourcedValue& given);

/// The absolute path of a file or directory that can be opened.
std::string readable_path_from(const SourcedValue& given);

std::string host_name_from(const SourcedValue& given);

/// These apply the checks of lock/claim.
LockKey key_from(const SourcedValue& given);
Owner owner_from(const SourcedValue& given);
Owner owner_path_from(const SourcedValue& given);
Token token_from(const SourcedValue& given);
ArrivalId arrival_id_from(const SourcedValue& given);

/// Reads labels. A bad label must not stop a deployment, so it is shortened, with a warning.
std::function<std::string(const SourcedValue&)> label_reader(std::vector<std::string>& warnings);
std::string reason_from(const SourcedValue& given);
std::string prefix_from(const SourcedValue& given);
OnLost on_lost_from(const SourcedValue& given);

}  // namespace dlock
