#include "local/fence_register_file.hpp"

#include <fcntl.h>
#include <unistd.h>

#include "base/duration.hpp"
#include "base/error.hpp"
#include "base/text.hpp"
#include "base/wait.hpp"
#include "local/file_names.hpp"

namespace dlock {
namespace {

/// A record has at most sixteen digits and a newline.
constexpr std::size_t longest_record = 17;

}  // namespace

FenceFile FenceFile::open(const std::string& path, const std::function<void()>& waiting) {
  const auto name_at = path.rfind('/') + 1;  // npos + 1 is 0
  const std::string parent = name_at == 0 ? "." : path.substr(0, name_at);
  // A name that ends in a slash is a directory, which is refused as such.
  const std::string name = name_at == path.size() ? "." : path.substr(name_at);
  if (access(parent.c_str(), F_OK) != 0) throw_errno("cannot open " + escaped(path));
  return open_in(Directory({parent, false}), name, escaped(path), waiting);
}

FenceFile FenceFile::open(const DirectorySettings& locks, const LockKey& resource,
                          const std::function<void()>& waiting) {
  Directory directory(locks);
  const std::string name = fence_file_name(resource);
  const std::string shown = directory.shown(name);
  return open_in(std::move(directory), name, shown, waiting);
}

FenceFile FenceFile::open_in(Directory directory, const std::string& name, const std::string& shown,
                             const std::function<void()>& waiting) {
  constexpr milliseconds longest_silence{1000};
  const auto open = [&](const CallOptions& call_options) {
    return LockedFile::open(directory, name, shown, LockedFile::Use::create, call_options).value();
  };
  try {
    auto file = open(at_most(longest_silence, {}));
    return {std::move(directory), std::move(file)};
  } catch (const Error& error) {
    if (error.kind() != ErrorKind::unavailable) throw;
  }
  waiting();
  auto file = open({});
  return {std::move(directory), std::move(file)};
}

/// Writes in place, so that the file stays the same for processes that wait for its lock and keeps
/// its owner and mode, and the directory need not be writable. The write is atomic because a record
/// fits into one sector, and no record is shorter than the one before, as fences grow. For a longer
/// record the file must grow, and a power cut may keep the new text without the new size. So the
/// size changes first, in a separate step: NULs after the newline are room for the next record.
Fence FenceFile::record_max(Fence fence) {
  std::string content;
  file_.read(0, longest_record + 1, content);
  const auto before = recorded(content);
  if (before && *before > fence) return *before;
  const std::string text = std::to_string(fence.value) + "\n";
  if (content.empty()) sync_directory();
  if (!content.empty() && content.size() < text.size()) {
    if (ftruncate(file_.fd(), static_cast<off_t>(text.size())) != 0) {
      throw_errno("cannot write " + shown());
    }
    sync();
  }
  file_.write(text, 0);
  sync();
  return fence;
}

std::optional<Fence> FenceFile::recorded(const std::string& content) const {
  if (content.empty()) return std::nullopt;
  const auto end = content.find('\n');
  const auto number = parse_number(content.substr(0, end), 0, largest_fence);
  // Leading zeros are refused, because the next record might then be shorter.
  const bool whole = number && content.size() <= longest_record &&
                     content.starts_with(std::to_string(*number) + "\n") &&
                     content.find_first_not_of('\0', end + 1) == std::string::npos;
  if (whole) return Fence{*number};
  throw Error(ErrorKind::wrong_data,
              shown() + " holds something other than one number, the largest fence: it " +
                  "is left as it is");
}

void FenceFile::sync() const {
  if (fdatasync(file_.fd()) != 0) throw_errno("cannot write " + shown());
}

/// record_max() calls this before the first record. open() would be too early: the process that
/// created the file may have been killed before it could sync the directory.
void FenceFile::sync_directory() const {
  const Fd readable(openat(directory_.fd(), ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  if (!readable || fsync(readable.get()) != 0) {
    throw_errno("cannot keep " + shown() + " in its directory");
  }
}

}  // namespace dlock
