#include "zookeeper/zookeeper_reply_check.hpp"

#include <algorithm>
#include <cstddef>
#include <utility>

namespace dlock {
namespace {

/// Numbers that mark what is no reply to a numbered request.
enum Special : std::int32_t {
  watch_event = -1,
  ping = -2,
  login = -4,
  restored_watches = -8,
};

enum Operation : std::int32_t {
  no_operation = 0,
  create = 1,
  remove_node = 2,
  get_data = 4,
  set_data = 5,
  get_children = 12,
  check_version = 13,
  multi = 14,
  failed_part = -1,
};

constexpr std::size_t bytes_of_length = 4;
constexpr std::size_t bytes_of_stat = 68;
/// Of a reply: its number, the last change, an error.
constexpr std::size_t bytes_of_head = 16;
/// Of a reply that is a list, with its own length and the number of names.
constexpr std::size_t bytes_before_names = bytes_of_length + bytes_of_head + 4;
constexpr std::int32_t bytes_of_password = 16;
/// A session that ends sooner could not be kept, and numbers beyond the other overflow in the
/// library.
constexpr std::int32_t shortest_session_ms = 10, longest_session_ms = 24 * 3600 * 1000;

std::uint32_t big_endian(std::string_view bytes) {
  std::uint32_t number = 0;
  for (const char byte : bytes) number = (number << 8) | static_cast<unsigned char>(byte);
  return number;
}

/// Takes values off the front of a frame. What is taken from behind its end is zero or empty, and
/// no longer fits.
class FrameReader {
 public:
  explicit FrameReader(std::string_view frame) : rest_(frame) {}

  std::string_view bytes(std::size_t count) {
    if (count > rest_.size()) fits_ = false;
    if (!fits_) return {};
    const auto taken = rest_.substr(0, count);
    rest_.remove_prefix(count);
    return taken;
  }
  std::int32_t number() { return static_cast<std::int32_t>(big_endian(bytes(4))); }
  std::int64_t long_number() {
    const auto high = static_cast<std::uint64_t>(big_endian(bytes(4)));
    return static_cast<std::int64_t>((high << 32) | big_endian(bytes(4)));
  }
  bool truth() { return bytes(1) != std::string_view("\0", 1); }
  /// `least`: -1 for data, which may be none at all, as opposed to empty.
  std::string_view text(std::int32_t least) {
    const std::int32_t length = number();
    if (length < least) fits_ = false;
    return length > 0 ? bytes(static_cast<std::size_t>(length)) : std::string_view();
  }
  bool fits() const { return fits_; }
  bool has_ended() const { return fits_ && rest_.empty(); }

