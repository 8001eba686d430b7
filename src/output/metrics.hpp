#pragma once

#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "lock/grant.hpp"
#include "output/json.hpp"

namespace dlock {

/// Text in the exposition format of Prometheus, version 0.0.4: times in seconds, a HELP and a TYPE
/// line before the samples of each metric. The label `key` is the key itself, unless it holds bytes
/// that are not UTF-8, which the format has no room for, or what would steer a terminal: then it is
/// as `inspect` shows it.

/// The text that `run --metrics` writes when the run with these keys ends at `end`. `before` is the
/// text of the run before, "" if there is none: from it come the time of the last success, the
/// number of losses, and, if this run was granted nothing, the fencing token.
std::string run_metrics(const std::vector<LockKey>& keys, const RunStatus& status, WallTime end,
                        std::string_view before);

/// The text that `inspect --metrics` prints.
std::string inspect_metrics(const std::vector<KeyState>& states);

/// Replaces the file at `path` by what `text` makes of its content, "" if there is none: as a
/// whole, so that nobody reads half of it, and with mode 0644. The new text stands for a moment in
/// a file beside it, whose name does not end like that of `path`. Throws Error{host_refused} with
/// the reason only, and the file is as it was then.
void replace_metrics_file(const std::string& path,
                          const std::function<std::string(std::string_view before)>& text);

}  // namespace dlock
