#include "local/wake_fifo.hpp"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <string_view>
#include <variant>

#include "base/error.hpp"
#include "base/random.hpp"

namespace dlock {
namespace {

constexpr std::string_view name_start = ".wait-";
constexpr std::size_t random_bytes = 16;

}  // namespace

WakeFifo::WakeFifo(const Directory& directory)
    : directory_(directory), name_(std::string(name_start) + random_hex(random_bytes)) {}

WakeFifo::~WakeFifo() {
  if (keeper_ == getpid()) remove_mailbox(directory_, name_);
}

void WakeFifo::open() {
  struct stat info {};
  // Renew the times, because a cleaner removes old files.
  if (fd_ && futimens(fd_.get(), nullptr) == 0 && fstat(fd_.get(), &info) == 0 &&
      info.st_nlink > 0) {
    return;
  }
  if (mkfifoat(directory_.fd(), name_.c_str(), 0600) != 0) {
    throw_errno("cannot make " + directory_.shown(name_));
  }
  keeper_ = getpid();
  // Open it for writing, too, so that a leaving writer never causes an end of file.
  fd_.reset(openat(directory_.fd(), name_.c_str(), O_RDWR | O_NONBLOCK | O_NOFOLLOW | O_CLOEXEC));
  if (!fd_) throw_errno("cannot open " + directory_.shown(name_));
  directory_.share(fd_.get());
}

std::optional<News> WakeFifo::take() const {
  std::optional<News> news;
  char bytes[256];
  ssize_t got = 0;
  // The limit is the capacity of a pipe: others may write as fast as this reads.
  constexpr int most_reads = 256;
  for (int i = 0; i < most_reads && (got = read(fd_.get(), bytes, sizeof bytes)) > 0; ++i) {
    const auto of_others = std::count(bytes, bytes + got, static_cast<char>(News::of_others));
    if (of_others < got) news = News::own;
    if (!news) news = News::of_others;
  }
  return news;
}

Reached reach(const Directory& directory, const std::string& mailbox) {
  Reached reached;
  if (!is_mailbox_name(mailbox)) return reached;
  reached.fd.reset(
      openat(directory.fd(), mailbox.c_str(), O_WRONLY | O_NONBLOCK | O_NOFOLLOW | O_CLOEXEC));
  if (!reached.fd) {
    if (errno == EMFILE || errno == ENFILE || errno == ENOMEM) {
      throw_errno("cannot open " + directory.shown(mailbox));
    }
    if (errno == EACCES || errno == EPERM) reached.how = Reached::How::closed;
    return reached;
  }
  struct stat info {};
  if (fstat(reached.fd.get(), &info) != 0 || !S_ISFIFO(info.st_mode)) {
    reached.fd.reset();
    return reached;
  }
  reached.how = Reached::How::listening;
  return reached;
}

bool is_gone(const Directory& directory, const std::string& mailbox) {
  return reach(directory, mailbox).how == Reached::How::gone;
}

void notify(const Directory& directory, const std::string& mailbox, News news) {
  const Reached reached = reach(directory, mailbox);
  if (!reached.fd) return;
  const char byte = static_cast<char>(news);
  // A full FIFO wakes its owner without this byte.
  [[maybe_unused]] const auto written = write(reached.fd.get(), &byte, 1);
}

void remove_mailbox(const Directory& directory, const std::string& mailbox) {
  if (is_mailbox_name(mailbox)) unlinkat(directory.fd(), mailbox.c_str(), 0);
}

bool is_mailbox_name(const std::string& name) {
  return name.size() == name_start.size() + 2 * random_bytes && name.starts_with(name_start) &&
         name.find_first_not_of("0123456789abcdef", name_start.size()) == std::string::npos;
}

bool FifoNotifier::wake(const WaiterEntry& waiter, const Message& message) {
  const bool granted = std::holds_alternative<GrantMessage>(message);
  return knock(waiter.backing.mailbox, granted ? News::own : News::of_others);
}

bool FifoNotifier::tell_moved(const WaiterEntry& waiter) {
  const std::string& mailbox = waiter.backing.mailbox;
  return pending_.contains(mailbox) || knock(mailbox, News::of_others);
}

/// A FIFO that another user has closed to this process counts as notified: its owner learns of
/// the change with its next request.
bool FifoNotifier::knock(const std::string& mailbox, News news) {
  if (is_gone(directory_, mailbox)) {
    remove_mailbox(directory_, mailbox);
    return false;
  }
  pending_[mailbox] = news;
  return true;
}

/// The waiter that is granted the lock is notified last: it needs the key's file at once.
void FifoNotifier::deliver() {
  for (const News news : {News::of_others, News::own}) {
    for (const auto& [mailbox, each] : pending_) {
      if (each == news) notify(directory_, mailbox, news);
    }
  }
  pending_.clear();
}

}  // namespace dlock
