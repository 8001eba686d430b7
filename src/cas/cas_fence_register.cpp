#include <algorithm>

#include "base/duration.hpp"
#include "base/error.hpp"
#include "base/text.hpp"
#include "cas/cas_store.hpp"

namespace dlock {
namespace {

constexpr std::string_view fence_begins = "dlock-fence 1 ";

}  // namespace

Fence CasStore::record_max(const LockKey& resource, Fence fence, const CallOptions& call_options) {
  const std::string name = prefix_ + "seal:" + resource.text;
  Fence largest = fence;
  const auto make = [&](const Snapshot& seen, bool) -> std::optional<Update> {
    largest = fence;
    std::string_view text = seen.text;
    if (!text.empty()) {
      const bool ours = text.starts_with(fence_begins) && text.ends_with('\n');
      if (ours) text.remove_prefix(fence_begins.size());
      const auto before =
          ours ? parse_number(take_until(text, '\n'), 0, largest_fence) : std::nullopt;
      if (!before) {
        throw Error(ErrorKind::wrong_data,
                    backend_->name() + ": the record of " + escaped(resource.text) +
                        " holds something else than the fence of a guard: it is left as it is");
      }
      largest = std::max(fence, Fence{*before});
      if (largest.value == *before) return std::nullopt;
    }
    return Update{std::string(fence_begins) + std::to_string(fence.value) + "\n",
                  microseconds::max()};
  };
  rewrite(name, "", backend_->read(name, "", call_options), call_options, make);
  return largest;
}

}  // namespace dlock
