#pragma once

#include <functional>
#include <string>
#include <string_view>

namespace dlock {

/// Replaces the file at `path` by what `text` makes of its content, "" if there is none: as a
/// whole, so that nobody reads half of it, and with mode 0644. The new text stands for a moment in
/// a file beside it, whose name does not end like that of `path`. Throws Error{host_refused} with
/// the reason only, and the file is as it was then.
void replace_metrics_file(const std::string& path,
                          const std::function<std::string(std::string_view before)>& text);

}  // namespace dlock