 private:
  std::string_view rest_;
  bool fits_ = true;
};

void skip_rights(FrameReader& reader) {
  for (auto left = reader.number(); left > 0 && reader.fits(); --left) {
    reader.number();
    reader.text(-1);
    reader.text(-1);
  }
}

/// The operations of a multi-request; nothing if there is one that dlock never asks for.
std::vector<std::int32_t> parts_in(FrameReader& reader) {
  std::vector<std::int32_t> parts;
  while (reader.fits()) {
    const std::int32_t operation = reader.number();
    const bool is_last = reader.truth();
    reader.number();
    if (is_last) return reader.has_ended() ? parts : std::vector<std::int32_t>();
    parts.push_back(operation);
    reader.text(0);
    if (operation == create || operation == set_data) reader.text(-1);
    if (operation == create) skip_rights(reader);
    reader.number();
  }
  return {};
}

/// Takes the result of a reply without an error off `reader`; whether it has the shape of one.
bool skip_result(FrameReader& reader, std::int32_t operation) {
  switch (operation) {
    case create:
      reader.text(0);
      return reader.fits();
    case get_data:
      reader.text(-1);
      reader.bytes(bytes_of_stat);
      return reader.fits();
    case set_data:
      reader.bytes(bytes_of_stat);
      return reader.fits();
    case remove_node:
    case check_version:
      return true;
    case get_children: {
      const std::int32_t count = reader.number();
      if (count < 0 || count > ZooKeeperReplyCheck::most_names) return false;
      for (std::int32_t i = 0; i < count && reader.fits(); ++i) {
        if (reader.text(0).empty()) return false;
      }
      reader.bytes(bytes_of_stat);
      return reader.fits();
    }
    default:
      return false;
  }
}

bool skip_results(FrameReader& reader, const std::vector<std::int32_t>& parts) {
  for (const std::int32_t part : parts) {
    const std::int32_t operation = reader.number();
    const bool is_last = reader.truth();
    reader.number();
    if (is_last || !reader.fits()) return false;
    if (operation == failed_part) {
      reader.number();
    } else if (operation != part || !skip_result(reader, part)) {
      return false;
    }
  }
  reader.number();
  const bool is_last = reader.truth();
  reader.number();
  return is_last && !parts.empty();
}

/// Cuts the first whole frame off, without its length; `longest`: a longer one sets `is_broken`.
std::optional<std::string_view> take_frame(std::string_view& bytes, std::int32_t longest,
                                           bool& is_broken) {
  if (bytes.size() < bytes_of_length) return std::nullopt;
  const auto length = static_cast<std::int32_t>(big_endian(bytes.substr(0, bytes_of_length)));
  is_broken = length <= 0 || length > longest;
  const auto size = bytes_of_length + static_cast<std::size_t>(length);
  if (is_broken || bytes.size() < size) return std::nullopt;
  const auto frame = bytes.substr(bytes_of_length, size - bytes_of_length);
  bytes.remove_prefix(size);
  return frame;
}

}  // namespace

void ZooKeeperReplyCheck::listen(const std::string& path, ChildListener* listener) {
  path_ = path;
  listener_ = listener;
}

ZooKeeperReplyCheck::Asked ZooKeeperReplyCheck::request_in(std::string_view frame) const {
  FrameReader reader(frame);
  Asked asked{reader.number(), reader.number()};
  if (asked.operation == multi) asked.parts = parts_in(reader);
  if (asked.operation == get_children && listener_ != nullptr) {
    asked.has_listener = reader.text(0) == path_;
  }
  return asked;
}

void ZooKeeperReplyCheck::note_request(std::string_view bytes) {
  requested_ += bytes;
  std::string_view rest = requested_;
  bool is_strange = false;
  while (const auto frame = take_frame(rest, INT32_MAX, is_strange)) {
    Asked asked = request_in(*frame);
    if (asked.number == login) {
      ++logins_;
    } else if (asked.number == restored_watches) {
      ++restored_watches_;
    } else if (asked.number != ping) {
      asked_.push_back(std::move(asked));
    }
  }
  requested_.erase(0, requested_.size() - rest.size());
}

std::string ZooKeeperReplyCheck::take(std::string_view bytes) {
  if (is_broken_) return {};
  heard_ += bytes;
  std::string_view rest = heard_;
  std::string replies;
  while (!is_broken_) {
    if (list_ || begins_list(rest)) {
      if (!has_heard_list(rest)) break;
      replies += list_->head;
      replies += rest.substr(0, bytes_of_stat);
      rest.remove_prefix(bytes_of_stat);
      list_.reset();
      continue;
    }
    // The head of a list tells that it is one, and may be cut anywhere.
    const bool may_be_list = has_session_ && !asked_.empty() && asked_.front().has_listener &&
                             rest.size() < bytes_before_names;
    const std::string_view from_here = rest;
    const auto frame = take_frame(rest, may_be_list ? INT32_MAX : longest, is_broken_);
    if (!frame) break;
    is_broken_ = !is_reply(*frame);
    if (!is_broken_) replies += from_here.substr(0, from_here.size() - rest.size());
  }
  heard_.erase(0, is_broken_ ? std::string::npos : heard_.size() - rest.size());
  return replies;
}

/// Takes its head off `rest`, if it is one that a listener hears.
bool ZooKeeperReplyCheck::begins_list(std::string_view& rest) {
  const bool is_awaited = has_session_ && !asked_.empty() && asked_.front().has_listener;
  if (!is_awaited || rest.size() < bytes_before_names) return false;
  FrameReader reader(rest);
  const std::int32_t bytes = reader.number(), number = reader.number();
  reader.long_number();  // the last change
  const std::int32_t error = reader.number(), names = reader.number();
  constexpr std::int32_t least = bytes_before_names - bytes_of_length + bytes_of_stat;
  if (number != asked_.front().number || error != 0 || names < 0 || bytes < least) return false;
  asked_.pop_front();
  constexpr auto length = std::string_view("\0\0\0\x58", bytes_of_length);  // of `least` bytes
  constexpr auto no_names = std::string_view("\0\0\0\0", 4);
  list_ = Arriving{std::string(length), bytes - least, names};
  list_->head += rest.substr(bytes_of_length, bytes_of_head);
  list_->head += no_names;
  rest.remove_prefix(bytes_before_names);
  if (listener_ != nullptr) listener_->begin();
  return true;
}

/// Tells the listener the names that are whole, and takes them off `rest`; whether all that is left
/// of the list has arrived.
bool ZooKeeperReplyCheck::has_heard_list(std::string_view& rest) {
  for (; list_->names > 0; --list_->names) {
    const std::int32_t most = list_->bytes - static_cast<std::int32_t>(bytes_of_length);
    const auto name = take_frame(rest, std::min(longest, most), is_broken_);
    if (!name) return false;
    list_->bytes = most - static_cast<std::int32_t>(name->size());
    if (listener_ != nullptr) listener_->hear(*name);
  }
  is_broken_ = list_->bytes != 0;
  return !is_broken_ && rest.size() >= bytes_of_stat;
}

bool ZooKeeperReplyCheck::is_reply(std::string_view frame) {
  return has_session_ ? answers(frame) : gives_session(frame);
}

bool ZooKeeperReplyCheck::gives_session(std::string_view frame) {
  FrameReader reader(frame);
  reader.number();  // the version of the protocol
  const std::int32_t length_ms = reader.number();
  const std::int64_t session = reader.long_number();
  const bool has_password = reader.number() == bytes_of_password;
  reader.bytes(bytes_of_password);
  // Servers of old do not say whether they take reads only, and then they do not.
  const bool is_whole = reader.has_ended() || (!reader.truth() && reader.has_ended());
  has_session_ = true;
  const bool has_expired = session_ != 0 && session != session_;
  const bool lasts = length_ms >= shortest_session_ms && length_ms <= longest_session_ms;
  return is_whole && has_password && (has_expired || (lasts && session != 0));
}

bool ZooKeeperReplyCheck::answers(std::string_view frame) {
  FrameReader reader(frame);
  const std::int32_t number = reader.number();
  reader.long_number();  // the last change
  const std::int32_t error = reader.number();
  if (!reader.fits()) return false;
  if (number == watch_event) {
    reader.number();  // what has happened
    reader.number();  // the state of the session
    reader.text(0);
    return reader.has_ended();
  }
  if (number == ping) return true;
  if (number == login) return logins_-- > 0;
  if (number == restored_watches) return restored_watches_-- > 0;
  if (asked_.empty() || asked_.front().number != number) return false;
  const Asked asked = std::move(asked_.front());
  asked_.pop_front();
  if (error != 0) return true;
  const bool fits = asked.operation == multi ? skip_results(reader, asked.parts)
                                             : skip_result(reader, asked.operation);
  return fits && reader.has_ended();
}

}  // namespace dlock
