#pragma once

#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "lock/grant.hpp"
#include "output/json.hpp"

namespace dlock {

/// Text in the exposition format of Prometheus, version 0.0.4: times in seconds, and a HELP and a
/// TYPE line before the samples of each metric. The label `key` is the key itself. A key with bytes
/// that are not UTF-8, which the format cannot contain, or with control characters appears as in
/// `inspect`.

/// The text that `run --metrics` writes when the run with these keys ends at `end`. `before` is the
/// text of the previous run, or "": it supplies the time of the last success, the runs since then,
/// the number of losses and, if this run was granted nothing, the fencing token.
std::string run_metrics(const std::vector<LockKey>& keys, const RunStatus& status, WallTime end,
                        std::string_view before);

/// The text that `inspect --metrics` prints.
std::string inspect_metrics(const std::vector<KeyState>& states);

/// Replaces the file at `path` by the result of `text` for its content ("" if there is no file).
/// The replacement is atomic, so that no reader sees half of it, and has mode 0644. The function
/// prepares it in a neighbouring file, whose name does not end like that of `path`. Throws
/// Error{host_refused} with only the reason, and then the file is unchanged.
void replace_metrics_file(const std::string& path,
                          const std::function<std::string(std::string_view before)>& text);

}  // namespace dlock
